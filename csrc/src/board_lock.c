/* Locks of boards between processes. */
#define _GNU_SOURCE
#include "board_lock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "internal.h"

static const char *folder(void) {
    const char *named = getenv("LORA_LOCK_DIR");
    if (named && named[0]) return named;
    return access("/run/lock", W_OK | X_OK) ? "/tmp" : "/run/lock";
}

/* Addresses hold ':' and '.', which a file name may; anything else becomes '_'. */
static void file_name(const char *scheme, const char *address, char *path, size_t bytes) {
    static const char kept[] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ:.-";
    int used = snprintf(path, bytes, "%.400s/lora-board-%s-%.64s.lock", folder(), scheme, address);
    char *at = path + strlen(folder()) + 1;
    for (; used > 0 && *at; at++)
        if (!strchr(kept, *at)) *at = '_';
}

static long holder_of(int file) {
    char text[24] = "";
    ssize_t got = pread(file, text, sizeof text - 1, 0);
    return got > 0 ? strtol(text, NULL, 10) : 0;
}

int lora_board_lock(const char *scheme, const char *address, int *holder,
                    struct lora_failure *failure) {
    char path[512], text[24];
    file_name(scheme, address, path, sizeof path);
    /* Everybody may lock: a board is shared between users of one group or not at all. */
    int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (file < 0)
        return lora_fail(failure, LORA_ERR_TRANSPORT,
                         "lock file %.120s: %s; set LORA_LOCK_DIR to a folder that can be written",
                         path, strerror(errno));
    if (flock(file, LOCK_EX | LOCK_NB)) {
        long process = holder_of(file);
        close(file);
        return lora_fail(failure, LORA_ERR_TRANSPORT,
                         "%s:%.60s: held by process %ld, free expected; end it or take another "
                         "board",
                         scheme, address, process);
    }
    int length = snprintf(text, sizeof text, "%ld\n", (long)getpid());
    if (ftruncate(file, 0) || pwrite(file, text, (size_t)length, 0) != length) {
        int reason = errno;
        close(file);
        return lora_fail(failure, LORA_ERR_TRANSPORT, "lock file %.120s: %s", path,
                         strerror(reason));
    }
    *holder = file;
    return LORA_OK;
}

void lora_board_unlock(int holder) {
    if (holder >= 0) close(holder); /* the file stays: removing it would race with another opener */
}
