/* Inner loops on weights in GGUF's blocks, as boards hold them (abi.h). A weight is
 * FP16(v*scale - minimum); the product is exact in FP32, so an FMA changes nothing.
 * docs/numbers.md, 6.11. */
#ifndef LORA_KERNELS_GGUF_H
#define LORA_KERNELS_GGUF_H

#include <stdint.h>

#include "lora/weight_blocks.h"

struct gguf_tile { /* as lora_variant.row has them; `count` blocks, K is whole units */
    const float *x;
    const uint32_t *starts;
    const uint8_t *const *blocks, *const *next;
    uint32_t count;
};

/* A block, and of a pair of blocks (lora_gguf_is_pair) the first and the second, one of which it
 * is; else all are the block. */
struct gguf_pair {
    const uint8_t *block, *first, *second;
};

struct lora_gguf { /* `kind`: enum lora_gguf_block */
    /* One block as FP16: wide[128][32]. */
    void (*widen)(uint32_t kind, const struct gguf_pair *block, uint16_t *wide);
    /* One row times one column tile, tree included: out[32]. */
    void (*row)(uint32_t kind, const struct gguf_tile *tile, float *out);
};

extern const struct lora_gguf lora_gguf_plain;
extern const struct lora_gguf lora_gguf_avx2;
extern const struct lora_gguf lora_gguf_avx512;

/* How a block of a kind is made; constants where `kind` is one. */
static inline int gguf_is_bytes(uint32_t kind) { return kind == LORA_GGUF_Q8_0; }

/* Block `number` along K. */
static inline struct gguf_pair gguf_pair_of(uint32_t kind, const uint8_t *const *blocks,
                                            uint32_t number) {
    const uint32_t other = lora_gguf_is_pair(kind) ? 1u : 0;
    return (struct gguf_pair){blocks[number], blocks[number & ~other], blocks[number | other]};
}

static inline uint32_t gguf_block_bytes(uint32_t kind) {
    return lora_weight_block_bytes(LORA_GGUF_TYPE(kind));
}

#define GGUF_HIGH (LORA_BLOCK_K / 2 * LORA_BLOCK_N) /* where what is above four bits begins */

/* Where the scales begin. */
static inline uint32_t gguf_scales(uint32_t kind) {
    return gguf_is_bytes(kind)         ? LORA_BLOCK_K * LORA_BLOCK_N
           : lora_gguf_has_fifth(kind) ? GGUF_HIGH + LORA_BLOCK_K / 8 * LORA_BLOCK_N
           : lora_gguf_has_upper(kind) ? GGUF_HIGH + LORA_BLOCK_K / 4 * LORA_BLOCK_N
                                       : GGUF_HIGH;
}

/* Where the FP16 number that a pair shares lies in each of its blocks, behind 6-bit scales. */
static inline uint32_t gguf_shared(uint32_t kind) { return gguf_scales(kind) + 6 * LORA_BLOCK_N; }

#endif
