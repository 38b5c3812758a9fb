/* What a matrix command's weight_type says of its blocks: for host, kernels and firmware. */
#ifndef LORA_WEIGHT_BLOCKS_H
#define LORA_WEIGHT_BLOCKS_H

#include <stdint.h>

#include "abi.h"

#define LORA_GGUF_TYPE(kind) (LORA_WEIGHT_GGUF | (kind) << LORA_WEIGHT_GROUP_SHIFT)

/* How a block of an enum lora_gguf_block is made. */
static inline int lora_gguf_is_super(uint32_t kind) { /* scales are integers times FP16 numbers */
    return kind >= LORA_GGUF_Q4_K && kind <= LORA_GGUF_K_MIXED;
}
static inline int lora_gguf_is_pair(uint32_t kind) { /* two blocks along K share d and dmin */
    return kind == LORA_GGUF_Q4_K || kind == LORA_GGUF_Q5_K;
}
static inline int lora_gguf_has_fifth(uint32_t kind) {
    return kind == LORA_GGUF_Q5_0 || kind == LORA_GGUF_Q5_1 || kind == LORA_GGUF_Q5_K;
}
static inline int lora_gguf_has_upper(uint32_t kind) {
    return kind == LORA_GGUF_Q6_K || kind == LORA_GGUF_K_MIXED;
}
static inline int lora_gguf_has_minima(uint32_t kind) {
    return (kind >= LORA_GGUF_Q4_1 && kind <= LORA_GGUF_Q5_K) || kind == LORA_GGUF_K_MIXED;
}
static inline uint32_t lora_gguf_offset(uint32_t kind) {
    if (kind == LORA_GGUF_Q4_0) return 8;
    return kind == LORA_GGUF_Q5_0 ? 16 : lora_gguf_has_upper(kind) ? 32 : 0;
}

/* What the four bits of MXFP4 mean: E2M1 in halves. -0 is 0. */
#define LORA_GGUF_E2M1 {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12}
#define LORA_MXFP4_LEAST 104 /* of a group's e on boards: its weights are multiples of 2^-24 */

/* What the four bits of IQ4_NL mean. */
#define LORA_GGUF_CODEBOOK                                                                         \
    {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113}

/* Bytes of a block of 128 x 32; 0: no such type. */
static inline uint32_t lora_weight_block_bytes(uint32_t weight_type) {
    switch (weight_type) {
    case LORA_WEIGHT_FP16: return LORA_BLOCK_BYTES_FP16;
    case LORA_WEIGHT_INT8: return LORA_BLOCK_BYTES_INT8;
    case LORA_WEIGHT_W4A8 | 5 << LORA_WEIGHT_GROUP_SHIFT:
    case LORA_WEIGHT_W4A16 | 5 << LORA_WEIGHT_GROUP_SHIFT: return LORA_BLOCK_BYTES_INT4_32;
    case LORA_WEIGHT_W4A8 | 6 << LORA_WEIGHT_GROUP_SHIFT:
    case LORA_WEIGHT_W4A16 | 6 << LORA_WEIGHT_GROUP_SHIFT: return LORA_BLOCK_BYTES_INT4_64;
    case LORA_WEIGHT_W4A8 | 7 << LORA_WEIGHT_GROUP_SHIFT:
    case LORA_WEIGHT_W4A16 | 7 << LORA_WEIGHT_GROUP_SHIFT: return LORA_BLOCK_BYTES_INT4_128;
    case LORA_GGUF_TYPE(LORA_GGUF_Q8_0): return LORA_BLOCK_BYTES_Q8_0;
    case LORA_GGUF_TYPE(LORA_GGUF_Q5_0): return LORA_BLOCK_BYTES_Q5_0;
    case LORA_GGUF_TYPE(LORA_GGUF_Q4_1): return LORA_BLOCK_BYTES_Q4_1;
    case LORA_GGUF_TYPE(LORA_GGUF_Q5_1): return LORA_BLOCK_BYTES_Q5_1;
    case LORA_GGUF_TYPE(LORA_GGUF_Q4_K): return LORA_BLOCK_BYTES_Q4_K;
    case LORA_GGUF_TYPE(LORA_GGUF_Q5_K): return LORA_BLOCK_BYTES_Q5_K;
    case LORA_GGUF_TYPE(LORA_GGUF_Q6_K): return LORA_BLOCK_BYTES_Q6_K;
    case LORA_GGUF_TYPE(LORA_GGUF_K_MIXED): return LORA_BLOCK_BYTES_K_MIXED;
    case LORA_GGUF_TYPE(LORA_GGUF_Q4_0): return LORA_BLOCK_BYTES_Q4_0;
    case LORA_GGUF_TYPE(LORA_GGUF_IQ4_NL): return LORA_BLOCK_BYTES_IQ4_NL;
    case LORA_GGUF_TYPE(LORA_GGUF_MXFP4): return LORA_BLOCK_BYTES_MXFP4;
    default: return 0;
    }
}

/* K is a multiple of so many columns, a power of two. */
static inline uint32_t lora_weight_unit(uint32_t weight_type) {
    uint32_t high = weight_type >> LORA_WEIGHT_GROUP_SHIFT;
    if ((weight_type & LORA_WEIGHT_TYPE_MASK) != LORA_WEIGHT_GGUF) return 1u << high;
    return lora_gguf_is_super(high) ? 256 : 32;
}

/* Columns of a head of HEAD_SUMS and RMS_ROW. */
static inline uint32_t lora_head_width(const struct lora_vector *v, const struct lora_list *list) {
    return v->b_line && !(v->flags & LORA_FLAG_ONE_PLUS) ? v->b_line : list->head_dim;
}

/* The matrix that has an EMBED's tokens as columns (LORA_FLAG_TOKEN_BLOCKS). */
static inline struct lora_matrix lora_token_matrix(const struct lora_vector *v,
                                                   uint32_t vocabulary) {
    struct lora_matrix found = {.opcode = LORA_CMD_MATRIX,
                                .layer = v->layer,
                                .bank_first = v->a_bank,
                                .bank_count = (uint8_t)v->x_offset,
                                .merge = (uint8_t)(v->x_offset >> 8),
                                .weight_type = (uint8_t)(v->x_offset >> 16),
                                .weight_line = v->a_line,
                                .first = (uint16_t)v->x_stride,
                                .k = v->columns,
                                .n = vocabulary};
    return found;
}

/* Where block `j` of a matrix lies: the bank is returned. bank_count and merge are not 0. */
static inline uint32_t lora_block_place(const struct lora_matrix *m, uint64_t j, uint64_t *offset) {
    uint64_t request = m->first + j / m->merge;
    uint64_t index = request / m->bank_count * m->merge + j % m->merge;
    *offset = (uint64_t)m->weight_line * LORA_LINE_BYTES +
              index * lora_weight_block_bytes(m->weight_type);
    return m->bank_first + (uint32_t)(request % m->bank_count);
}

#endif
