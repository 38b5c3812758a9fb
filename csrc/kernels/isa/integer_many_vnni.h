/* Matmuls of many rows of INT8 activations with dpbusd, whose weights are unsigned bytes: they are
 * made once for all rows. After integer_matrix.h, INT8_MANY and INT4_MANY. */
#ifndef LORA_KERNELS_INTEGER_MANY_VNNI_H
#define LORA_KERNELS_INTEGER_MANY_VNNI_H

#define MANY_AT_ONCE INT8_ROWS
/* Weights and sums of 64 rows, and x of those at work, stay in the first cache. */
#define BLOCKS_AT_ONCE 2
#define BLOCK_UNITS (LORA_BLOCK_K / LORA_UNIT_COLUMNS)

LANES_INLINE void add_unit(const uint8_t *bytes, const int8_t *x, uint64_t stride, const int rows,
                           vec *sum) {
    for (int q = 0; q < UNIT_QUADS; q++, bytes += TILE_BYTES, x += 4) {
        vec w[VECTORS];
        UNROLLED
        for (int v = 0; v < VECTORS; v++) w[v] = load_vec(bytes + v * VEC_BYTES);
        UNROLLED
        for (int i = 0; i < rows * VECTORS; i++) {
            const int8_t *values = x + (uint64_t)(i / VECTORS) * stride;
            sum[i] = dot_nibbles(sum[i], w[i % VECTORS], quad(values));
        }
    }
}

#include "integer_many.h"

/* Columns of K that all rows read before the next ones. */
struct stretch {
    uint32_t first, units;
    const uint8_t *prefetch[BLOCKS_AT_ONCE];
    _Alignas(LORA_LINE_BYTES) uint8_t bytes[BLOCKS_AT_ONCE * QUADS * TILE_BYTES];
};

LANES_INLINE void prepare_block(const uint8_t *block, uint8_t *bytes) {
    for (int q = 0; q < QUADS; q++, block += QUAD_BYTES, bytes += TILE_BYTES) {
        UNROLLED
        for (int v = 0; v < VECTORS; v++)
            store_vec(bytes + v * VEC_BYTES, dot_weights(load_vec(block + v * VEC_BYTES)));
    }
}

/* Some units of K of `rows` rows, a constant: sums[rows][32] go on. What is read later is fetched
 * on the way: all at once it would be waited for. */
LANES_INLINE void add_bytes(const struct integer_tile *t, const struct stretch *k, uint32_t row,
                            const int rows, int32_t *sums) {
    vec sum[MANY_AT_ONCE * VECTORS];
    const int8_t *x = t->x + row * t->stride + k->first;
    const bool last = row + (uint32_t)rows == t->rows;
    const int8_t *then = last ? t->x + k->first + k->units * LORA_UNIT_COLUMNS
                              : x + (uint64_t)rows * t->stride;
    sums += row * LORA_BLOCK_N;
    UNROLLED
    for (int i = 0; i < rows * VECTORS; i++) sum[i] = load_vec((uint8_t *)(sums + i * LANES));
    for (uint32_t u = 0; u < k->units; u++, x += LORA_UNIT_COLUMNS) {
        if (row == 0)
            for (uint32_t q = 0; q < UNIT_QUADS; q++)
                fetch_quad(k->prefetch[u / BLOCK_UNITS] +
                           (u % BLOCK_UNITS * UNIT_QUADS + q) * QUAD_BYTES);
        fetch_rows(then, t->stride, rows, u, k->units);
        add_unit(k->bytes + u * UNIT_QUADS * TILE_BYTES, x, t->stride, rows, sum);
    }
    UNROLLED
    for (int i = 0; i < rows * VECTORS; i++) store_vec((uint8_t *)(sums + i * LANES), sum[i]);
}

LANES_TARGET static void int8_many(const struct integer_tile *t) {
    _Alignas(LORA_LINE_BYTES) int32_t sums[LORA_MAX_ROWS * LORA_BLOCK_N];
    struct stretch k;
    for (uint32_t row = 0; row < t->rows; row++)
        for (int v = 0; v < VECTORS; v++)
            store_vec((uint8_t *)(sums + row * LORA_BLOCK_N + v * LANES),
                      dot_start(t->totals[row]));
    for (uint32_t b = 0, count; b < t->block_count; b += count) {
        count = t->block_count - b < BLOCKS_AT_ONCE ? t->block_count - b : BLOCKS_AT_ONCE;
        k.first = b * LORA_BLOCK_K;
        k.units = count * BLOCK_UNITS;
        for (uint32_t i = 0; i < count; i++) {
            k.prefetch[i] = integer_prefetched(t, b + i + INT8_PREFETCH);
            prepare_block(t->blocks[b + i], k.bytes + i * QUADS * TILE_BYTES);
        }
        EACH_RUN(t->rows, add_bytes(t, &k, row, COUNT, sums));
    }
    for (uint32_t i = 0; i < t->rows * LORA_BLOCK_N; i += LANES)
        store_floats(t->out + i, to_floats(load_vec((uint8_t *)(sums + i))));
}

LANES_TARGET static void int8_tile(const struct integer_tile *t) {
    if (t->rows >= INT8_MANY) int8_many(t);
    else int8(t);
}

LANES_TARGET static void int4_tile(const struct integer_tile *t) {
    if (t->rows >= INT4_MANY) int4_many(t);
    else int4(t);
}

#endif
