/* A target must leave no descriptor open: the lowest free one is the same as before. */
#ifndef FUZZ_DESCRIPTORS_H
#define FUZZ_DESCRIPTORS_H

#include <fcntl.h>
#include <unistd.h>

#include "check.h"

static inline int lowest_free(void) {
    int fd = fcntl(0, F_DUPFD_CLOEXEC, 0);
    CHECK(fd >= 0 && !close(fd));
    return fd;
}

/* A file of these bytes in memory; `path` names it. */
static inline int memory_file(const void *data, size_t bytes, char path[32]) {
    int fd = memfd_create("input", MFD_CLOEXEC);
    CHECK(fd >= 0 && write(fd, data, bytes) == (ssize_t)bytes);
    snprintf(path, 32, "/proc/self/fd/%d", fd);
    return fd;
}

#endif
