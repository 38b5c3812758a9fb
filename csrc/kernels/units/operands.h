/* What a kernel sees of its board: its rows, and operands in bank memory, ranges checked. */
#ifndef LORA_KERNELS_OPERANDS_H
#define LORA_KERNELS_OPERANDS_H

#include <stddef.h>
#include <stdint.h>

#include "isa/rows.h"
#include "lora/abi.h"
#include "lora/kernels.h"

#define MAX_COLUMNS (1u << 24) /* of an operand: sizes and loops stay far from overflow */
#define NO_ROW 0xffffffffu

static inline uint32_t call_rows(const struct lora_unit_call *call) {
    return call->command->flags & LORA_FLAG_SELECTED ? call->state->selected_count
                                                     : call->state->row_count;
}

/* Index in the step of the command's row i. */
static inline uint32_t call_step_row(const struct lora_unit_call *call, uint32_t i) {
    return call->command->flags & LORA_FLAG_SELECTED ? call->state->selected[i] : i;
}

static inline const struct lora_row *call_row(const struct lora_unit_call *call, uint32_t i) {
    return &call->state->rows[call_step_row(call, i)];
}

static inline void call_count_nonfinite(struct lora_unit_call *call, uint32_t i, uint32_t count) {
    uint32_t row = call_step_row(call, i);
    call->nonfinite_count += count;
    if (count && row < call->nonfinite_row) call->nonfinite_row = row;
}

/* `bytes` at `offset` of a bank; NULL where that leaves the bank or is not aligned to `align`. */
static inline void *call_at(const struct lora_unit_call *call, uint32_t bank, uint64_t offset,
                            uint64_t bytes, uint32_t align) {
    if (bank > LORA_BANK_ONCHIP || !call->banks[bank] || offset % align != 0) return NULL;
    uint64_t size = call->bank_bytes[bank];
    if (bytes > size || offset > size - bytes) return NULL;
    return call->banks[bank] + offset;
}

static inline struct rows call_operand(const struct lora_unit_call *call, uint32_t bank,
                                       uint32_t offset, uint32_t stride, uint64_t row_bytes,
                                       uint32_t align) {
    struct rows rows = {NULL, stride};
    uint32_t count = call_rows(call);
    uint64_t bytes = (uint64_t)stride * (count ? count - 1 : 0) + row_bytes;
    if (stride % align == 0) rows.base = call_at(call, bank, offset, bytes, align);
    return rows;
}

static inline uint64_t padded_lines(uint64_t bytes) {
    return (bytes + LORA_LINE_BYTES - 1) / LORA_LINE_BYTES * LORA_LINE_BYTES;
}

#endif
