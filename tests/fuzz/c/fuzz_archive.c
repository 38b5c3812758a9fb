/* The C reader of a V80's archives, on any bytes. Input: the archive; where its first byte is 0xff,
 * what follows it, with the sums of all headers made right. */
#define _GNU_SOURCE
#include <string.h>
#include <sys/mman.h>

#include "descriptors.h"
#include "taken.h"
#include "transport_slash.h"

uint32_t fuzz_taken;

enum { LARGEST = 1 << 16, RECORD = 512 };

static void seal(uint8_t *tar, size_t bytes) {
    for (size_t at = 0; at + RECORD <= bytes; at += RECORD) {
        unsigned sum = 0;
        char text[8];
        memset(tar + at + 148, ' ', 8);
        for (int i = 0; i < RECORD; i++) sum += tar[at + i];
        snprintf(text, sizeof text, "%06o", sum);
        memcpy(tar + at + 148, text, 7);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    static uint8_t tar[LARGEST];
    struct lora_failure failure, *begun = lora_failure_begin(&failure, NULL);
    struct slash_archive archive;
    char path[32];
    int sealed = bytes && data[0] == 0xff, before = lowest_free(), fd;
    data += sealed, bytes -= (size_t)sealed;
    if (bytes > LARGEST) bytes = LARGEST;
    if (bytes) memcpy(tar, data, bytes);
    if (sealed) seal(tar, bytes);
    int file = memory_file(tar, bytes, path);
    int status = slash_archive_open(path, &archive, begun);
    CHECK(!status || (failure.message[0] && !strchr(failure.message, '\n')));
    fuzz_taken += status == LORA_OK;
    for (uint32_t i = 0; !status && i < archive.count; i++)
        if (!slash_archive_design(&archive, i, &fd, begun)) close(fd);
    if (!status) slash_archive_close(&archive);
    close(file);
    CHECK(lowest_free() == before);
    return 0;
}
