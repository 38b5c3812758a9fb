/* What matmuls read of their weights: all blocks, or those of the experts that rows have chosen. */
#include "board.h"
#include "lora/weight_blocks.h"

#include <string.h>

static uint32_t rows_of(const struct lora_unit_call *call) {
    return call->command->flags & LORA_FLAG_SELECTED ? call->state->selected_count
                                                     : call->state->row_count;
}

void emu_chosen(const struct lora_unit_call *call, bool chosen[LORA_MAX_EXPERTS]) {
    const struct lora_experts *c = (const struct lora_experts *)(const void *)call->command;
    memset(chosen, 0, LORA_MAX_EXPERTS * sizeof *chosen);
    for (uint32_t i = 0; i < rows_of(call); i++)
        for (uint32_t slot = 0; slot < c->chosen; slot++) {
            struct lora_chosen found;
            uint64_t at = c->chosen_offset + (uint64_t)i * c->chosen_stride + slot * sizeof found;
            if (at + sizeof found > call->bank_bytes[LORA_BANK_ONCHIP]) return;
            memcpy(&found, call->banks[LORA_BANK_ONCHIP] + at, sizeof found);
            if (found.expert < LORA_MAX_EXPERTS) chosen[found.expert] = true;
        }
}

static uint64_t block_bytes(uint32_t k, uint32_t n, uint32_t weight_type) {
    uint64_t blocks = (uint64_t)((k + LORA_BLOCK_K - 1) / LORA_BLOCK_K) *
                      ((n + LORA_BLOCK_N - 1) / LORA_BLOCK_N);
    return blocks * lora_weight_block_bytes(weight_type);
}

uint64_t emu_weights_read(const struct lora_unit_call *call) {
    const void *record = call->command;
    const struct lora_matrix *matrix = record;
    const struct lora_experts *experts = record;
    bool chosen[LORA_MAX_EXPERTS];
    uint64_t read = 0;
    if (rows_of(call) == 0) return 0;
    switch (call->command->opcode) {
    case LORA_CMD_MATRIX: return block_bytes(matrix->k, matrix->n, matrix->weight_type);
    case LORA_CMD_EXPERTS:
        emu_chosen(call, chosen);
        for (uint32_t expert = 0; expert < experts->experts; expert++)
            if (chosen[expert]) read += block_bytes(experts->k, experts->n, experts->weight_type);
        return read;
    default: return 0;
    }
}
