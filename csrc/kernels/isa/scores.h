/* The scores of attention: a row times a block of keys; see streams.h. docs/numbers.md, 3.8. */
#ifndef LORA_KERNELS_SCORES_H
#define LORA_KERNELS_SCORES_H

#include "streams.h"

/* q.k of a block of 32 positions, for heads of at most two units: each is a segment, and the sums
 * of the others are +0. */
KERNEL_INLINE void score_units(const float *q, const uint16_t *k, uint32_t head_dim, float *out) {
    uint32_t first = head_dim < LORA_UNIT_COLUMNS ? head_dim : LORA_UNIT_COLUMNS;
    float_vec sums[2 * VECTORS];
    for (int i = 0; i < 2 * VECTORS; i++) sums[i] = zero_floats();
    add_columns(ROW_ALONE, q, first, k, sums);
    add_columns(ROW_ALONE, q + first, head_dim - first, k + first * LORA_TILE_POSITIONS,
                sums + VECTORS);
    for (int v = 0; v < VECTORS; v++)
        store_floats(out + v * LANES, add(sums[v], sums[VECTORS + v]));
}

KERNEL static void scores(const float *q, const uint16_t *k, uint32_t head_dim, float out[32]) {
    if (head_dim <= 2 * LORA_UNIT_COLUMNS) {
        score_units(q, k, head_dim, out);
        return;
    }
    float_vec sums[LORA_SEGMENTS * VECTORS];
    for (uint32_t s = 0; s < LORA_SEGMENTS; s++) {
        uint32_t d = segment_start(head_dim, s);
        for (int v = 0; v < VECTORS; v++) sums[s * VECTORS + (uint32_t)v] = zero_floats();
        add_columns(ROW_ALONE, q + d, segment_start(head_dim, s + 1) - d,
                    k + (uint64_t)d * LORA_TILE_POSITIONS, sums + s * VECTORS);
    }
    for (int v = 0; v < VECTORS; v++) store_floats(out + v * LANES, tree(sums + v, VECTORS));
}

#endif
