/* What transports rely on, checked again: the other host's library has done so, or is not ours. */
#include "boardd.h"

#define CONTROL_BYTES (LORA_REG_ARENAS + LORA_MAX_ARENAS * sizeof(struct lora_arena_record))
#define LINK_BYTES 0x100

static int outside(const struct boardd_session *session, const struct wire_range *range,
                   const char *what, struct lora_failure *failure) {
    failure->bank = (int32_t)range->bank;
    failure->offset = range->offset;
    failure->requested = range->bytes;
    return lora_fail(failure, LORA_ERR_RANGE, "%.40s bank %u: %llu B at 0x%llx %s",
                     session->board->name, range->bank, (unsigned long long)range->bytes,
                     (unsigned long long)range->offset, what);
}

int boardd_check_range(const struct boardd_session *session, const struct wire_range *range,
                       struct lora_failure *failure) {
    for (uint32_t a = 0; a < session->arena_count; a++) {
        const struct lora_arena *arena = &session->arenas[a];
        if (arena->bank != range->bank || range->offset < arena->offset) continue;
        uint64_t at = range->offset - arena->offset;
        if (at <= arena->bytes && range->bytes <= arena->bytes - at) return LORA_OK;
    }
    return outside(session, range, "are not inside one reserved arena", failure);
}

int boardd_check_arena(const struct boardd_session *session, const struct wire_range *range,
                       struct lora_failure *failure) {
    if (session->arena_count == LORA_MAX_ARENAS)
        return outside(session, range, "do not fit: all arenas are in use", failure);
    if (range->bank >= session->info.bank_count)
        return outside(session, range, "are in no bank of the board", failure);
    uint64_t capacity = session->info.bank_bytes[range->bank];
    if (!range->bytes || range->offset % LORA_LINE_BYTES || range->offset > capacity ||
        range->bytes > capacity - range->offset)
        return outside(session, range, "are no lines inside the bank", failure);
    for (uint32_t a = 0; a < session->arena_count; a++) {
        const struct lora_arena *arena = &session->arenas[a];
        if (arena->bank == range->bank && range->offset < arena->offset + arena->bytes &&
            arena->offset < range->offset + range->bytes)
            return outside(session, range, "overlap another arena", failure);
    }
    return LORA_OK;
}

int boardd_check_programmed(const struct boardd_session *session, struct lora_failure *failure) {
    if (session->programmed) return LORA_OK;
    return lora_fail(failure, LORA_ERR_TRANSPORT, "%.40s: no program is loaded",
                     session->board->name);
}

int boardd_check_register(const struct boardd_session *session, uint32_t block, uint32_t offset,
                          struct lora_failure *failure) {
    uint32_t end = block == LORA_BLOCK_CONTROL ? (uint32_t)CONTROL_BYTES : LINK_BYTES;
    if (block < LORA_BLOCKS && offset % 4 == 0 && offset < end)
        return boardd_check_programmed(session, failure);
    return lora_fail(failure, LORA_ERR_ARGUMENT, "%.40s: no register 0x%x in block %u",
                     session->board->name, offset, block);
}
