/* What a row's adapter slot holds for one matrix: directory, factors, values, every offset
 * checked. */
#ifndef LORA_KERNELS_ADAPTER_SLOT_H
#define LORA_KERNELS_ADAPTER_SLOT_H

#include "operands.h"

struct adapter_slot {
    const struct lora_unit_call *call;
    uint32_t number;
};

/* `bytes` at `offset` of the slot, which may not cross a chunk; NULL where they leave the slot. */
static inline const void *slot_at(struct adapter_slot slot, uint64_t offset, uint64_t bytes,
                                  uint32_t align) {
    const struct lora_list *list = slot.call->list;
    uint64_t chunk = offset / LORA_ADAPTER_CHUNK, within = offset % LORA_ADAPTER_CHUNK;
    if (list->adapter_bank_count == 0 || slot.number >= list->adapter_slots ||
        chunk >= list->adapter_chunks || within + bytes > LORA_ADAPTER_CHUNK)
        return NULL;
    uint64_t request = (uint64_t)slot.number * list->adapter_chunks + chunk;
    uint32_t bank = list->adapter_bank_first + (uint32_t)(request % list->adapter_bank_count);
    uint64_t chunk_offset = request / list->adapter_bank_count * LORA_ADAPTER_CHUNK + within;
    return call_at(slot.call, bank, (uint64_t)list->adapter_line * LORA_LINE_BYTES + chunk_offset,
                   bytes, align);
}

/* Bytes from `offset` to the end of its chunk. */
static inline uint32_t slot_run(uint64_t offset) {
    return LORA_ADAPTER_CHUNK - (uint32_t)(offset % LORA_ADAPTER_CHUNK);
}

static inline const struct lora_adapter_matrix *slot_matrix(struct adapter_slot slot,
                                                            uint32_t matrix) {
    if (matrix >= slot.call->list->adapter_matrices) return NULL;
    return slot_at(slot, sizeof(struct lora_adapter_slot) + 8ull * matrix,
                   sizeof(struct lora_adapter_matrix), 4);
}

/* Factor `index` of a matrix; NULL where its fields contradict the list or themselves. */
static inline const struct lora_adapter_factor *
slot_factor(struct adapter_slot slot, const struct lora_adapter_matrix *matrix, uint32_t index) {
    const uint64_t size = sizeof(struct lora_adapter_factor);
    const struct lora_adapter_factor *f = slot_at(slot, matrix->offset + size * index, size, 4);
    if (!f || f->rank > LORA_MAX_ADAPTER_RANK || f->rank_first + f->rank_count > f->rank ||
        f->h_run == 0 || f->offset % LORA_LINE_BYTES || f->first > MAX_COLUMNS ||
        f->count > MAX_COLUMNS)
        return NULL;
    return f;
}

/* Column of rank j in a row of h; ~0 where it is none. */
static inline uint32_t factor_column(const struct adapter_slot slot,
                                     const struct lora_adapter_factor *f, uint32_t j) {
    uint64_t column = f->h_first + (uint64_t)(j / f->h_run) * f->h_skip + j % f->h_run;
    return column < slot.call->list->adapter_columns ? (uint32_t)column : NO_ROW;
}

#endif
