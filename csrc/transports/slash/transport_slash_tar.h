/* Walking over a tar archive that anybody may have made. */
#ifndef LORA_TRANSPORT_SLASH_TAR_H
#define LORA_TRANSPORT_SLASH_TAR_H

#include <stdint.h>

#define SLASH_TAR_HEADERS 128 /* a vrtbin has a map, reports and a few designs */
#define SLASH_TAR_NAME 160

struct tar_member {
    char name[SLASH_TAR_NAME]; /* relative; no part begins with a dot */
    uint64_t at, bytes;        /* of its content in the archive */
};

struct tar_walk {
    int fd;
    uint64_t length, next;
    uint32_t headers, named;
    struct tar_member member;
};

/* The next plain file; *found is 0 behind the last. Returns what is wrong with the archive, else
 * NULL. */
const char *slash_tar_next(struct tar_walk *walk, int *found);

#endif
