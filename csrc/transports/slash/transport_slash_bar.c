/* The BAR with the kernels' registers. vrtd removes its PCIe function and scans the bus again after
 * each design write and reset. An access through a mapping made before has no answer, which ends
 * the computer's PCIe root port with a fatal completion timeout: mappings never outlive a design.
 */
#define _GNU_SOURCE
#include "transport_slash.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define BAR_LIMIT (1ull << 32)

struct bar_info { /* op 2 */
    uint32_t size;
    uint8_t bar, usable, in_use, pad;
    uint64_t start, bytes;
};

struct __attribute__((packed)) bar_body {
    uint32_t device;
    uint8_t bar;
};

static int check_usable(struct slash_handle *handle, const struct bar_body *body,
                        struct lora_failure *failure) {
    struct bar_info info;
    struct slash_request ask = {.opcode = SLASH_BAR_INFO,
                                .body = body,
                                .body_bytes = sizeof *body,
                                .fd = -1,
                                .answer = &info,
                                .answer_bytes = sizeof info,
                                .timeout_ms = SLASH_ANSWER_MS};
    int status = slash_call(&handle->wire, &ask, failure);
    if (status || (info.size == sizeof info && info.usable)) return status;
    return lora_fail(failure, LORA_ERR_TRANSPORT,
                     "board %s: BAR %d: %u B of information, usable %u; %zu B and usable "
                     "expected; is the SLASH shell loaded?",
                     handle->bdf, SLASH_BAR, info.size, info.usable, sizeof info);
}

/* A file shorter than the BAR would end the process with SIGBUS. A dma-buf has no such end. */
static int check_length(const struct slash_handle *handle, uint64_t bytes,
                        struct lora_failure *failure) {
    struct stat facts;
    if (!bytes || bytes > BAR_LIMIT || bytes % SLASH_PAGE)
        return lora_fail(failure, LORA_ERR_TRANSPORT, "board %s: BAR %d of %llu B", handle->bdf,
                         SLASH_BAR, (unsigned long long)bytes);
    if (!fstat(handle->bar_fd, &facts) &&
        (!S_ISREG(facts.st_mode) || (uint64_t)facts.st_size >= bytes))
        return LORA_OK;
    return lora_fail(failure, LORA_ERR_TRANSPORT,
                     "board %s: BAR %d of %llu B found in a file of %lld B", handle->bdf, SLASH_BAR,
                     (unsigned long long)bytes, (long long)facts.st_size);
}

int slash_bar_map(struct slash_handle *handle, struct lora_failure *failure) {
    const struct bar_body body = {handle->device, SLASH_BAR};
    uint64_t bytes = 0;
    slash_bar_unmap(handle);
    int status = check_usable(handle, &body, failure);
    if (status) return status;
    struct slash_request ask = {.opcode = SLASH_BAR_FD,
                                .body = &body,
                                .body_bytes = sizeof body,
                                .fd = -1,
                                .answer = &bytes,
                                .answer_bytes = sizeof bytes,
                                .answer_fd = &handle->bar_fd,
                                .timeout_ms = SLASH_ANSWER_MS};
    status = slash_call(&handle->wire, &ask, failure);
    if (!status) status = check_length(handle, bytes, failure);
    if (status) return status;
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, handle->bar_fd, 0);
    if (at == MAP_FAILED)
        return lora_fail(failure, LORA_ERR_TRANSPORT, "board %s: BAR %d cannot be mapped: %s",
                         handle->bdf, SLASH_BAR, strerror(errno));
    handle->bar = at;
    handle->bar_bytes = bytes;
    return LORA_OK;
}

void slash_bar_unmap(struct slash_handle *handle) {
    handle->programmed = 0;
    handle->bell = (struct lora_doorbell){0};
    int used = atomic_load(&handle->stuck) == SLASH_REGISTER; /* by a thread, for ever */
    if (handle->bar && !used) munmap((void *)handle->bar, handle->bar_bytes);
    if (handle->bar_fd >= 0 && !used) close(handle->bar_fd);
    handle->bar = NULL;
    handle->bar_fd = -1;
}
