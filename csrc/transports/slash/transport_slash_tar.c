/* Members of a tar archive, one after another: ustar, pax and GNU headers. Whoever made it, sums,
 * sizes and names are checked, and nothing but plain files and folders is let through. */
#define _GNU_SOURCE
#include "transport_slash_tar.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define RECORD 512u
#define MEMBER_LIMIT (1ull << 30)
#define EXTENDED_LIMIT 65536u /* bytes of an extended header */

struct tar_header {
    char name[100], mode[8], uid[8], gid[8], size[12], mtime[12], checksum[8], type;
    char link[100], magic[6], version[2], owner[32], group[32], major[8], minor[8];
    char prefix[155], rest[12];
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

/* Relative, without a part that begins with a dot, of characters that an error may print. */
static int harmless(const char *name) {
    if (!name[0] || name[0] == '/') return 0;
    for (const char *at = name; *at; at++) {
        if (*at < ' ' || *at > '~' || *at == '\\') return 0;
        if (*at == '.' && (at == name || at[-1] == '/')) return 0;
    }
    return 1;
}

static const char *take_name(struct tar_walk *walk, const char *name, size_t length) {
    while (length >= 2 && name[0] == '.' && name[1] == '/') name += 2, length -= 2;
    if (length >= sizeof walk->member.name) return "a member's name is too long";
    memcpy(walk->member.name, name, length);
    walk->member.name[length] = 0;
    return NULL;
}

static const char *header_name(struct tar_walk *walk, const struct tar_header *header) {
    char name[sizeof header->name + sizeof header->prefix + 2];
    size_t length = 0;
    if (!memcmp(header->magic, "ustar", 6) && header->prefix[0]) {
        length = strnlen(header->prefix, sizeof header->prefix);
        memcpy(name, header->prefix, length);
        name[length++] = '/';
    }
    size_t own = strnlen(header->name, sizeof header->name);
    memcpy(name + length, header->name, own);
    return take_name(walk, name, length + own);
}

/* "LENGTH KEY=VALUE\n" records: the name is taken, a size would contradict the header's. */
static const char *take_records(struct tar_walk *walk, const char *text, size_t bytes) {
    for (size_t at = 0; at < bytes;) {
        size_t length = 0, digits = 0;
        while (at + digits < bytes && text[at + digits] >= '0' && text[at + digits] <= '9' &&
               digits < 6)
            length = length * 10 + (size_t)(text[at + digits++] - '0');
        if (!digits || at + digits >= bytes || text[at + digits] != ' ' || length > bytes - at ||
            length < digits + 3 || text[at + length - 1] != '\n')
            return "an extended header is damaged";
        const char *record = text + at + digits + 1;
        size_t left = length - digits - 2; /* without the blank and the newline */
        const char *wrong = NULL;
        if (left > 5 && !memcmp(record, "path=", 5)) {
            wrong = take_name(walk, record + 5, left - 5);
            walk->named = 1;
        } else if ((left >= 5 && !memcmp(record, "size=", 5)) ||
                   (left >= 11 && !memcmp(record, "GNU.sparse.", 11))) {
            wrong = "a member is sparse or of more than 8 GiB";
        }
        if (wrong) return wrong;
        at += length;
    }
    return NULL;
}

/* 'x': records of the next member; 'L': its name alone. */
static const char *take_extended(struct tar_walk *walk, char type) {
    uint64_t bytes = walk->member.bytes;
    if (bytes > EXTENDED_LIMIT) return "an extended header is too long";
    char *text = malloc(bytes + 1);
    if (!text) return "no memory for its headers";
    const char *wrong = NULL;
    if (pread(walk->fd, text, bytes, (off_t)walk->member.at) != (ssize_t)bytes) {
        wrong = "cannot be read";
    } else if (type == 'x') {
        wrong = take_records(walk, text, bytes);
    } else {
        wrong = take_name(walk, text, strnlen(text, bytes));
        walk->named = 1;
    }
    free(text);
    return wrong;
}

/* The next header's size and place; `*type` 0 behind the last. */
static const char *next_header(struct tar_walk *walk, struct tar_header *header) {
    uint64_t bytes;
    memset(header, 0, sizeof *header);
    if (walk->length < RECORD || walk->next > walk->length - RECORD) return NULL;
    if (pread(walk->fd, header, RECORD, (off_t)walk->next) != (ssize_t)RECORD)
        return "cannot be read";
    if (!header->name[0]) return NULL; /* the end's zero records */
    if (!sound(header) || !octal(header->size, sizeof header->size, &bytes))
        return "a member's header is damaged";
    walk->next += RECORD;
    if (bytes > MEMBER_LIMIT || bytes > walk->length - walk->next)
        return "a member is longer than the archive";
    walk->member.at = walk->next;
    walk->member.bytes = bytes;
    walk->next += (bytes + RECORD - 1) / RECORD * RECORD;
    return NULL;
}

const char *slash_tar_next(struct tar_walk *walk, int *found) {
    struct tar_header header;
    walk->named = *found = 0;
    for (;;) {
        const char *wrong = next_header(walk, &header);
        if (wrong || !header.name[0]) return wrong;
        if (++walk->headers > SLASH_TAR_HEADERS) return "has too many members";
        switch (header.type) {
        case 'x':
        case 'L':
            wrong = take_extended(walk, header.type);
            if (wrong) return wrong;
            continue;
        case 'g': continue; /* comments of whoever packed it */
        case '5': /* a folder */ walk->named = 0; continue;
        case '0':
        case 0: break;
        default: return "a member is no plain file";
        }
        if (!walk->named) wrong = header_name(walk, &header);
        if (wrong) return wrong;
        if (!harmless(walk->member.name)) return "a member's path leaves the archive";
        *found = 1;
        return NULL;
    }
}
