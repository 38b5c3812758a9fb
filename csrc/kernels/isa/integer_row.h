/* Matmuls of a single row of INT8 activations, for any width of vectors. The weights come from
 * memory: blocks lie in different parts of it and are read side by side, so that a wait for one is
 * none for the others. Included by integer_matrix.h, after
 *   INT8_BLOCKS, INT4_BLOCKS   blocks at once, as many as there are registers for sums of;
 *                              INT4_BLOCKS 1 where that is all
 */

#define MOST_GROUPS (LORA_BLOCK_K / 32) /* of a block: the smallest have 32 columns */

/* Blocks b, b + 1, ... of `blocks`, a constant, each with its own sums. */
LANES_INLINE void add_blocks(const struct integer_tile *t, uint32_t b, const int blocks,
                             vec sum[][VECTORS]) {
    const int8_t *x = t->x + (uint64_t)b * LORA_BLOCK_K;
    const uint8_t *prefetch[INT8_BLOCKS];
    for (int i = 0; i < blocks; i++)
        prefetch[i] = integer_prefetched(t, b + (uint32_t)i + INT8_PREFETCH);
    for (int q = 0; q < QUADS; q++, x += 4) {
        UNROLLED
        for (int i = 0; i < blocks; i++) fetch_quad(prefetch[i] + q * QUAD_BYTES);
        UNROLLED
        for (int i = 0; i < blocks; i++)
            add_quad(t->blocks[b + (uint32_t)i] + q * QUAD_BYTES, x + i * LORA_BLOCK_K, 0, 1,
                     sum[i]);
    }
}

LANES_INLINE void int8_row(const struct integer_tile *t) {
    vec sum[INT8_BLOCKS][VECTORS];
    uint32_t b = 0;
    start_sums(t->totals, 1, sum[0]);
    UNROLLED
    for (int i = VECTORS; i < INT8_BLOCKS * VECTORS; i++)
        sum[i / VECTORS][i % VECTORS] = zero_vec();
    for (; b + INT8_BLOCKS <= t->block_count; b += INT8_BLOCKS) add_blocks(t, b, INT8_BLOCKS, sum);
    for (; b < t->block_count; b++) add_blocks(t, b, 1, sum);
    UNROLLED
    for (int i = VECTORS; i < INT8_BLOCKS * VECTORS; i++)
        sum[0][i % VECTORS] = add_vec(sum[0][i % VECTORS], sum[i / VECTORS][i % VECTORS]);
    store_rows(t->out, 1, sum[0]);
}

/* Whether each segment is whole blocks: then all are a multiple of eight, and so of INT4_BLOCKS. */
_Static_assert(LORA_SEGMENTS % INT4_BLOCKS == 0, "no block is left over");
LANES_INLINE bool int4_has_whole_blocks(const struct integer_tile *t) {
    return INT4_BLOCKS > 1 && t->k % (LORA_SEGMENTS * LORA_BLOCK_K) == 0;
}

/* Of INT4_BLOCKS blocks from b on: (sum - zero*sum of x)*scale of the group that column k of each
 * block is in. */
LANES_INLINE void int4_groups(const struct integer_tile *t, uint32_t b, uint32_t k,
                              float group[INT4_BLOCKS][LORA_BLOCK_N]) {
    vec low[INT4_BLOCKS][VECTORS], high[INT4_BLOCKS][VECTORS];
    const uint8_t *prefetch[INT4_BLOCKS];
    const int8_t *x = t->x + (uint64_t)b * LORA_BLOCK_K + k;
    for (int i = 0; i < INT4_BLOCKS; i++)
        prefetch[i] = integer_prefetched(t, b + (uint32_t)i + INT4_BLOCKS);
    UNROLLED
    for (int i = 0; i < INT4_BLOCKS * VECTORS; i++)
        low[i / VECTORS][i % VECTORS] = high[i / VECTORS][i % VECTORS] = zero_vec();
    for (uint32_t q = k / 8; q < (k + t->group) / 8; q++, x += 8) {
        UNROLLED
        for (int i = 0; i < INT4_BLOCKS; i++) fetch_quad(prefetch[i] + q * QUAD_BYTES);
        UNROLLED
        for (int i = 0; i < INT4_BLOCKS * VECTORS; i++) {
            const int at = i / VECTORS, v = i % VECTORS;
            vec w = load_vec(t->blocks[b + (uint32_t)at] + q * QUAD_BYTES + v * VEC_BYTES);
            low[at][v] = dot_nibbles(low[at][v], low_nibbles(w), quad(x + at * LORA_BLOCK_K));
            high[at][v] = dot_nibbles(high[at][v], high_nibbles(w),
                                      quad(x + at * LORA_BLOCK_K + 4));
        }
    }
    UNROLLED
    for (int i = 0; i < INT4_BLOCKS; i++) {
        const uint32_t first = (b + (uint32_t)i) * LORA_BLOCK_K + k;
        const float_vec of_x = splat(sum_of_x(t, 0, first, first + t->group));
        struct int4_scaling scaling;
        fetch_quad((const uint8_t *)int4_scales(prefetch[i], t->group, k));
        read_scaling(t, t->blocks[b + (uint32_t)i], k, &scaling);
        UNROLLED
        for (int v = 0; v < VECTORS; v++)
            store_floats(group[i] + v * LANES, scaled(&scaling, v, low[i][v], high[i][v], of_x));
    }
}

/* Groups are added in the order of K. */
LANES_INLINE void int4_row(const struct integer_tile *t) {
    float parts[LORA_SEGMENTS][LORA_BLOCK_N];
    float groups[MOST_GROUPS][INT4_BLOCKS][LORA_BLOCK_N];
    const uint32_t of_segment = t->block_count / LORA_SEGMENTS, count = LORA_BLOCK_K / t->group;
    memset(parts, 0, sizeof parts);
    for (uint32_t b = 0; b < t->block_count; b += INT4_BLOCKS) {
        for (uint32_t g = 0; g < count; g++) int4_groups(t, b, g * t->group, groups[g]);
        for (uint32_t i = 0; i < INT4_BLOCKS * count; i++) {
            float *part = parts[(b + i / count) / of_segment];
            for (int v = 0; v < LORA_BLOCK_N; v += LANES)
                store_floats(part + v, add(load_floats(part + v),
                                           load_floats(groups[i % count][i / count] + v)));
        }
    }
    add_segments(parts[0], LORA_BLOCK_N, t->out);
}
