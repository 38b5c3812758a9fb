/* Kernel registers through the BAR: bracketed, since the BAR is a dma-buf. A load from a card that
 * is gone may never return, and nothing interrupts it: a helper thread makes the access. */
#define _GNU_SOURCE
#include "transport_slash.h"

#include <errno.h>
#include <linux/dma-buf.h>
#include <string.h>
#include <sys/ioctl.h>

#define BLOCK_BYTES 0x10000u

struct access {
    int fd, error;
    uint32_t writes, value;
    volatile uint32_t *at;
};

/* A mock server's BAR is no dma-buf and says ENOTTY. */
static int bracket(int fd, uint64_t flags) {
    struct dma_buf_sync sync = {.flags = flags};
    int result;
    do result = ioctl(fd, DMA_BUF_IOCTL_SYNC, &sync);
    while (result && (errno == EINTR || errno == EAGAIN));
    return !result || errno == ENOTTY ? 0 : errno;
}

static void act(void *given) {
    struct access *call = given;
    const uint64_t kind = call->writes ? DMA_BUF_SYNC_WRITE : DMA_BUF_SYNC_READ;
    call->error = bracket(call->fd, DMA_BUF_SYNC_START | kind);
    if (call->error) return;
    if (call->writes) *call->at = call->value;
    else call->value = *call->at;
    call->error = bracket(call->fd, DMA_BUF_SYNC_END | kind);
}

static volatile uint32_t *register_at(const struct slash_handle *handle, uint32_t block,
                                      uint32_t offset, struct lora_failure *failure) {
    if (!handle->bar || !handle->programmed) {
        lora_fail(failure, LORA_ERR_TRANSPORT,
                  "board %s: no overlay is loaded, so no register answers", handle->bdf);
        return NULL;
    }
    if (block < LORA_BLOCKS && offset < BLOCK_BYTES && offset % 4 == 0) {
        uint64_t at = handle->block_base[block] % handle->bar_bytes + offset;
        if (at <= handle->bar_bytes - 4) return handle->bar + at / 4;
    }
    lora_fail(failure, LORA_ERR_ARGUMENT,
              "board %s: block %u has no register 0x%x in a BAR of %llu B", handle->bdf, block,
              offset, (unsigned long long)handle->bar_bytes);
    return NULL;
}

static int reach(struct slash_handle *handle, struct access *call, struct lora_failure *failure) {
    int status = slash_check_stuck(handle, failure);
    call->fd = handle->bar_fd;
    if (!status) status = slash_bounded(handle, SLASH_REGISTER, act, call, sizeof *call, failure);
    if (status || !call->error) return status;
    return lora_fail(failure, LORA_ERR_TRANSPORT, "board %s: BAR access: %s", handle->bdf,
                     strerror(call->error));
}

int slash_register_read(void *opened, uint32_t block, uint32_t offset, uint32_t *value,
                        struct lora_failure *failure) {
    struct slash_handle *handle = opened;
    struct access call = {.at = register_at(handle, block, offset, failure)};
    if (!call.at) return (int)failure->code;
    lora_count(&handle->counts.register_reads);
    int status = reach(handle, &call, failure);
    *value = call.value;
    return status;
}

int slash_register_write(void *opened, uint32_t block, uint32_t offset, uint32_t value,
                         struct lora_failure *failure) {
    struct slash_handle *handle = opened;
    struct access call = {
        .at = register_at(handle, block, offset, failure), .writes = 1, .value = value};
    if (!call.at) return (int)failure->code;
    lora_count(&handle->counts.register_writes);
    return reach(handle, &call, failure);
}
