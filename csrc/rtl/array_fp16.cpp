#include "array_fp16.hpp"

namespace {

constexpr uint32_t MAX_K = 32767; /* mpu_types.sv: rows of x that fit */
constexpr uint32_t RESET_CYCLES = 4;
constexpr uint64_t QUIET_CYCLES = 1 << 20; /* of one command without a word to memory: a hang */

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

bool names_adapter(const lora_unit_call *call) {
    if (matrix_of(call)->adapter == 0) return false;
    for (uint32_t i = 0; i < rows_of(call); i++)
        if (call->state->rows[step_row(call, i)].adapter >= 0) return true;
    return false;
}

uint32_t weight_kind(const lora_matrix *c) { return c->weight_type & LORA_WEIGHT_TYPE_MASK; }

uint32_t group_log(const lora_matrix *c) { return c->weight_type >> LORA_WEIGHT_GROUP_SHIFT; }

/* FP16 weights, or W4A16 in whole groups of 32, 64 or 128. */
bool right_weights(const lora_matrix *c) {
    if (c->weight_type == LORA_WEIGHT_FP16) return true;
    uint32_t log = group_log(c);
    return weight_kind(c) == LORA_WEIGHT_W4A16 && log >= 5 && log <= 7 && c->k % (1u << log) == 0;
}

bool at_lines(uint32_t offset, uint32_t stride) {
    return offset % LORA_LINE_BYTES == 0 && stride % LORA_LINE_BYTES == 0;
}

/* y over x: the unit reads a row's x after it has stored the row before it. */
bool in_place(const lora_matrix *c, uint32_t rows) {
    uint64_t element = c->y_type == LORA_FP32 ? 4 : 2;
    uint64_t x_end = c->x_offset + uint64_t{c->x_stride} * (rows - 1) + 2ull * c->k;
    uint64_t y_end = c->y_offset + uint64_t{c->y_stride} * (rows - 1) + element * c->n;
    return c->x_bank == c->y_bank && c->x_offset < y_end && c->y_offset < x_end;
}

} // namespace

ArrayFp16::ArrayFp16(uint32_t seed) {
    context_.randReset(2); /* random bits, not zeros */
    context_.randSeed(static_cast<int>(seed & 0x7fffffff));
    unit_ = std::make_unique<VMpuFp16>(&context_);
    unit_->clk = 0;
    unit_->rst = 1;
    unit_->command_valid = 0;
    unit_->read_ready = 0;
    unit_->write_ready = 0;
    unit_->line_valid = 0;
    for (uint32_t i = 0; i < RESET_CYCLES; i++) edge();
    unit_->rst = 0;
}

void ArrayFp16::edge() {
    unit_->clk = 1;
    unit_->eval();
    unit_->clk = 0;
    unit_->eval();
}

bool ArrayFp16::can(const lora_unit_call *call) {
    const lora_matrix *c = matrix_of(call);
    uint32_t rows = rows_of(call);
    return right_weights(c) && c->k >= 1 && c->k <= MAX_K && c->n >= 1 && rows >= 1 &&
           rows <= LORA_MAX_ROWS && c->merge >= 1 && c->bank_count >= 1 &&
           c->bank_first + c->bank_count <= LORA_BANK_ONCHIP + 1 && !names_adapter(call) &&
           at_lines(c->x_offset, c->x_stride) && at_lines(c->y_offset, c->y_stride) &&
           !in_place(c, rows);
}

void ArrayFp16::give(const lora_unit_call *call) {
    const lora_matrix *c = matrix_of(call);
    unit_->k = static_cast<uint16_t>(c->k);
    unit_->n = c->n;
    unit_->rows = static_cast<uint8_t>(rows_of(call));
    unit_->weight_line = c->weight_line;
    unit_->first = c->first;
    unit_->merge = c->merge;
    unit_->bank_first = c->bank_first;
    unit_->bank_count = c->bank_count;
    unit_->has_bias = c->bias_bank != LORA_NO_BANK;
    unit_->bias_bank = c->bias_bank & 63;
    unit_->bias_line = c->bias_line;
    unit_->x_bank = c->x_bank;
    unit_->x_line = c->x_offset / LORA_LINE_BYTES;
    unit_->x_stride = c->x_stride / LORA_LINE_BYTES;
    unit_->y_bank = c->y_bank;
    unit_->y_line = c->y_offset / LORA_LINE_BYTES;
    unit_->y_stride = c->y_stride / LORA_LINE_BYTES;
    unit_->y_single = c->y_type == LORA_FP32;
    unit_->four_bit = weight_kind(c) == LORA_WEIGHT_W4A16;
    unit_->group_log = unit_->four_bit ? (group_log(c) - 5) & 3 : 0;
}

int ArrayFp16::run(lora_unit_call *call, MemoryTiming timing, uint64_t *cycles) {
    BoardMemory memory(call);
    Ports<VMpuFp16> ports(*unit_, memory, timing);
    give(call);
    unit_->command_valid = 1;
    uint64_t cycle = 0, spoke = 0;
    do {
        bool taken = unit_->command_valid && unit_->command_ready;
        if (unit_->read_valid || unit_->write_valid) spoke = cycle;
        ports.drive(cycle);
        edge();
        if (taken) unit_->command_valid = 0;
        if (cycle++ - spoke > QUIET_CYCLES) return LORA_ERR_WATCHDOG;
    } while (!unit_->done);
    *cycles += cycle;
    call->nonfinite_count = unit_->nonfinite_count;
    call->nonfinite_row = unit_->nonfinite_count ? step_row(call, unit_->nonfinite_row) : ~0u;
    return memory.failed() ? LORA_ERR_ADDRESS : LORA_OK;
}
