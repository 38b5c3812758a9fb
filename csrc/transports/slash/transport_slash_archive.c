/* The designs of a vrtbin: every PDI is loaded, service layer and kernels alike. */
#define _GNU_SOURCE
#include "transport_slash.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define DESIGN "design.pdi" /* of an archive without folders */

static int bad(const char *path, const char *what, struct lora_failure *failure) {
    return lora_fail(failure, LORA_ERR_OVERLAY, "%.120s: %s; a vrtbin is a tar archive with *.pdi",
                     path, what);
}

static int is_pdi(const char *name) {
    size_t length = strlen(name);
    return length > 4 && !strcasecmp(name + length - 4, ".pdi");
}

/* design.pdi first, then by name: a service layer's comes before the kernels' so. */
static int before(const char *a, const char *b) {
    int first = !strcmp(a, DESIGN), second = !strcmp(b, DESIGN);
    return first != second ? first : strcmp(a, b) < 0;
}

static const char *insert(struct slash_archive *archive, const struct tar_member *member) {
    uint32_t at = archive->count;
    if (at == SLASH_DESIGNS) return "has too many designs";
    for (uint32_t i = 0; i < at; i++)
        if (!strcmp(archive->designs[i].name, member->name)) return "has a design twice";
    for (; at && before(member->name, archive->designs[at - 1].name); at--)
        archive->designs[at] = archive->designs[at - 1];
    archive->designs[at] = *member;
    archive->count++;
    return NULL;
}

static const char *list(struct slash_archive *archive, uint64_t length) {
    struct tar_walk walk = {.fd = archive->fd, .length = length};
    for (;;) {
        int found;
        const char *wrong = slash_tar_next(&walk, &found);
        if (wrong) return wrong;
        if (!found) return archive->count ? NULL : "has no design (*.pdi)";
        if (is_pdi(walk.member.name)) wrong = insert(archive, &walk.member);
        if (wrong) return wrong;
    }
}

int slash_archive_open(const char *path, struct slash_archive *archive,
                       struct lora_failure *failure) {
    struct stat info;
    *archive = (struct slash_archive){.fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC)};
    const char *wrong;
    if (archive->fd < 0 || fstat(archive->fd, &info)) wrong = strerror(errno);
    else if (!S_ISREG(info.st_mode)) wrong = "is no file";
    else wrong = list(archive, (uint64_t)info.st_size);
    if (!wrong) return LORA_OK;
    int status = bad(path, wrong, failure);
    slash_archive_close(archive);
    return status;
}

void slash_archive_close(struct slash_archive *archive) {
    if (archive->fd >= 0) close(archive->fd);
    archive->fd = -1;
}

int slash_archive_design(const struct slash_archive *archive, uint32_t index, int *fd,
                         struct lora_failure *failure) {
    const struct tar_member *design = &archive->designs[index];
    uint8_t part[16384];
    *fd = memfd_create("design.pdi", MFD_CLOEXEC);
    if (*fd < 0) return lora_fail(failure, LORA_ERR_MEMORY, "no memory for %s", design->name);
    for (uint64_t done = 0; done < design->bytes;) {
        uint64_t left = design->bytes - done;
        size_t now = left < sizeof part ? (size_t)left : sizeof part;
        ssize_t got = pread(archive->fd, part, now, (off_t)(design->at + done));
        if (got <= 0 || write(*fd, part, (size_t)got) != got) {
            close(*fd);
            return bad(design->name, "cannot be read", failure);
        }
        done += (uint64_t)got;
    }
    lseek(*fd, 0, SEEK_SET);
    return LORA_OK;
}
