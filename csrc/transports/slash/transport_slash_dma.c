/* DMA of the V80: pread and pwrite on a buffer's descriptor, which the driver may never end. A
 * helper thread makes them on memory of its own, so a stuck one keeps a thread and its board only.
 */
#define _GNU_SOURCE
#include "transport_slash.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CHUNK_BYTES (16 * SLASH_PAGE)
struct transfer {
    int fd; /* its own: another buffer's may have the number by the time that it is used */
    int writes, error;
    uint64_t at, bytes;
    uint8_t *data; /* pages that the driver may pin for writing */
};

/* Page by page: vrtd 1.0.0 wraps longer transfers inside one. */
static void act(void *given) {
    struct transfer *call = given;
    for (uint64_t done = 0; done < call->bytes && !call->error;) {
        uint64_t at = call->at + done;
        size_t now = SLASH_PAGE - at % SLASH_PAGE;
        ssize_t moved;
        if (now > call->bytes - done) now = (size_t)(call->bytes - done);
        uint8_t *data = call->data + done;
        do
            moved = call->writes ? pwrite(call->fd, data, now, (off_t)at)
                                 : pread(call->fd, data, now, (off_t)at);
        while (moved < 0 && errno == EINTR);
        if (moved != (ssize_t)now) call->error = moved < 0 ? errno : EIO;
        done += now;
    }
    close(call->fd);
}

static int dma_failed(const struct slash_handle *handle, const struct transfer *call,
                      struct lora_failure *failure) {
    const char *why = call->error == EIO ? "not all was moved" : strerror(call->error);
    if (!slash_alive(&handle->wire)) why = "vrtd is gone, and its buffers with it";
    return lora_fail(failure, LORA_ERR_TRANSPORT, "board %s: DMA at 0x%llx: %s", handle->bdf,
                     (unsigned long long)call->at, why);
}

static int run(struct slash_handle *handle, struct transfer *call, struct lora_failure *failure) {
    int status = slash_check_stuck(handle, failure);
    call->fd = status ? -1 : fcntl(call->fd, F_DUPFD_CLOEXEC, 0);
    if (!status && call->fd < 0) {
        call->error = errno;
        status = dma_failed(handle, call, failure);
    }
    if (!status) {
        status = slash_bounded(handle, SLASH_TRANSFER, act, call, sizeof *call, failure);
        if (status) return status; /* the memory stays with the thread */
    }
    if (!status && call->error) status = dma_failed(handle, call, failure);
    if (status) free(call->data);
    return status;
}

/* At most one chunk, inside one buffer. Exactly one of `from` and `to` is given. */
static int move_chunk(struct slash_handle *handle, int fd, uint64_t at, const uint8_t *from,
                      uint8_t *to, size_t bytes, struct lora_failure *failure) {
    struct transfer call = {.fd = fd, .writes = from != NULL, .at = at, .bytes = bytes};
    call.data = aligned_alloc(SLASH_PAGE, (bytes + SLASH_PAGE - 1) / SLASH_PAGE * SLASH_PAGE);
    if (!call.data)
        return lora_fail(failure, LORA_ERR_MEMORY, "board %s: no host memory", handle->bdf);
    if (from) memcpy(call.data, from, bytes);
    int status = run(handle, &call, failure);
    if (status) return status;
    if (to) memcpy(to, call.data, bytes);
    free(call.data);
    return LORA_OK;
}

int slash_move(struct slash_handle *handle, const struct slash_arena *arena, uint64_t at,
               const uint8_t *from, uint8_t *to, uint64_t bytes, struct lora_failure *failure) {
    for (uint64_t done = 0; done < bytes;) {
        uint64_t place = at + done - arena->pieces[0].physical;
        size_t now = CHUNK_BYTES - place % CHUNK_BYTES; /* regions are multiples of chunks */
        if (now > bytes - done) now = (size_t)(bytes - done);
        int fd = arena->pieces[place / SLASH_REGION_BYTES].fd;
        int status = move_chunk(handle, fd, at + done, from ? from + done : NULL,
                                to ? to + done : NULL, now, failure);
        if (status) return status;
        done += now;
    }
    return LORA_OK;
}
