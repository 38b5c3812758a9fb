/* REGISTER: a matmul by chosen experts: all experts' weights, scales and biases in their banks, x,
 * y, the choice. */
#include "fw.h"
#include "lora/weight_blocks.h"

#define MAX_BLOCKS 0x10000000u /* of all experts: keeps request numbers within 32 bits */

static uint32_t check_range(struct fw *fw, uint32_t value, uint32_t low, uint32_t high) {
    if (value >= low && value <= high) return FW_MORE;
    return fw_fail(fw, LORA_ERR_SIZE, value, value < low ? low : high);
}

/* Experts' requests follow each other, so their blocks are those of one long matrix. */
static uint32_t check_weights(struct fw *fw, const struct lora_experts *c) {
    struct lora_matrix all = {.bank_first = c->bank_first,
                              .bank_count = c->bank_count,
                              .merge = c->merge,
                              .weight_type = c->weight_type,
                              .weight_line = c->weight_line,
                              .first = c->first};
    uint32_t k_blocks = (c->k + LORA_BLOCK_K - 1) / LORA_BLOCK_K;
    uint32_t blocks = k_blocks * ((c->n + LORA_BLOCK_N - 1) / LORA_BLOCK_N);
    if (check_range(fw, c->merge, 1, 0xff) == FW_FAILED) return FW_FAILED;
    blocks = (blocks + c->merge - 1) / c->merge * c->merge;
    if ((uint64_t)blocks * c->experts > MAX_BLOCKS)
        return fw_fail(fw, LORA_ERR_SIZE, blocks, MAX_BLOCKS);
    return fw_check_blocks(fw, &all, blocks * c->experts);
}

/* Weights whose x is INT8, with a scale a column. */
static uint32_t is_scaled(const struct lora_experts *c) {
    uint32_t type = c->weight_type & LORA_WEIGHT_TYPE_MASK;
    return type == LORA_WEIGHT_INT8 || type == LORA_WEIGHT_W4A8;
}

static uint32_t check_type(struct fw *fw, const struct lora_experts *c) {
    if (lora_weight_block_bytes(c->weight_type) == 0)
        return fw_fail(fw, LORA_ERR_OPCODE, c->weight_type, LORA_WEIGHT_FP16);
    if ((c->weight_type == LORA_WEIGHT_INT8 && c->k > LORA_MAX_INT8_K) ||
        c->k & (lora_weight_unit(c->weight_type) - 1))
        return fw_fail(fw, LORA_ERR_SIZE, c->k, LORA_MAX_INT8_K);
    if ((c->flags & LORA_FLAG_ROW_SCALES) && !is_scaled(c))
        return fw_fail(fw, LORA_ERR_OPCODE, c->flags, 0);
    return FW_MORE;
}

static uint32_t check_scales(struct fw *fw, const struct lora_experts *c) {
    uint64_t start = (uint64_t)c->scale_line * LORA_LINE_BYTES;
    uint32_t bytes = is_scaled(c) ? fw_padded(c->n * 4) : 0;
    if (c->flags & LORA_FLAG_EXPERT_BIAS) bytes += fw_padded(c->n * 2);
    if (bytes == 0) return FW_MORE;
    return fw_check_range(fw, c->scale_bank, start, (uint64_t)c->experts * bytes);
}

uint32_t fw_check_experts(struct fw *fw, const struct lora_list *list,
                          const struct lora_experts *c) {
    uint32_t combines = c->flags & LORA_FLAG_COMBINE;
    struct fw_buffer x = {LORA_BANK_ONCHIP, c->x_offset, c->x_stride, 0, 2};
    struct fw_buffer y = {LORA_BANK_ONCHIP, c->y_offset, c->y_stride, 0, 2};
    struct fw_buffer chosen = {LORA_BANK_ONCHIP, c->chosen_offset, c->chosen_stride, 0, 4};
    if (fw_check_dimension(fw, c->k, 1) == FW_FAILED ||
        fw_check_dimension(fw, c->n, 0) == FW_FAILED ||
        check_range(fw, c->experts, 1, LORA_MAX_EXPERTS) == FW_FAILED ||
        check_range(fw, c->chosen, 1, LORA_MAX_CHOSEN) == FW_FAILED ||
        check_range(fw, c->chosen, 1, c->experts) == FW_FAILED)
        return FW_FAILED;
    if (check_type(fw, c) == FW_FAILED) return FW_FAILED;
    x.align = is_scaled(c) ? 1 : 2;
    x.row_bytes = c->k * x.align * (combines ? c->chosen : 1u);
    if (c->flags & LORA_FLAG_ROW_SCALES) {
        x.row_bytes = fw_padded(x.row_bytes) + (uint32_t)sizeof(struct lora_row_scale);
        x.align = 4;
    }
    y.row_bytes = c->n * 2 * (combines ? 1u : c->chosen);
    chosen.row_bytes = c->chosen * (uint32_t)sizeof(struct lora_chosen);
    if (fw_check_buffer(fw, list, x) == FW_FAILED || fw_check_buffer(fw, list, y) == FW_FAILED ||
        fw_check_buffer(fw, list, chosen) == FW_FAILED)
        return FW_FAILED;
    if (check_scales(fw, c) == FW_FAILED) return FW_FAILED;
    return check_weights(fw, c);
}
