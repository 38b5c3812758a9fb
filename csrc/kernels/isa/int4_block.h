/* What is stored behind the values of a block of 4-bit weights (abi.h, weight blocks).
 * docs/numbers.md, 6.3, 6.4. */
#ifndef LORA_KERNELS_INT4_BLOCK_H
#define LORA_KERNELS_INT4_BLOCK_H

#include <stdint.h>

#include "lora/abi.h"

/* FP16 scales of the 32 columns, for the group that row k of the block is in. */
static inline const uint16_t *int4_scales(const uint8_t *block, uint32_t group, uint32_t k) {
    const uint8_t *scales = block + LORA_BLOCK_BYTES_INT4;
    return (const uint16_t *)(const void *)(scales + k / group * LORA_BLOCK_N * 2);
}

/* Their zero points, two to a byte, the even column low. */
static inline const uint8_t *int4_zeros(const uint8_t *block, uint32_t group, uint32_t k) {
    const uint8_t *zeros = block + LORA_BLOCK_BYTES_INT4 + LORA_BLOCK_K / group * LORA_BLOCK_N * 2;
    return zeros + k / group * (LORA_BLOCK_N / 2);
}

/* Where the part ends that begins at `first`: with its group, its segment or its block. */
static inline uint32_t int4_part_end(uint32_t first, uint32_t segment_end, uint32_t group) {
    uint32_t end = (first / group + 1) * group;
    return end < segment_end ? end : segment_end;
}

#endif
