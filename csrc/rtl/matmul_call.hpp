/* What the two halves of the matmul array ask of a LORA_CMD_MATRIX, and the fields they share. */
#ifndef LORA_RTL_MATMUL_CALL_HPP
#define LORA_RTL_MATMUL_CALL_HPP

#include "lora/abi.h"
#include "lora/kernels.h"

const lora_matrix *matrix_of(const lora_unit_call *call);
uint32_t rows_of(const lora_unit_call *call);
uint32_t step_row(const lora_unit_call *call, uint32_t row);
uint32_t weight_kind(const lora_matrix *c);
/* log2 of the group of 4-bit weights. */
uint32_t group_log(const lora_matrix *c);
/* 4-bit weights in whole groups of 32, 64 or 128. */
bool whole_groups(const lora_matrix *c);
/* Addresses at lines, sizes in range, y not over x, whose rows have `x_bytes`; adapters that the
 * unit beside the array can add. */
bool array_can(const lora_unit_call *call, uint64_t x_bytes);

template <class Unit> void give_matmul(Unit &unit, const lora_unit_call *call) {
    const lora_matrix *c = matrix_of(call);
    unit.k = static_cast<uint16_t>(c->k);
    unit.n = c->n;
    unit.rows = static_cast<uint8_t>(rows_of(call));
    unit.weight_line = c->weight_line;
    unit.first = c->first;
    unit.merge = c->merge;
    unit.bank_first = c->bank_first;
    unit.bank_count = c->bank_count;
    unit.bias_bank = c->bias_bank & 63;
    unit.bias_line = c->bias_line;
    unit.x_bank = c->x_bank;
    unit.x_line = c->x_offset / LORA_LINE_BYTES;
    unit.x_stride = c->x_stride / LORA_LINE_BYTES;
    unit.y_bank = c->y_bank;
    unit.y_line = c->y_offset / LORA_LINE_BYTES;
    unit.y_stride = c->y_stride / LORA_LINE_BYTES;
    unit.y_single = c->y_type == LORA_FP32;
}

template <class Unit> void take_counts(Unit &unit, lora_unit_call *call) {
    call->nonfinite_count = unit->nonfinite_count;
    call->nonfinite_row = unit->nonfinite_count ? step_row(call, unit->nonfinite_row) : ~0u;
}

#endif
