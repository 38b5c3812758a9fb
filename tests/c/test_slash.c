/* The V80's transport against hostile input: archives that lie about themselves, and a daemon that
 * answers nonsense. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "transport_slash.h"

static int failures;
static char said[256]; /* by the last failure */

static void check(int holds, const char *what) {
    if (holds) return;
    fprintf(stderr, "test_slash: %s\n", what);
    failures++;
}

/* --- archives --------------------------------------------------------------------------------- */
static void put_header(uint8_t *record, const char *name, const char *size) {
    unsigned sum = 0;
    memset(record, 0, 512);
    snprintf((char *)record, 100, "%s", name);
    memcpy(record + 124, size, strlen(size));
    record[156] = '0';
    memset(record + 148, ' ', 8);
    for (int i = 0; i < 512; i++) sum += record[i];
    snprintf((char *)record + 148, 8, "%06o", sum);
}

/* The designs' names and sizes as "name:bytes ". */
static int open_archive(const char *path, const uint8_t *bytes, size_t length, char found[1024]) {
    struct lora_failure failure, *begun = lora_failure_begin(&failure, NULL);
    struct slash_archive archive;
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(bytes, 1, length, file) != length) abort();
    fclose(file);
    int status = slash_archive_open(path, &archive, begun);
    found[0] = 0;
    for (uint32_t i = 0; !status && i < archive.count; i++) {
        int fd = -1;
        check(!slash_archive_design(&archive, i, &fd, begun), "a listed design can be read");
        sprintf(found + strlen(found), "%.99s:%d ", archive.designs[i].name,
                (int)lseek(fd, 0, SEEK_END));
        close(fd);
    }
    slash_archive_close(&archive);
    if (!status) return status;
    snprintf(said, sizeof said, "%s", failure.message);
    check(failure.message[0] && !strchr(failure.message, '\n'), "a failure has one line");
    return status;
}

static void test_archives(const char *folder) {
    char path[256], found[1024];
    uint8_t tar[4096] = {0};
    snprintf(path, sizeof path, "%s/a.vrtbin", folder);
    put_header(tar, "system_map.xml", "00000000003");
    put_header(tar + 1024, "./design.pdi", "00000000007");
    memcpy(tar + 1536, "content", 7);
    check(!open_archive(path, tar, sizeof tar, found) && !strcmp(found, "design.pdi:7 "),
          "the second member is found");
    check(open_archive(path, tar, 1536 + 3, found), "a member that is cut off is refused");
    check(open_archive(path, tar, 1024, found), "an archive without a design is refused");
    check(open_archive(path, tar, 0, found), "an empty archive is refused");
    put_header(tar, "design.pdi", "77777777777");
    check(open_archive(path, tar, sizeof tar, found) && strstr(said, "longer than the archive"),
          "a size beyond the archive is refused before it is read");
    put_header(tar, "design.pdi", "zzz");
    check(open_archive(path, tar, sizeof tar, found), "a size that is no number is refused");
    put_header(tar, "design.pdi", "00000000003");
    check(open_archive(path, tar, sizeof tar, found) && strstr(said, "twice"),
          "a design that is there twice is refused");
    tar[0] ^= 1;
    check(open_archive(path, tar, sizeof tar, found), "a wrong header sum is refused");
    srand(7);
    for (int round = 0; round < 300; round++) {
        uint8_t spoilt[4096];
        memcpy(spoilt, tar, sizeof spoilt);
        for (int i = 0; i < 8; i++) spoilt[rand() % 2048] = (uint8_t)rand();
        (void)open_archive(path, spoilt, 512 + (size_t)(rand() % 3584), found);
    }
    unlink(path);
}

static void test_names(const char *folder) {
    static const char *const refused[] = {"/etc/a.pdi", "../a.pdi",      "images/../../a.pdi",
                                          "a/./b.pdi",  ".hidden.pdi",   "a\\b.pdi",
                                          "a\nb.pdi",   "images/..a.pdi"};
    char path[256], found[1024];
    uint8_t tar[4096] = {0};
    snprintf(path, sizeof path, "%s/a.vrtbin", folder);
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        put_header(tar, refused[i], "00000000003");
        check(open_archive(path, tar, sizeof tar, found) && strstr(said, "leaves the archive"),
              refused[i]);
    }
    put_header(tar, "images/top_i_slash.pdi", "00000000003");
    put_header(tar + 1024, "images/top_i_service_layer.pdi", "00000000004");
    put_header(tar + 2048, "design.pdi", "00000000005");
    check(!open_archive(path, tar, sizeof tar, found) &&
              !strcmp(found, "design.pdi:5 images/top_i_service_layer.pdi:4 "
                             "images/top_i_slash.pdi:3 "),
          "design.pdi is loaded first, others by name");
    tar[156] = '2'; /* a link; the sum counts it */
    memcpy(tar + 148, "        ", 8);
    unsigned sum = 0;
    for (int i = 0; i < 512; i++) sum += tar[i];
    snprintf((char *)tar + 148, 8, "%06o", sum);
    check(open_archive(path, tar, sizeof tar, found) && strstr(said, "no plain file"),
          "a link is refused");
    unlink(path);
}

/* The record of an extended header in front of a member called "a.pdi". */
static int extended(const char *folder, char kind, const char *record, char found[1024]) {
    char path[256], size[12];
    uint8_t tar[4096] = {0};
    snprintf(path, sizeof path, "%s/a.vrtbin", folder);
    snprintf(size, sizeof size, "%011o", (unsigned)strlen(record));
    put_header(tar, "././@PaxHeader", size);
    tar[156] = (uint8_t)kind;
    memcpy(tar + 148, "        ", 8);
    unsigned sum = 0;
    for (int i = 0; i < 512; i++) sum += tar[i];
    snprintf((char *)tar + 148, 8, "%06o", sum);
    memcpy(tar + 512, record, strlen(record));
    put_header(tar + 1024, "a.pdi", "00000000003");
    int status = open_archive(path, tar, sizeof tar, found);
    unlink(path);
    return status;
}

static void test_extended_headers(const char *folder) {
    char found[1024];
    check(!extended(folder, 'x', "20 mtime=1700000.25\n", found) && !strcmp(found, "a.pdi:3 "),
          "times in fractions, as the linker's Python writes them");
    check(extended(folder, 'x', "18 path=images/b.pdi\n", found) && strstr(said, "damaged"),
          "a record that ends elsewhere");
    check(!extended(folder, 'x', "21 path=images/b.pdi\n", found) &&
              !strcmp(found, "images/b.pdi:3 "),
          "a path of its own");
    check(!extended(folder, 'L', "images/long.pdi", found) && !strcmp(found, "images/long.pdi:3 "),
          "a long name of GNU's tar");
    check(extended(folder, 'L', "../long.pdi", found) && strstr(said, "leaves the archive"),
          "also there no path leaves the archive");
    check(extended(folder, 'x', "10 size=1\n", found) && strstr(said, "8 GiB"),
          "a size that contradicts the header's");
    check(extended(folder, 'x', "99 path=b\n", found) && strstr(said, "damaged"),
          "a record longer than its header");
    check(extended(folder, 'x', "3 \n\n", found) && strstr(said, "damaged"), "a record of nothing");
}

/* --- a daemon --------------------------------------------------------------------------------- */
enum manner { HANG_UP, SHORT, WRONG_SEQUENCE, WRONG_LENGTH, REFUSE, WRONG_SIZE, NOISE, MANNERS };

struct daemon {
    int listener;
    enum manner manner;
};

static void *answer(void *given) {
    struct daemon *it = given;
    uint8_t packet[4096];
    int client = accept(it->listener, NULL, NULL);
    if (recv(client, packet, sizeof packet, 0) >= 8 && it->manner != HANG_UP) {
        uint32_t sequence;
        memcpy(&sequence, packet + 4, 4);
        uint16_t words[2] = {4, 0};
        size_t bytes = 12;
        if (it->manner == SHORT) bytes = 5;
        if (it->manner == WRONG_SEQUENCE) sequence += 9;
        if (it->manner == WRONG_LENGTH) words[0] = 4000;
        if (it->manner == WRONG_SIZE) words[0] = 200, bytes = 208;
        if (it->manner == REFUSE) words[0] = 0, words[1] = 77, bytes = 8;
        memcpy(packet, words, 4);
        memcpy(packet + 4, &sequence, 4);
        if (it->manner == NOISE)
            for (size_t i = 0; i < sizeof packet; i++) packet[i] = (uint8_t)rand();
        send(client, packet, it->manner == NOISE ? sizeof packet : bytes, MSG_NOSIGNAL);
    }
    close(client);
    return NULL;
}

static void test_daemons(const char *folder) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%s/s", folder);
    setenv("LORA_VRTD_SOCKET", address.sun_path, 1);
    for (enum manner manner = HANG_UP; manner < MANNERS; manner++) {
        struct daemon it = {socket(AF_UNIX, SOCK_SEQPACKET, 0), manner};
        struct lora_failure failure;
        pthread_t thread;
        uint32_t count = 0;
        struct lora_slash_device none[1];
        unlink(address.sun_path);
        if (bind(it.listener, (struct sockaddr *)&address, sizeof address) ||
            listen(it.listener, 1) || pthread_create(&thread, NULL, answer, &it))
            abort();
        int status = lora_slash_devices(none, 0, &count, &failure);
        check(status == LORA_ERR_TRANSPORT, "nonsense of a daemon is a transport failure");
        check(failure.message[0] && !strchr(failure.message, '\n'), "and one line");
        pthread_join(thread, NULL);
        close(it.listener);
    }
    unlink(address.sun_path);
    struct lora_failure failure;
    uint32_t count;
    check(lora_slash_devices(NULL, 0, &count, &failure) && strstr(failure.message, "start vrtd"),
          "without a daemon the cure is named");
}

/* Its queue of clients is full, and it takes none. */
static void test_a_daemon_that_is_stopped(const char *folder) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct lora_failure failure;
    uint32_t count;
    int listener = socket(AF_UNIX, SOCK_SEQPACKET, 0), waiting[8], clients = 0, full = 0;
    snprintf(address.sun_path, sizeof address.sun_path, "%s/s", folder);
    if (bind(listener, (struct sockaddr *)&address, sizeof address) || listen(listener, 0)) abort();
    while (!full && clients < 8) {
        waiting[clients] = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0);
        full = connect(waiting[clients++], (struct sockaddr *)&address, sizeof address) != 0;
    }
    check(full, "nobody can connect any more");
    alarm(60);
    check(lora_slash_devices(NULL, 0, &count, &failure) == LORA_ERR_TRANSPORT &&
              strstr(failure.message, "timed out; restart vrtd"),
          "connecting to a stopped daemon has an end");
    alarm(0);
    while (clients) close(waiting[--clients]);
    close(listener);
    unlink(address.sun_path);
}

int main(void) {
    char folder[] = "/tmp/lora-slash-XXXXXX";
    if (!mkdtemp(folder)) return 1;
    test_archives(folder);
    test_names(folder);
    test_extended_headers(folder);
    test_daemons(folder);
    test_a_daemon_that_is_stopped(folder);
    rmdir(folder);
    return failures != 0;
}
