/* Boards with a container of anybody's: what lora/xrt.h says. */
#define _POSIX_C_SOURCE 200809L
#include <stdlib.h>
#include <string.h>

#include "lora/xrt.h"
#include "transport_xrt_calls.h"

#define CORES 16 /* more than any card has ports */
#define UNREAD 0xa5

struct lora_xrt_board {
    struct xrt_handle *handle; /* its arenas are the buffers; `bank` is the memory's index */
    uint32_t core_count;
    uint32_t cores[CORES];
};

static int load(struct xrt_handle *handle, const char *container, struct lora_failure *failure) {
    int status = xrt_container_uuid(container, handle->container.uuid, failure);
    if (status) return status;
    xrt_lock();
    status = xrt_load(handle, container, failure);
    if (!status) xrt_find_shim(handle);
    xrt_unlock();
    return status;
}

int lora_xrt_open(const char *address, const char *container, struct lora_xrt_board **board,
                  struct lora_failure *failure) {
    void *handle = NULL;
    struct lora_failure spare;
    failure = lora_failure_begin(failure, &spare);
    if (!address || !container || !board)
        return lora_fail(failure, LORA_ERR_ARGUMENT, "xrt_open: address and container expected");
    struct lora_xrt_board *opened = calloc(1, sizeof *opened);
    if (!opened) return lora_fail(failure, LORA_ERR_MEMORY, "xrt:%.60s: no host memory", address);
    int status = lora_transport_xrt.open(address, &handle, failure);
    opened->handle = handle;
    if (!status) status = load(handle, container, failure);
    if (status) {
        lora_xrt_close(opened);
        return status;
    }
    *board = opened;
    return LORA_OK;
}

void lora_xrt_close(struct lora_xrt_board *board) {
    if (!board) return;
    for (uint32_t c = 0; c < board->core_count; c++) xrt_close_core(board->handle, board->cores[c]);
    if (board->handle) lora_transport_xrt.close(board->handle);
    free(board);
}

int lora_xrt_buffer(struct lora_xrt_board *board, uint32_t memory, uint64_t bytes, uint32_t *buffer,
                    struct lora_failure *failure) {
    struct lora_failure spare;
    failure = lora_failure_begin(failure, &spare);
    struct xrt_handle *handle = board->handle;
    struct xrt_arena arena = {memory, 0, bytes, NULL, NULL};
    if (!bytes || handle->arena_count == LORA_MAX_ARENAS)
        return lora_fail(failure, LORA_ERR_ARGUMENT,
                         "memory %u: %llu B, %u buffers so far; at least 1 B and at most %d "
                         "buffers expected",
                         memory, (unsigned long long)bytes, handle->arena_count, LORA_MAX_ARENAS);
    xrt_allocate(handle, &arena, memory, bytes);
    int status = xrt_check_stuck(handle, failure);
    if (status) return status;
    if (!arena.mirror) {
        if (arena.bo) xrt_call(handle, &(struct xrt_call){.what = XRT_FREE, .object = arena.bo});
        return lora_fail(failure, LORA_ERR_BANK_FULL,
                         "memory %u: the runtime refuses a buffer object of %.2f MiB: the bank is "
                         "smaller or in use, or the host has no memory for its mirror",
                         memory, (double)bytes / 1048576.0);
    }
    *buffer = handle->arena_count;
    handle->arenas[handle->arena_count++] = arena;
    return LORA_OK;
}

static struct xrt_arena *find(struct lora_xrt_board *board, uint32_t buffer, uint64_t offset,
                              uint64_t bytes, struct lora_failure *failure) {
    if (buffer < board->handle->arena_count) {
        struct xrt_arena *arena = &board->handle->arenas[buffer];
        if (offset <= arena->bytes && bytes <= arena->bytes - offset) return arena;
    }
    lora_fail(failure, LORA_ERR_RANGE,
              "buffer %u: %llu B at 0x%llx are not inside it, which XRT does not check", buffer,
              (unsigned long long)bytes, (unsigned long long)offset);
    return NULL;
}

int lora_xrt_write(struct lora_xrt_board *board, uint32_t buffer, uint64_t offset, const void *data,
                   uint64_t bytes, struct lora_failure *failure) {
    struct lora_failure spare;
    failure = lora_failure_begin(failure, &spare);
    struct xrt_arena *arena = find(board, buffer, offset, bytes, failure);
    if (!arena) return LORA_ERR_RANGE;
    if (bytes) memcpy(arena->mirror + offset, data, bytes);
    return xrt_transfer(board->handle, arena, XRT_TO_DEVICE, offset, bytes, failure);
}

/* The host's copy is spoilt first: a transfer that does not happen must not look right. */
int lora_xrt_read(struct lora_xrt_board *board, uint32_t buffer, uint64_t offset, void *data,
                  uint64_t bytes, struct lora_failure *failure) {
    struct lora_failure spare;
    failure = lora_failure_begin(failure, &spare);
    struct xrt_arena *arena = find(board, buffer, offset, bytes, failure);
    if (!arena) return LORA_ERR_RANGE;
    memset(arena->mirror + offset, UNREAD, bytes);
    int status = xrt_transfer(board->handle, arena, XRT_FROM_DEVICE, offset, bytes, failure);
    if (!status && bytes) memcpy(data, arena->mirror + offset, bytes);
    return status;
}

int lora_xrt_core(struct lora_xrt_board *board, const char *name, uint32_t *core,
                  struct lora_failure *failure) {
    struct lora_failure spare;
    failure = lora_failure_begin(failure, &spare);
    if (!xrt_ip_api(failure)) return LORA_ERR_TRANSPORT;
    struct xrt_handle *handle = board->handle;
    int index = board->core_count < CORES ? xrt_open_core(handle, name) : -1;
    int status = xrt_check_stuck(handle, failure);
    if (status) return status;
    if (index < 0)
        return lora_fail(
            failure, LORA_ERR_TRANSPORT,
            "core %.64s: no context for this process alone; another process may hold the "
            "board",
            name);
    *core = board->core_count;
    board->cores[board->core_count++] = (uint32_t)index;
    return LORA_OK;
}

static int access_core(struct lora_xrt_board *board, uint32_t core, uint32_t offset,
                       uint32_t *value, int write, struct lora_failure *failure) {
    struct lora_failure spare;
    failure = lora_failure_begin(failure, &spare);
    if (core >= board->core_count)
        return lora_fail(failure, LORA_ERR_ARGUMENT, "core %u: %u are open", core,
                         board->core_count);
    struct xrt_call call = {.what = write ? XRT_WRITE_CORE : XRT_READ_CORE,
                            .object = board->handle->shim,
                            .index = board->cores[core],
                            .offset = offset,
                            .value = write ? *value : 0};
    int result = xrt_call(board->handle, &call);
    *value = call.value;
    if (!result) return LORA_OK;
    int status = xrt_check_stuck(board->handle, failure);
    if (status) return status;
    return lora_fail(failure, LORA_ERR_TRANSPORT,
                     "core %u register 0x%x: the runtime cannot %s it (%d); reset the board", core,
                     offset, write ? "write" : "read", result);
}

int lora_xrt_core_read(struct lora_xrt_board *board, uint32_t core, uint32_t offset,
                       uint32_t *value, struct lora_failure *failure) {
    return access_core(board, core, offset, value, 0, failure);
}

int lora_xrt_core_write(struct lora_xrt_board *board, uint32_t core, uint32_t offset,
                        uint32_t value, struct lora_failure *failure) {
    return access_core(board, core, offset, &value, 1, failure);
}
