#include "matmul_call.hpp"

#include "adapter_call.hpp"

namespace {

constexpr uint32_t MAX_K = 32767; /* mpu_types.sv: rows of x that fit */

bool at_lines(uint32_t offset, uint32_t stride) {
    return offset % LORA_LINE_BYTES == 0 && stride % LORA_LINE_BYTES == 0;
}

/* y over x: the unit reads a row's x after it has stored the row before it. */
bool in_place(const lora_matrix *c, uint32_t rows, uint64_t x_bytes) {
    uint64_t element = c->y_type == LORA_FP32 ? 4 : 2;
    uint64_t x_end = c->x_offset + uint64_t{c->x_stride} * (rows - 1) + x_bytes;
    uint64_t y_end = c->y_offset + uint64_t{c->y_stride} * (rows - 1) + element * c->n;
    return c->x_bank == c->y_bank && c->x_offset < y_end && c->y_offset < x_end;
}

} // namespace

const lora_matrix *matrix_of(const lora_unit_call *call) {
    return reinterpret_cast<const lora_matrix *>(call->command);
}

uint32_t rows_of(const lora_unit_call *call) {
    return call->command->flags & LORA_FLAG_SELECTED ? call->state->selected_count
                                                     : call->state->row_count;
}

uint32_t step_row(const lora_unit_call *call, uint32_t row) {
    return call->command->flags & LORA_FLAG_SELECTED ? call->state->selected[row] : row;
}

uint32_t weight_kind(const lora_matrix *c) { return c->weight_type & LORA_WEIGHT_TYPE_MASK; }

uint32_t group_log(const lora_matrix *c) { return c->weight_type >> LORA_WEIGHT_GROUP_SHIFT; }

bool whole_groups(const lora_matrix *c) {
    uint32_t log = group_log(c);
    return log >= 5 && log <= 7 && c->k % (1u << log) == 0;
}

bool array_can(const lora_unit_call *call, uint64_t x_bytes) {
    const lora_matrix *c = matrix_of(call);
    uint32_t rows = rows_of(call);
    return c->k >= 1 && c->k <= MAX_K && c->n >= 1 && rows >= 1 && rows <= LORA_MAX_ROWS &&
           c->merge >= 1 && c->bank_count >= 1 &&
           c->bank_first + c->bank_count <= LORA_BANK_ONCHIP + 1 &&
           (!names_adapter(call) || adapter_unit_can_add(call)) &&
           at_lines(c->x_offset, c->x_stride) && at_lines(c->y_offset, c->y_stride) &&
           !in_place(c, rows, x_bytes);
}
