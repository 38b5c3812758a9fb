/* What a matrix command's weight_type says of its blocks: for host, kernels and firmware. */
#ifndef LORA_WEIGHT_BLOCKS_H
#define LORA_WEIGHT_BLOCKS_H

#include <stdint.h>

#include "abi.h"

#define LORA_GGUF_TYPE(kind) (LORA_WEIGHT_GGUF | (kind) << LORA_WEIGHT_GROUP_SHIFT)

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
    default: return 0;
    }
}

/* K is a multiple of so many columns, a power of two. */
static inline uint32_t lora_weight_unit(uint32_t weight_type) {
    uint32_t high = weight_type >> LORA_WEIGHT_GROUP_SHIFT;
    if ((weight_type & LORA_WEIGHT_TYPE_MASK) != LORA_WEIGHT_GGUF) return 1u << high;
    return high < LORA_GGUF_Q4_K ? 32 : 256;
}

#endif
