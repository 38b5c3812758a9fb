/* Matmuls of INT8 activations, for any width of vectors. Included once by each implementation,
 * after it has defined:
 *   LANES_TARGET, LANES_INLINE           attributes of functions
 *   LANES                                columns of a vector; INT8_ROWS, INT4_ROWS rows at once
 *   INT8_BLOCKS, INT4_BLOCKS             of a single row: integer_row.h
 *   vec, float_vec, dot_x                vectors of INT32, of FP32, and four values of x
 *   load_vec(p), zero_vec(), add_vec(a, b), low_nibbles(w), high_nibbles(w)
 *   to_floats(v), mul, sub, add, splat(f), zero_floats(), store_floats(p, f), load_floats(p)
 *   load_halves(p), bytes_to_floats(p)   LANES values as FP32
 *   dot_start(sum), dot_weights(w), dot_values(p), dot_signed(acc, w, x)
 *   quad(p), dot_nibbles(acc, w, x)      the sum begins at 0
 * dot_start gives what a signed sum begins with, from the sum of all its x. */
#include <immintrin.h>
#include <stdbool.h>

#include "int4_block.h"
#include "integer.h"
#include "unrolled.h"

#define VECTORS (LORA_BLOCK_N / LANES)
#define QUAD_BYTES (LORA_BLOCK_N * 4) /* four steps of K, or eight of 4-bit weights */
#define QUADS (LORA_BLOCK_K / 4)
#define UNIT_QUADS (LORA_UNIT_COLUMNS / 4)
#define VEC_BYTES (LANES * 4)
#define TILE_BYTES (VECTORS * VEC_BYTES) /* a quad of all columns */
/* Blocks that are prefetched, into the second cache: it waits for more lines at once than the
 * first one can. */
#define INT8_PREFETCH 4
#define INT4_PREFETCH 6

LANES_INLINE void fetch_quad(const uint8_t *prefetch) {
    _mm_prefetch((const char *)prefetch, _MM_HINT_T1);
    _mm_prefetch((const char *)prefetch + 64, _MM_HINT_T1);
}

/* One quad of each of `rows` rows, a constant. One loop over all sums, without a loop inside, is
 * unrolled early enough for them to become registers. */
LANES_INLINE void add_quad(const uint8_t *weights, const int8_t *x, uint64_t stride, const int rows,
                           vec *sum) {
    vec w[VECTORS];
    UNROLLED
    for (int v = 0; v < VECTORS; v++) w[v] = dot_weights(load_vec(weights + v * LANES * 4));
    UNROLLED
    for (int i = 0; i < rows * VECTORS; i++)
        sum[i] = dot_signed(sum[i], w[i % VECTORS],
                            dot_values(x + (uint64_t)(i / VECTORS) * stride));
}

LANES_INLINE void start_sums(const int32_t *totals, const int rows, vec *sum) {
    UNROLLED
    for (int i = 0; i < rows * VECTORS; i++) sum[i] = dot_start(totals[i / VECTORS]);
}

LANES_INLINE void store_rows(float *out, const int rows, const vec *sum) {
    UNROLLED
    for (int i = 0; i < rows * VECTORS; i++) store_floats(out + i * LANES, to_floats(sum[i]));
}

LANES_INLINE void int8_rows(const struct integer_tile *t, uint32_t row, const int rows,
                            const int fetching) {
    vec sum[INT8_ROWS * VECTORS];
    const uint64_t stride = t->stride;
    const int8_t *x = t->x + row * stride;
    start_sums(t->totals + row, rows, sum);
    for (uint32_t b = 0; b < t->block_count; b++) {
        const uint8_t *block = t->blocks[b], *prefetch = integer_prefetched(t, b + INT8_PREFETCH);
        for (int q = 0; q < QUADS; q++, x += 4) {
            if (fetching) fetch_quad(prefetch + q * QUAD_BYTES);
            add_quad(block + q * QUAD_BYTES, x, stride, rows, sum);
        }
    }
    store_rows(t->out + row * LORA_BLOCK_N, rows, sum);
}

/* The sum of x over columns first..end-1 of a row, whole units. */
LANES_INLINE float sum_of_x(const struct integer_tile *t, uint32_t row, uint32_t first,
                            uint32_t end) {
    const int32_t *units = t->units + (uint64_t)row * t->unit_count;
    int32_t sum = 0;
    for (uint32_t u = first / LORA_UNIT_COLUMNS; u < end / LORA_UNIT_COLUMNS; u++) sum += units[u];
    return (float)sum;
}

/* Of a group: by column. */
struct int4_scaling {
    float_vec scale[VECTORS], zero[VECTORS];
};

LANES_INLINE void read_scaling(const struct integer_tile *t, const uint8_t *block, uint32_t k,
                               struct int4_scaling *scaling) {
    const uint16_t *scales = int4_scales(block, t->group, k);
    uint8_t zeros[LORA_BLOCK_N];
    spread_zeros(int4_zeros(block, t->group, k), zeros);
    for (int v = 0; v < VECTORS; v++) {
        scaling->scale[v] = load_halves(scales + v * LANES);
        scaling->zero[v] = bytes_to_floats(zeros + v * LANES);
    }
}

/* Each step is exact in FP32 but for the multiplication by the scale. */
LANES_INLINE float_vec scaled(const struct int4_scaling *scaling, int v, vec low, vec high,
                              float_vec of_x) {
    float_vec sum = to_floats(add_vec(low, high));
    return mul(sub(sum, mul(scaling->zero[v], of_x)), scaling->scale[v]);
}

/* The tree over eight parts that lie `stride` apart. */
LANES_INLINE void add_segments(const float *parts, uint32_t stride, float *out) {
    for (int v = 0; v < VECTORS; v++) {
        float_vec p[LORA_SEGMENTS];
        for (uint32_t s = 0; s < LORA_SEGMENTS; s++)
            p[s] = load_floats(parts + s * stride + v * LANES);
        store_floats(out + v * LANES, add(add(add(p[0], p[1]), add(p[2], p[3])),
                                          add(add(p[4], p[5]), add(p[6], p[7]))));
    }
}

#include "integer_row.h"

LANES_TARGET static void int8(const struct integer_tile *t) {
    uint32_t row = 0;
    if (t->rows == 1) {
        int8_row(t);
        return;
    }
    for (; row + INT8_ROWS <= t->rows; row += INT8_ROWS)
        if (row == 0) int8_rows(t, row, INT8_ROWS, 1);
        else int8_rows(t, row, INT8_ROWS, 0);
    for (; INT8_ROWS > 8 && row + 8 <= t->rows; row += 8)
        int8_rows(t, row, INT8_ROWS > 8 ? 8 : 1, 1);
    for (; INT8_ROWS > 4 && row + 4 <= t->rows; row += 4)
        int8_rows(t, row, INT8_ROWS > 4 ? 4 : 1, 1);
    if (t->rows - row == 3) int8_rows(t, row, INT8_ROWS > 3 ? 3 : 1, 1);
    else if (t->rows - row == 2) int8_rows(t, row, INT8_ROWS > 2 ? 2 : 1, 1);
    else if (t->rows - row == 1) int8_rows(t, row, 1, 1);
}

/* Columns first..end-1 of K, within one group: total goes on. */
LANES_INLINE void int4_part(const struct integer_tile *t, uint32_t row, const int rows,
                            uint32_t first, uint32_t end, float_vec total[INT4_ROWS][VECTORS]) {
    vec low[INT4_ROWS][VECTORS], high[INT4_ROWS][VECTORS];
    uint32_t b = first / LORA_BLOCK_K, k = first % LORA_BLOCK_K;
    const uint8_t *block = t->blocks[b], *prefetch = integer_prefetched(t, b + INT4_PREFETCH);
    const int8_t *x = t->x + row * t->stride + first;
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < VECTORS; v++) low[r][v] = high[r][v] = zero_vec();
    for (uint32_t q = k / 8; q < (k + end - first) / 8; q++, x += 8) {
        fetch_quad(prefetch + q * QUAD_BYTES);
        for (int v = 0; v < VECTORS; v++) {
            vec weights = load_vec(block + q * QUAD_BYTES + v * LANES * 4);
            vec w_low = low_nibbles(weights), w_high = high_nibbles(weights);
            for (int r = 0; r < rows; r++) {
                const int8_t *values = x + (uint64_t)r * t->stride;
                low[r][v] = dot_nibbles(low[r][v], w_low, quad(values));
                high[r][v] = dot_nibbles(high[r][v], w_high, quad(values + 4));
            }
        }
    }
    struct int4_scaling scaling;
    fetch_quad((const uint8_t *)int4_scales(prefetch, t->group, k));
    read_scaling(t, block, k, &scaling);
    for (int r = 0; r < rows; r++) {
        float_vec of_x = splat(sum_of_x(t, row + (uint32_t)r, first, end));
        for (int v = 0; v < VECTORS; v++)
            total[r][v] = add(total[r][v], scaled(&scaling, v, low[r][v], high[r][v], of_x));
    }
}

LANES_INLINE void int4_rows(const struct integer_tile *t, uint32_t row, const int rows) {
    float parts[LORA_SEGMENTS][INT4_ROWS][LORA_BLOCK_N];
    for (uint32_t s = 0; s < LORA_SEGMENTS; s++) {
        float_vec total[INT4_ROWS][VECTORS];
        for (int r = 0; r < rows; r++)
            for (int v = 0; v < VECTORS; v++) total[r][v] = zero_floats();
        for (uint32_t k = t->starts[s], end; k < t->starts[s + 1]; k = end) {
            end = int4_part_end(k, t->starts[s + 1], t->group);
            int4_part(t, row, rows, k, end, total);
        }
        for (int r = 0; r < rows; r++)
            for (int v = 0; v < VECTORS; v++) store_floats(parts[s][r] + v * LANES, total[r][v]);
    }
    for (int r = 0; r < rows; r++)
        add_segments(parts[0][r], INT4_ROWS * LORA_BLOCK_N,
                     t->out + (row + (uint32_t)r) * LORA_BLOCK_N);
}

LANES_TARGET static void int4(const struct integer_tile *t) {
    uint32_t row = 0;
    if (t->rows == 1 && int4_has_whole_blocks(t)) {
        int4_row(t);
        return;
    }
    for (; row + INT4_ROWS <= t->rows; row += INT4_ROWS) int4_rows(t, row, INT4_ROWS);
    for (; row < t->rows; row++) int4_rows(t, row, 1);
}
