/* Arenas on the V80: buffers of vrtd's allocator. */
#define _GNU_SOURCE
#include "transport_slash.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PIECES (SLASH_DDR_BYTES / SLASH_REGION_BYTES)
#define MIB(bytes) ((double)(bytes) / 1048576.0)

enum buffer_type { BUFFER_DDR = 0, BUFFER_HBM_REGION = 1 };

static uint64_t bank_base(uint32_t bank) {
    return bank == SLASH_DDR_BANK ? SLASH_DDR_BASE : SLASH_HBM_BASE + bank * SLASH_HBM_BYTES;
}

static uint64_t bank_bytes(uint32_t bank) {
    return bank == SLASH_DDR_BANK ? SLASH_DDR_BYTES : SLASH_HBM_BYTES;
}

static const char *bank_name(uint32_t bank, char text[16]) {
    if (bank == SLASH_DDR_BANK) return "DDR";
    snprintf(text, 16, "HBM[%u]", bank);
    return text;
}

static void close_buffer(struct slash_handle *handle, struct slash_buffer *buffer) {
    struct lora_failure ignored;
    struct __attribute__((packed)) {
        uint32_t device;
        uint64_t physical, bytes;
    } body = {handle->device, buffer->physical, buffer->bytes};
    uint8_t answer;
    struct slash_request ask = {.opcode = SLASH_BUFFER_CLOSE,
                                .body = &body,
                                .body_bytes = sizeof body,
                                .fd = -1,
                                .answer = &answer,
                                .answer_bytes = 1,
                                .timeout_ms = SLASH_ANSWER_MS};
    if (handle->wire.socket >= 0) /* else vrtd has freed it with the connection */
        slash_call(&handle->wire, &ask, lora_failure_begin(NULL, &ignored));
    close(buffer->fd);
    handle->buffer_count--;
}

static int check_buffer(uint32_t bank, uint64_t wanted, const struct slash_buffer *buffer,
                        struct lora_failure *failure) {
    uint64_t base = bank_base(bank), end = base + bank_bytes(bank);
    if (buffer->bytes >= wanted && buffer->physical % SLASH_PAGE == 0 && buffer->physical >= base &&
        buffer->physical < end && buffer->bytes <= end - buffer->physical)
        return LORA_OK;
    return lora_fail(failure, LORA_ERR_TRANSPORT,
                     "bank %u: vrtd gave %llu B at 0x%llx, %llu B inside 0x%llx..0x%llx expected",
                     bank, (unsigned long long)buffer->bytes, (unsigned long long)buffer->physical,
                     (unsigned long long)wanted, (unsigned long long)base, (unsigned long long)end);
}

/* LORA_ERR_BANK_FULL where vrtd has nothing more to give. */
static int open_buffer(struct slash_handle *handle, uint32_t bank, uint32_t half, uint64_t bytes,
                       struct slash_buffer *buffer, struct lora_failure *failure) {
    const int hbm = bank != SLASH_DDR_BANK;
    uint32_t body[8] = {handle->device, hbm ? BUFFER_HBM_REGION : BUFFER_DDR};
    const uint64_t numbers[2] = {hbm ? 2ull * bank + half : 0, bytes};
    /* direction 0, both ways; the development branch has a DMA channel behind it, 0 for any */
    const size_t words = handle->wire.generation == SLASH_RELEASE ? 3 : 4;
    uint64_t answer[3] = {0}; /* there also the number of its queues */
    memcpy(body + words, numbers, sizeof numbers);
    struct slash_request ask = {.opcode = SLASH_BUFFER_OPEN,
                                .body = body,
                                .body_bytes = (uint16_t)(4 * words + sizeof numbers),
                                .fd = -1,
                                .answer = answer,
                                .answer_bytes = sizeof answer,
                                .answer_any = 1,
                                .answer_fd = &buffer->fd,
                                .timeout_ms = SLASH_ANSWER_MS};
    int status = slash_call(&handle->wire, &ask, failure);
    int used_up = ask.result == SLASH_BUSY || ask.result == SLASH_INTERNAL;
    if (status) return used_up ? LORA_ERR_BANK_FULL : status;
    buffer->bytes = answer[0];
    buffer->physical = answer[1];
    handle->buffer_count++;
    status = check_buffer(bank, bytes, buffer, failure);
    if (status) close_buffer(handle, buffer);
    return status;
}

static void close_pieces(struct slash_handle *handle, struct slash_arena *arena) {
    while (arena->piece_count) close_buffer(handle, &arena->pieces[--arena->piece_count]);
    free(arena->pieces);
    arena->pieces = NULL;
}

static int full(const struct slash_handle *handle, const struct slash_arena *arena, const char *why,
                struct lora_failure *failure) {
    char name[16];
    failure->bank = (int32_t)arena->bank;
    failure->offset = arena->offset;
    failure->requested = arena->bytes;
    failure->capacity = bank_bytes(arena->bank);
    for (uint32_t a = 0; a < handle->arena_count; a++)
        if (handle->arenas[a].bank == arena->bank)
            failure->available += handle->arenas[a].bytes; /* ours; the rest may be others' */
    failure->available = failure->capacity - failure->available;
    return lora_fail(failure, LORA_ERR_BANK_FULL,
                     "bank %s: %.1f MiB asked for, %s: %.1f of %.1f MiB are not this process's, "
                     "which holds %u buffers (a board has %d, of at least 64 MiB); another process "
                     "may hold some",
                     bank_name(arena->bank, name), MIB(arena->bytes), why, MIB(failure->available),
                     MIB(failure->capacity), handle->buffer_count, SLASH_BUFFERS);
}

static uint64_t granules(uint64_t bytes) {
    return (bytes + SLASH_GRANULE - 1) / SLASH_GRANULE * SLASH_GRANULE;
}

/* A bank of HBM is two regions: an arena of one region may lie in either, a larger one in both. */
static int open_pieces(struct slash_handle *handle, struct slash_arena *arena, uint64_t bytes,
                       struct lora_failure *failure) {
    int hbm = arena->bank != SLASH_DDR_BANK, status = LORA_OK;
    for (uint64_t done = 0; done < bytes && !status;) {
        uint64_t piece = bytes - done < SLASH_REGION_BYTES ? bytes - done : SLASH_REGION_BYTES;
        struct slash_buffer *next = &arena->pieces[arena->piece_count];
        uint32_t half = hbm && done ? 1 : 0;
        status = open_buffer(handle, arena->bank, half, granules(piece), next, failure);
        if (status == LORA_ERR_BANK_FULL && hbm && bytes <= SLASH_REGION_BYTES)
            status = open_buffer(handle, arena->bank, 1, granules(piece), next, failure);
        if (status == LORA_ERR_BANK_FULL) return full(handle, arena, "vrtd is out of it", failure);
        if (status) return status;
        arena->piece_count++;
        if (next->physical != arena->pieces[0].physical + done)
            return full(handle, arena, "no run of free regions is that long", failure);
        done += piece;
    }
    return status;
}

int slash_reserve(void *opened, uint32_t bank, uint64_t offset, uint64_t bytes, uint64_t *base,
                  struct lora_failure *failure) {
    struct slash_handle *handle = opened;
    uint64_t pad = offset % SLASH_PAGE; /* so that pages of bank and board coincide */
    if (bank >= SLASH_BANKS || !bytes || bytes > bank_bytes(bank) ||
        handle->arena_count == LORA_MAX_ARENAS)
        return lora_fail(failure, LORA_ERR_ARGUMENT, "bank %u: arena %u of %llu B", bank,
                         handle->arena_count, (unsigned long long)bytes);
    struct slash_arena arena = {.bank = bank, .offset = offset, .bytes = bytes};
    arena.pieces = calloc(PIECES + 1, sizeof *arena.pieces);
    if (!arena.pieces) return lora_fail(failure, LORA_ERR_MEMORY, "no host memory for an arena");
    int status = open_pieces(handle, &arena, bytes + pad, failure);
    if (status) {
        close_pieces(handle, &arena);
        return status;
    }
    *base = arena.base = arena.pieces[0].physical + pad;
    handle->arenas[handle->arena_count++] = arena;
    return LORA_OK;
}

int slash_release(void *opened, uint32_t bank, uint64_t offset, struct lora_failure *failure) {
    struct slash_handle *handle = opened;
    for (uint32_t a = 0; a < handle->arena_count; a++) {
        if (handle->arenas[a].bank != bank || handle->arenas[a].offset != offset) continue;
        close_pieces(handle, &handle->arenas[a]);
        handle->arenas[a] = handle->arenas[--handle->arena_count];
        return LORA_OK;
    }
    return lora_fail(failure, LORA_ERR_RANGE, "bank %u: no arena begins at 0x%llx", bank,
                     (unsigned long long)offset);
}

void slash_release_all(struct slash_handle *handle) {
    while (handle->arena_count) close_pieces(handle, &handle->arenas[--handle->arena_count]);
}

static const struct slash_arena *arena_of(const struct slash_handle *handle, uint32_t bank,
                                          uint64_t offset, uint64_t bytes,
                                          struct lora_failure *failure) {
    for (uint32_t a = 0; a < handle->arena_count; a++) {
        const struct slash_arena *arena = &handle->arenas[a];
        if (arena->bank == bank && offset >= arena->offset &&
            offset - arena->offset <= arena->bytes &&
            bytes <= arena->bytes - (offset - arena->offset))
            return arena;
    }
    lora_fail(failure, LORA_ERR_RANGE, "bank %u: %llu B at 0x%llx are not inside one arena", bank,
              (unsigned long long)bytes, (unsigned long long)offset);
    return NULL;
}

static int move_all(struct slash_handle *handle, uint32_t bank, uint64_t offset,
                    const uint8_t *from, uint8_t *to, uint64_t bytes,
                    struct lora_failure *failure) {
    const struct slash_arena *arena = arena_of(handle, bank, offset, bytes, failure);
    if (!arena) return LORA_ERR_RANGE;
    return slash_move(handle, arena, arena->base + (offset - arena->offset), from, to, bytes,
                      failure);
}

int slash_memory_read(void *opened, uint32_t bank, uint64_t offset, void *data, uint64_t bytes,
                      struct lora_failure *failure) {
    lora_count(&((struct slash_handle *)opened)->counts.memory_reads);
    return move_all(opened, bank, offset, NULL, data, bytes, failure);
}

int slash_memory_write(void *opened, uint32_t bank, uint64_t offset, const void *data,
                       uint64_t bytes, struct lora_failure *failure) {
    lora_count(&((struct slash_handle *)opened)->counts.memory_writes);
    return move_all(opened, bank, offset, data, NULL, bytes, failure);
}
