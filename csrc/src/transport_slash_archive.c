/* A member of a vrtbin, which is a tar archive. Whoever made it, sizes and sums are checked. */
#define _GNU_SOURCE
#include "transport_slash.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define RECORD 512u
#define MEMBERS 64 /* a vrtbin has a map and a few PDIs */
#define MEMBER_LIMIT (1ull << 30)

struct tar_header {
    char name[100], mode[8], uid[8], gid[8], size[12], mtime[12], checksum[8], type;
    char rest[355];
};

/* Octal digits, ended by NUL or space; 0 where there is anything else. */
static int octal(const char *text, size_t width, uint64_t *value) {
    size_t i = 0;
    *value = 0;
    while (i < width && text[i] == ' ') i++;
    size_t first = i;
    for (; i < width && text[i] >= '0' && text[i] <= '7'; i++)
        *value = *value * 8 + (uint64_t)(text[i] - '0');
    return i > first && (i == width || text[i] == 0 || text[i] == ' ');
}

static int sound(const struct tar_header *header) {
    const uint8_t *bytes = (const uint8_t *)header;
    const size_t at = offsetof(struct tar_header, checksum);
    uint64_t stated = 0, sum = 0;
    for (size_t i = 0; i < RECORD; i++) sum += i >= at && i < at + 8 ? ' ' : bytes[i];
    return octal(header->checksum, sizeof header->checksum, &stated) && stated == sum;
}

static int named(const struct tar_header *header, const char *member) {
    const char *name = header->name;
    size_t left = sizeof header->name;
    if (name[0] == '.' && name[1] == '/') name += 2, left -= 2;
    return strnlen(name, left) == strlen(member) && !memcmp(name, member, strlen(member));
}

static int bad(const char *path, const char *what, struct lora_failure *failure) {
    return lora_fail(failure, LORA_ERR_OVERLAY,
                     "%.120s: %s; a vrtbin is an uncompressed tar archive with design.pdi", path,
                     what);
}

static int copy_out(int from, uint64_t at, uint64_t bytes, int *fd, const char *path,
                    struct lora_failure *failure) {
    uint8_t part[16384];
    *fd = memfd_create("design.pdi", MFD_CLOEXEC);
    if (*fd < 0)
        return lora_fail(failure, LORA_ERR_MEMORY, "%.120s: no memory for its design", path);
    for (uint64_t done = 0; done < bytes;) {
        size_t now = bytes - done < sizeof part ? (size_t)(bytes - done) : sizeof part;
        ssize_t got = pread(from, part, now, (off_t)(at + done));
        if (got <= 0 || write(*fd, part, (size_t)got) != got) {
            close(*fd);
            return bad(path, "its design cannot be read", failure);
        }
        done += (uint64_t)got;
    }
    lseek(*fd, 0, SEEK_SET);
    return LORA_OK;
}

static int search(int from, uint64_t length, const char *path, const char *member, int *fd,
                  struct lora_failure *failure) {
    uint64_t at = 0;
    for (uint32_t i = 0; i < MEMBERS && length >= RECORD && at <= length - RECORD; i++) {
        struct tar_header header;
        uint64_t bytes;
        if (pread(from, &header, RECORD, (off_t)at) != (ssize_t)RECORD)
            return bad(path, "cannot be read", failure);
        if (!header.name[0]) break; /* the end's zero records */
        if (!sound(&header) || !octal(header.size, sizeof header.size, &bytes))
            return bad(path, "a member's header is damaged", failure);
        at += RECORD;
        if (bytes > MEMBER_LIMIT || bytes > length - at)
            return bad(path, "a member is longer than the archive", failure);
        if ((header.type == '0' || header.type == 0) && named(&header, member))
            return copy_out(from, at, bytes, fd, path, failure);
        at += (bytes + RECORD - 1) / RECORD * RECORD;
    }
    return bad(path, "has no design.pdi", failure);
}

int slash_archive_member(const char *path, const char *member, int *fd,
                         struct lora_failure *failure) {
    struct stat info;
    int from = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (from < 0 || fstat(from, &info)) {
        int error = errno;
        if (from >= 0) close(from);
        return bad(path, strerror(error), failure);
    }
    int status = S_ISREG(info.st_mode)
                     ? search(from, (uint64_t)info.st_size, path, member, fd, failure)
                     : bad(path, "is no file", failure);
    close(from);
    return status;
}
