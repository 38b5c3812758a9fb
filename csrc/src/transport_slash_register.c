/* Kernel registers through the BAR: bracketed, since the BAR is a dma-buf. */
#define _GNU_SOURCE
#include "transport_slash.h"

#include <errno.h>
#include <linux/dma-buf.h>
#include <string.h>
#include <sys/ioctl.h>

#define BLOCK_BYTES 0x10000u

/* A mock server's BAR is no dma-buf and says ENOTTY. */
static int bracket(const struct slash_handle *handle, uint64_t flags,
                   struct lora_failure *failure) {
    struct dma_buf_sync sync = {.flags = flags};
    int result;
    do result = ioctl(handle->bar_fd, DMA_BUF_IOCTL_SYNC, &sync);
    while (result && (errno == EINTR || errno == EAGAIN));
    if (!result || errno == ENOTTY) return LORA_OK;
    return lora_fail(failure, LORA_ERR_TRANSPORT, "board %s: BAR access: %s", handle->bdf,
                     strerror(errno));
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

int slash_register_read(void *opened, uint32_t block, uint32_t offset, uint32_t *value,
                        struct lora_failure *failure) {
    struct slash_handle *handle = opened;
    volatile uint32_t *at = register_at(handle, block, offset, failure);
    if (!at) return (int)failure->code;
    lora_count(&handle->counts.register_reads);
    int status = bracket(handle, DMA_BUF_SYNC_START | DMA_BUF_SYNC_READ, failure);
    if (status) return status;
    *value = *at;
    return bracket(handle, DMA_BUF_SYNC_END | DMA_BUF_SYNC_READ, failure);
}

int slash_register_write(void *opened, uint32_t block, uint32_t offset, uint32_t value,
                         struct lora_failure *failure) {
    struct slash_handle *handle = opened;
    volatile uint32_t *at = register_at(handle, block, offset, failure);
    if (!at) return (int)failure->code;
    lora_count(&handle->counts.register_writes);
    int status = bracket(handle, DMA_BUF_SYNC_START | DMA_BUF_SYNC_WRITE, failure);
    if (status) return status;
    *at = value;
    return bracket(handle, DMA_BUF_SYNC_END | DMA_BUF_SYNC_WRITE, failure);
}
