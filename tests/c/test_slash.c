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

static int open_archive(const char *path, const uint8_t *bytes, size_t length, size_t *found) {
    struct lora_failure failure, *begun = lora_failure_begin(&failure, NULL);
    int fd = -1;
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(bytes, 1, length, file) != length) abort();
    fclose(file);
    int status = slash_archive_member(path, "design.pdi", &fd, begun);
    *found = 0;
    if (status) {
        snprintf(said, sizeof said, "%s", failure.message);
        check(failure.message[0] && !strchr(failure.message, '\n'), "a failure has one line");
        return status;
    }
    *found = (size_t)lseek(fd, 0, SEEK_END);
    close(fd);
    return status;
}

static void test_archives(const char *folder) {
    char path[256];
    uint8_t tar[4096] = {0};
    size_t found;
    snprintf(path, sizeof path, "%s/a.vrtbin", folder);
    put_header(tar, "system_map.xml", "00000000003");
    put_header(tar + 1024, "./design.pdi", "00000000007");
    memcpy(tar + 1536, "content", 7);
    check(!open_archive(path, tar, sizeof tar, &found) && found == 7, "the second member is found");
    check(open_archive(path, tar, 1536 + 3, &found), "a member that is cut off is refused");
    check(open_archive(path, tar, 1024, &found), "an archive without a design is refused");
    check(open_archive(path, tar, 0, &found), "an empty archive is refused");
    put_header(tar, "design.pdi", "77777777777");
    check(open_archive(path, tar, sizeof tar, &found) && strstr(said, "longer than the archive"),
          "a size beyond the archive is refused before it is read");
    put_header(tar, "design.pdi", "zzz");
    check(open_archive(path, tar, sizeof tar, &found), "a size that is no number is refused");
    put_header(tar, "design.pdi", "00000000003");
    tar[0] ^= 1;
    check(open_archive(path, tar, sizeof tar, &found), "a wrong header sum is refused");
    srand(7);
    for (int round = 0; round < 300; round++) {
        uint8_t spoilt[4096];
        memcpy(spoilt, tar, sizeof spoilt);
        for (int i = 0; i < 8; i++) spoilt[rand() % 2048] = (uint8_t)rand();
        (void)open_archive(path, spoilt, 512 + (size_t)(rand() % 3584), &found);
    }
    unlink(path);
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

int main(void) {
    char folder[] = "/tmp/lora-slash-XXXXXX";
    if (!mkdtemp(folder)) return 1;
    test_archives(folder);
    test_daemons(folder);
    rmdir(folder);
    return failures != 0;
}
