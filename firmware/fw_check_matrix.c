/* REGISTER: a matmul: its weights in their banks, scales, bias, x and y. */
#include "fw.h"
#include "lora/weight_blocks.h"

/* Weights whose x is INT8, with a scale a column. */
static uint32_t is_scaled(const struct lora_matrix *matrix) {
    uint32_t type = matrix->weight_type & LORA_WEIGHT_TYPE_MASK;
    return type == LORA_WEIGHT_INT8 || type == LORA_WEIGHT_W4A8;
}

/* Blocks of a matrix in one of its banks: requests first .. first+requests-1, of which this bank
 * has each one that is `i` modulo the number of banks (abi.h, weight blocks). */
static uint32_t check_weight_bank(struct fw *fw, const struct lora_matrix *matrix, uint32_t i,
                                  uint32_t blocks) {
    uint32_t size = lora_weight_block_bytes(matrix->weight_type);
    uint32_t banks = matrix->bank_count, merge = matrix->merge;
    uint32_t requests = (blocks + merge - 1) / merge;
    uint32_t last = matrix->first + requests - 1;
    uint32_t low = matrix->first + (i + banks - matrix->first % banks) % banks;
    uint32_t high, tail = merge;
    uint64_t request_bytes = (uint64_t)merge * size;
    uint64_t start, bytes;
    if (low > last) return FW_MORE;
    high = last - (last + banks - i) % banks;
    if (high == last) tail = blocks - (requests - 1) * merge;
    start = (uint64_t)matrix->weight_line * LORA_LINE_BYTES + low / banks * request_bytes;
    bytes = (high / banks - low / banks) * request_bytes + (uint64_t)tail * size;
    return fw_check_range(fw, matrix->bank_first + i, start, bytes);
}

uint32_t fw_check_blocks(struct fw *fw, const struct lora_matrix *matrix, uint32_t blocks) {
    if (blocks == 0) return FW_MORE;
    if (matrix->merge == 0) return fw_fail(fw, LORA_ERR_SIZE, 0, 1);
    if (matrix->bank_count == 0 || matrix->bank_first + matrix->bank_count > LORA_MAX_BANKS) {
        fw->error.bank = matrix->bank_first;
        return fw_fail(fw, LORA_ERR_ADDRESS, matrix->bank_count, LORA_MAX_BANKS);
    }
    for (uint32_t i = 0; i < matrix->bank_count; i++)
        if (check_weight_bank(fw, matrix, i, blocks) == FW_FAILED) return FW_FAILED;
    return FW_MORE;
}

uint32_t fw_check_weights(struct fw *fw, const struct lora_matrix *matrix) {
    uint32_t blocks = (matrix->k + LORA_BLOCK_K - 1) / LORA_BLOCK_K *
                      ((matrix->n + LORA_BLOCK_N - 1) / LORA_BLOCK_N);
    return fw_check_blocks(fw, matrix, blocks);
}

/* FP16 bias, or FP32 scales in whole lines and the bias behind them. */
static uint32_t check_bias(struct fw *fw, const struct lora_matrix *matrix) {
    uint64_t start = (uint64_t)matrix->bias_line * LORA_LINE_BYTES;
    uint64_t bytes = matrix->flags & LORA_FLAG_NO_BIAS ? 0 : matrix->n * 2;
    if (is_scaled(matrix)) bytes += fw_padded(matrix->n * 4);
    else if (matrix->flags & LORA_FLAG_NO_BIAS)
        return fw_fail(fw, LORA_ERR_OPCODE, matrix->flags, 0);
    else if (matrix->bias_bank == LORA_NO_BANK) return FW_MORE;
    return fw_check_range(fw, matrix->bias_bank, start, bytes);
}

uint32_t fw_check_matrix(struct fw *fw, const struct lora_list *list,
                         const struct lora_matrix *matrix) {
    uint32_t x_bytes = is_scaled(matrix) ? 1 : 2, y_bytes = matrix->y_type == LORA_FP32 ? 4 : 2;
    struct fw_buffer x = {matrix->x_bank, matrix->x_offset, matrix->x_stride, matrix->k * x_bytes,
                          x_bytes};
    struct fw_buffer y = {matrix->y_bank, matrix->y_offset, matrix->y_stride, matrix->n * y_bytes,
                          y_bytes};
    if (fw_check_dimension(fw, matrix->k, 1) == FW_FAILED ||
        fw_check_dimension(fw, matrix->n, 0) == FW_FAILED)
        return FW_FAILED;
    if (lora_weight_block_bytes(matrix->weight_type) == 0)
        return fw_fail(fw, LORA_ERR_OPCODE, matrix->weight_type, LORA_WEIGHT_FP16);
    if ((matrix->weight_type == LORA_WEIGHT_INT8 && matrix->k > LORA_MAX_INT8_K) ||
        matrix->k & (lora_weight_unit(matrix->weight_type) - 1))
        return fw_fail(fw, LORA_ERR_SIZE, matrix->k, LORA_MAX_INT8_K);
    if (matrix->y_type != LORA_FP16 && matrix->y_type != LORA_FP32)
        return fw_fail(fw, LORA_ERR_OPCODE, matrix->y_type, LORA_FP16);
    if (matrix->flags & LORA_FLAG_ROW_SCALES) {
        if (!is_scaled(matrix)) return fw_fail(fw, LORA_ERR_OPCODE, matrix->flags, 0);
        x.row_bytes = fw_padded(x.row_bytes) + (uint32_t)sizeof(struct lora_row_scale);
        x.align = 4;
    }
    if (fw_check_buffer(fw, list, x) == FW_FAILED || fw_check_buffer(fw, list, y) == FW_FAILED ||
        fw_check_weights(fw, matrix) == FW_FAILED ||
        fw_check_matrix_adapter(fw, list, matrix) == FW_FAILED)
        return FW_FAILED;
    return check_bias(fw, matrix);
}
