/* Arenas and sub-ranges of board memory: every range is checked before the transport sees it. */
#include "internal.h"

#include <string.h>

static int write_record(struct lora_cluster *cluster, uint32_t board, uint32_t index,
                        struct lora_failure *failure) {
    const struct lora_board *it = &cluster->boards[board];
    uint32_t words[sizeof(struct lora_arena_record) / 4];
    struct lora_arena_record record = {0};
    if (index < it->arena_count)
        record = (struct lora_arena_record){it->arenas[index].base, it->arenas[index].offset,
                                            it->arenas[index].bytes, it->arenas[index].bank, 1};
    memcpy(words, &record, sizeof words);
    for (uint32_t w = 0; w < sizeof words / 4; w++) {
        uint32_t offset = LORA_REG_ARENAS + index * (uint32_t)sizeof record + 4 * w;
        int status = lora_register_write(cluster, board, LORA_BLOCK_CONTROL, offset, words[w],
                                         failure);
        if (status) return status;
    }
    return lora_register_write(cluster, board, LORA_BLOCK_CONTROL, LORA_REG_ARENA_COUNT,
                               it->arena_count, failure);
}

static int check_new(const struct lora_cluster *cluster, uint32_t board, struct lora_arena arena,
                     struct lora_failure *failure) {
    const struct lora_board *it = &cluster->boards[board];
    failure->bank = (int32_t)arena.bank;
    failure->offset = arena.offset;
    failure->requested = arena.bytes;
    if (arena.bank >= it->info.bank_count)
        return lora_fail(failure, LORA_ERR_ARGUMENT, "board %u: bank %u: %s has banks 0..%u", board,
                         arena.bank, it->info.name, it->info.bank_count - 1);
    failure->capacity = it->info.bank_bytes[arena.bank];
    if (!arena.bytes || arena.offset % LORA_LINE_BYTES)
        return lora_fail(failure, LORA_ERR_ARGUMENT,
                         "board %u bank %u: arena of %llu B at 0x%llx: bytes above 0 and an offset "
                         "in lines of %d B expected",
                         board, arena.bank, (unsigned long long)arena.bytes,
                         (unsigned long long)arena.offset, LORA_LINE_BYTES);
    if (arena.offset > failure->capacity || arena.bytes > failure->capacity - arena.offset) {
        failure->available = arena.offset < failure->capacity ? failure->capacity - arena.offset
                                                              : 0;
        return lora_fail(
            failure, LORA_ERR_BANK_FULL,
            "board %u bank %u: %.1f MiB at 0x%llx asked for, %.1f MiB of %.1f MiB free", board,
            arena.bank, (double)arena.bytes / 1048576.0, (unsigned long long)arena.offset,
            (double)failure->available / 1048576.0, (double)failure->capacity / 1048576.0);
    }
    for (uint32_t a = 0; a < it->arena_count; a++) {
        const struct lora_arena *other = &it->arenas[a];
        if (other->bank == arena.bank && arena.offset < other->offset + other->bytes &&
            other->offset < arena.offset + arena.bytes)
            return lora_fail(failure, LORA_ERR_ARGUMENT,
                             "board %u bank %u: arena of %llu B at 0x%llx overlaps the one of %llu "
                             "B at 0x%llx",
                             board, arena.bank, (unsigned long long)arena.bytes,
                             (unsigned long long)arena.offset, (unsigned long long)other->bytes,
                             (unsigned long long)other->offset);
    }
    if (it->arena_count == LORA_MAX_ARENAS)
        return lora_fail(failure, LORA_ERR_BANK_FULL,
                         "board %u: %u arenas are reserved, no more fit", board, LORA_MAX_ARENAS);
    return LORA_OK;
}

int lora_cluster_reserve(struct lora_cluster *cluster, uint32_t board, uint32_t bank,
                         uint64_t offset, uint64_t bytes, struct lora_failure *failure) {
    struct lora_failure spare;
    struct lora_arena arena = {bank, offset, bytes, 0};
    failure = lora_failure_begin(failure, &spare);
    int status = lora_check_ready(cluster, board, failure);
    if (!status) status = check_new(cluster, board, arena, failure);
    if (status) return status;
    struct lora_board *it = &cluster->boards[board];
    status = it->transport->reserve(it->handle, bank, offset, bytes, &arena.base, failure);
    if (status) return lora_fail_board(cluster, board, status, failure);
    it->arenas[it->arena_count++] = arena;
    status = write_record(cluster, board, it->arena_count - 1, failure);
    if (status) {
        struct lora_failure ignored;
        lora_memory_release(cluster, board, bank, offset, lora_failure_begin(NULL, &ignored));
    }
    return status;
}

int lora_memory_release(struct lora_cluster *cluster, uint32_t board, uint32_t bank,
                        uint64_t offset, struct lora_failure *failure) {
    struct lora_board *it = &cluster->boards[board];
    for (uint32_t a = 0; a < it->arena_count; a++) {
        if (it->arenas[a].bank != bank || it->arenas[a].offset != offset) continue;
        it->arenas[a] = it->arenas[--it->arena_count];
        int status = it->transport->release(it->handle, bank, offset, failure);
        if (status) return lora_fail_board(cluster, board, status, failure);
        status = write_record(cluster, board, a, failure);
        return status || a == it->arena_count
                   ? status
                   : write_record(cluster, board, it->arena_count, failure);
    }
    return lora_fail(failure, LORA_ERR_RANGE, "board %u bank %u: no arena begins at 0x%llx", board,
                     bank, (unsigned long long)offset);
}

/* Writes the line of the last word that ECC could not correct, so that it can be read: sums find it
 * wrong, and its owner writes it again. */
static int mend(struct lora_cluster *cluster, uint32_t board, struct lora_failure *failure) {
    static const uint8_t zeros[LORA_LINE_BYTES];
    struct lora_board *it = &cluster->boards[board];
    struct lora_arena word = it->unreadable;
    struct lora_failure ignored, *unused = lora_failure_begin(NULL, &ignored);
    uint64_t line = word.offset / LORA_LINE_BYTES * LORA_LINE_BYTES;
    it->unreadable.bytes = 0;
    if (!word.bytes) return LORA_OK;
    if (lora_check_range(cluster, board, word.bank, line, sizeof zeros, unused)) return LORA_OK;
    return lora_memory_write(cluster, board, word.bank, line, zeros, sizeof zeros, failure);
}

int lora_memory_restore(struct lora_cluster *cluster, uint32_t board,
                        struct lora_failure *failure) {
    struct lora_board *it = &cluster->boards[board];
    while (it->arena_count < it->kept_arenas) {
        struct lora_arena *arena = &it->arenas[it->arena_count];
        int status = it->transport->reserve(it->handle, arena->bank, arena->offset, arena->bytes,
                                            &arena->base, failure);
        if (status) return lora_fail_board(cluster, board, status, failure);
        it->arena_count++;
        status = write_record(cluster, board, it->arena_count - 1, failure);
        if (status) return status;
    }
    it->kept_arenas = 0;
    return mend(cluster, board, failure);
}

int lora_check_range(const struct lora_cluster *cluster, uint32_t board, uint32_t bank,
                     uint64_t offset, uint64_t bytes, struct lora_failure *failure) {
    const struct lora_board *it = &cluster->boards[board];
    uint64_t available = 0, reserved = 0;
    for (uint32_t a = 0; a < it->arena_count; a++) {
        const struct lora_arena *arena = &it->arenas[a];
        if (arena->bank != bank) continue;
        reserved += arena->bytes;
        if (offset < arena->offset || offset - arena->offset > arena->bytes) continue;
        uint64_t left = arena->bytes - (offset - arena->offset);
        if (bytes <= left) return LORA_OK;
        if (left > available) available = left;
    }
    failure->board = (int32_t)board;
    failure->bank = (int32_t)bank;
    failure->offset = offset;
    failure->requested = bytes;
    failure->available = available;
    failure->capacity = reserved;
    return lora_fail(failure, LORA_ERR_RANGE,
                     "board %u (%s) bank %u: %llu B at offset 0x%llx asked for, %llu B available "
                     "there; %llu B of the bank are reserved",
                     board, it->info.address, bank, (unsigned long long)bytes,
                     (unsigned long long)offset, (unsigned long long)available,
                     (unsigned long long)reserved);
}

int lora_memory_read(struct lora_cluster *cluster, uint32_t board, uint32_t bank, uint64_t offset,
                     void *data, uint64_t bytes, struct lora_failure *failure) {
    struct lora_board *it = &cluster->boards[board];
    int status = lora_check_range(cluster, board, bank, offset, bytes, failure);
    if (status || !bytes) return status;
    atomic_fetch_add(&cluster->memory_reads, 1);
    status = it->transport->memory_read(it->handle, bank, offset, data, bytes, failure);
    if (!status) return status;
    lora_fail_board(cluster, board, status, failure);
    return lora_blame_memory(cluster, lora_board_bit(board), failure);
}

int lora_memory_write(struct lora_cluster *cluster, uint32_t board, uint32_t bank, uint64_t offset,
                      const void *data, uint64_t bytes, struct lora_failure *failure) {
    struct lora_board *it = &cluster->boards[board];
    int status = lora_check_range(cluster, board, bank, offset, bytes, failure);
    if (status || !bytes) return status;
    atomic_fetch_add(&cluster->memory_writes, 1);
    status = it->transport->memory_write(it->handle, bank, offset, data, bytes, failure);
    return lora_fail_board(cluster, board, status, failure);
}

int lora_cluster_write(struct lora_cluster *cluster, uint32_t board, uint32_t bank, uint64_t offset,
                       const void *data, uint64_t bytes, struct lora_failure *failure) {
    struct lora_failure spare;
    failure = lora_failure_begin(failure, &spare);
    int status = lora_check_ready(cluster, board, failure);
    if (status) return status;
    if (!data && bytes) return lora_fail(failure, LORA_ERR_ARGUMENT, "board %u: no data", board);
    return lora_memory_write(cluster, board, bank, offset, data, bytes, failure);
}

int lora_cluster_read(struct lora_cluster *cluster, uint32_t board, uint32_t bank, uint64_t offset,
                      void *data, uint64_t bytes, struct lora_failure *failure) {
    struct lora_failure spare;
    failure = lora_failure_begin(failure, &spare);
    int status = lora_check_ready(cluster, board, failure);
    if (status) return status;
    if (!data && bytes) return lora_fail(failure, LORA_ERR_ARGUMENT, "board %u: no buffer", board);
    return lora_memory_read(cluster, board, bank, offset, data, bytes, failure);
}

int lora_cluster_read_each(struct lora_cluster *cluster, uint32_t bank,
                           const struct lora_part *parts, uint32_t count, void *data,
                           struct lora_failure *failure) {
    struct lora_failure spare;
    failure = lora_failure_begin(failure, &spare);
    if (!parts && count) return lora_fail(failure, LORA_ERR_ARGUMENT, "parts is NULL");
    uint8_t *next = data;
    for (uint32_t board = 0; board < count; board++) {
        if (!parts[board].bytes) continue;
        int status = lora_cluster_read(cluster, board, bank, parts[board].offset, next,
                                       parts[board].bytes, failure);
        if (status) return status;
        next += parts[board].bytes;
    }
    return LORA_OK;
}
