/* Arenas as buffer objects. XRT checks neither banks nor the ranges of a sync, so all is checked
 * here. A buffer object has a host copy; writes go through it, and so do reads. */
#define _POSIX_C_SOURCE 200809L
#include "transport_xrt_calls.h"

#include <string.h>

#define ALIGNMENT 4096u
/* Counters of a transfer are 32 bits wide in the runtime's software emulation. */
#define SYNC_BYTES (1ull << 30)
#define MIB(bytes) ((double)(bytes) / 1048576.0)

static uint64_t reserved_in(const struct xrt_handle *board, uint32_t bank) {
    uint64_t total = 0;
    for (uint32_t a = 0; a < board->arena_count; a++)
        if (board->arenas[a].bank == bank) total += board->arenas[a].bytes;
    return total;
}

static int refuse(const struct xrt_handle *board, uint32_t bank, uint64_t bytes, const char *why,
                  struct lora_failure *failure) {
    char name[16];
    uint64_t capacity = xrt_bank_usable(board->facts, bank), held = reserved_in(board, bank);
    xrt_bank_name(board->facts, bank, name);
    failure->bank = (int32_t)bank;
    failure->requested = bytes;
    failure->capacity = capacity;
    failure->available = held < capacity ? capacity - held : 0;
    return lora_fail(failure, LORA_ERR_BANK_FULL,
                     "bank %u (%s): %.2f MiB asked for, %.2f of %.2f MiB free: %s", bank, name,
                     MIB(bytes), MIB(failure->available), MIB(capacity), why);
}

static int check_reserve(const struct xrt_handle *board, uint32_t bank, uint64_t offset,
                         uint64_t bytes, struct lora_failure *failure) {
    if (!board->kernel)
        return lora_fail(failure, LORA_ERR_TRANSPORT, "no overlay is loaded; load one first");
    uint32_t banks = xrt_bank_count(board->facts);
    if (bank >= banks)
        return lora_fail(failure, LORA_ERR_ARGUMENT, "bank %u: banks 0..%u expected (%s)", bank,
                         banks - 1, board->facts->name);
    uint64_t usable = xrt_bank_usable(board->facts, bank);
    if (!board->container.connected[bank])
        return refuse(board, bank, bytes,
                      "the loaded container does not connect this bank to lora_ctrl; take a "
                      "connected bank or link the overlay with its own configuration",
                      failure);
    if (!bytes || bytes > usable || offset > usable - bytes)
        return refuse(board, bank, bytes, "beyond the bank's end", failure);
    if (bytes > usable - reserved_in(board, bank))
        return refuse(board, bank, bytes, "the bank is full", failure);
    if (board->arena_count == LORA_MAX_ARENAS)
        return refuse(board, bank, bytes, "no more arenas than the ABI has", failure);
    return LORA_OK;
}

uint64_t xrt_allocate(struct xrt_handle *board, struct xrt_arena *arena, uint32_t memory,
                      uint64_t bytes) {
    struct xrt_call call = {
        .what = XRT_ALLOCATE, .object = board->device, .index = memory, .bytes = bytes};
    xrt_call(board, &call);
    if (!call.found) return 0;
    arena->bo = call.object = call.found;
    call.what = XRT_MAP;
    xrt_call(board, &call);
    arena->mirror = call.found;
    call.what = XRT_ADDRESS;
    xrt_call(board, &call);
    return call.address;
}

int xrt_reserve(void *handle, uint32_t bank, uint64_t offset, uint64_t bytes, uint64_t *base,
                struct lora_failure *failure) {
    struct xrt_handle *board = handle;
    int status = check_reserve(board, bank, offset, bytes, failure);
    if (status) return status;
    struct xrt_arena arena = {bank, offset, bytes, NULL, NULL};
    uint64_t whole = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    *base = xrt_allocate(board, &arena, (uint32_t)board->container.memory[bank], whole);
    status = xrt_check_stuck(board, failure);
    if (status) return status;
    if (!arena.bo)
        return refuse(board, bank, bytes,
                      "the runtime refuses a buffer object: another process holds the rest, or the "
                      "host has no memory for its mirror",
                      failure);
    if (!arena.mirror || *base % LORA_LINE_BYTES) {
        xrt_call(board, &(struct xrt_call){.what = XRT_FREE, .object = arena.bo});
        return lora_fail(failure, LORA_ERR_TRANSPORT,
                         "bank %u: buffer object at 0x%llx with%s host copy found, one on a line "
                         "of %d B expected; update XRT",
                         bank, (unsigned long long)*base, arena.mirror ? "" : "out",
                         LORA_LINE_BYTES);
    }
    board->arenas[board->arena_count++] = arena;
    return LORA_OK;
}

int xrt_release(void *handle, uint32_t bank, uint64_t offset, struct lora_failure *failure) {
    struct xrt_handle *board = handle;
    for (uint32_t a = 0; a < board->arena_count; a++) {
        if (board->arenas[a].bank != bank || board->arenas[a].offset != offset) continue;
        void *bo = board->arenas[a].bo;
        board->arenas[a] = board->arenas[--board->arena_count];
        if (!xrt_call(board, &(struct xrt_call){.what = XRT_FREE, .object = bo})) return LORA_OK;
        int status = xrt_check_stuck(board, failure);
        if (status) return status;
        return lora_fail(failure, LORA_ERR_TRANSPORT,
                         "bank %u: the runtime does not take the arena at 0x%llx back", bank,
                         (unsigned long long)offset);
    }
    return lora_fail(failure, LORA_ERR_RANGE, "bank %u: no arena begins at 0x%llx", bank,
                     (unsigned long long)offset);
}

void xrt_release_all(struct xrt_handle *board) {
    while (board->arena_count)
        xrt_call(board, &(struct xrt_call){.what = XRT_FREE,
                                           .object = board->arenas[--board->arena_count].bo});
}

static struct xrt_arena *find(struct xrt_handle *board, uint32_t bank, uint64_t offset,
                              uint64_t bytes, struct lora_failure *failure) {
    for (uint32_t a = 0; a < board->arena_count; a++) {
        struct xrt_arena *arena = &board->arenas[a];
        if (arena->bank != bank || offset < arena->offset) continue;
        uint64_t inside = offset - arena->offset;
        if (inside <= arena->bytes && bytes <= arena->bytes - inside) return arena;
    }
    failure->bank = (int32_t)bank;
    failure->offset = offset;
    failure->requested = bytes;
    int there = board->facts && bank < xrt_bank_count(board->facts);
    failure->available = there ? reserved_in(board, bank) : 0;
    failure->capacity = there ? xrt_bank_usable(board->facts, bank) : 0;
    lora_fail(failure, LORA_ERR_RANGE,
              "bank %u: bytes 0x%llx..0x%llx are not inside one reserved arena; %llu B of the bank "
              "are reserved",
              bank, (unsigned long long)offset, (unsigned long long)(offset + bytes),
              (unsigned long long)failure->available);
    return NULL;
}

int xrt_transfer(struct xrt_handle *board, const struct xrt_arena *arena, int direction,
                 uint64_t at, uint64_t bytes, struct lora_failure *failure) {
    int result = 0;
    for (uint64_t done = 0; done < bytes && !result;) {
        uint64_t piece = bytes - done < SYNC_BYTES ? bytes - done : SYNC_BYTES;
        pthread_mutex_lock(&board->sync);
        result = xrt_call(board, &(struct xrt_call){.what = XRT_SYNC,
                                                    .object = arena->bo,
                                                    .index = (uint64_t)direction,
                                                    .bytes = piece,
                                                    .address = at + done});
        pthread_mutex_unlock(&board->sync);
        done += piece;
    }
    if (!result) return LORA_OK;
    int status = xrt_check_stuck(board, failure);
    if (status) return status;
    return lora_fail(failure, LORA_ERR_TRANSPORT,
                     "bank %u: the runtime failed to move %llu B %s the board (%d); reset the "
                     "board, then open it again",
                     arena->bank, (unsigned long long)bytes, direction ? "from" : "to", result);
}

/* A card that has left the bus answers all ones, data too; lora_ctrl's ABI number is never that. */
static int check_presence(struct xrt_handle *board, const uint8_t *read, uint64_t bytes,
                          struct lora_failure *failure) {
    for (uint64_t i = 0; i < bytes && i < 64; i++)
        if (read[i] != 0xff) return LORA_OK;
    struct xrt_call look = {
        .what = XRT_READ, .object = board->kernel, .offset = LORA_REG_IDENTITY_ABI};
    if (!xrt_call(board, &look) && look.value != LORA_NONE) return LORA_OK;
    int status = xrt_check_stuck(board, failure);
    if (status) return status;
    return lora_fail_gone(failure, "the ABI register", look.value);
}

int xrt_memory_read(void *handle, uint32_t bank, uint64_t offset, void *data, uint64_t bytes,
                    struct lora_failure *failure) {
    struct xrt_arena *arena = find(handle, bank, offset, bytes, failure);
    if (!arena) return LORA_ERR_RANGE;
    lora_count(&((struct xrt_handle *)handle)->counts.memory_reads);
    uint64_t at = offset - arena->offset;
    int status = xrt_transfer(handle, arena, XRT_FROM_DEVICE, at, bytes, failure);
    if (!status && bytes) status = check_presence(handle, arena->mirror + at, bytes, failure);
    if (!status && bytes) memcpy(data, arena->mirror + at, bytes);
    return status;
}

int xrt_memory_write(void *handle, uint32_t bank, uint64_t offset, const void *data, uint64_t bytes,
                     struct lora_failure *failure) {
    struct xrt_arena *arena = find(handle, bank, offset, bytes, failure);
    if (!arena) return LORA_ERR_RANGE;
    lora_count(&((struct xrt_handle *)handle)->counts.memory_writes);
    uint64_t at = offset - arena->offset;
    if (bytes) memcpy(arena->mirror + at, data, bytes);
    return xrt_transfer(handle, arena, XRT_TO_DEVICE, at, bytes, failure);
}
