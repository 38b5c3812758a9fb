/* Matmuls of many rows of INT8 activations with 4-bit weights: these are expanded once for all
 * rows. Sums of a part are exact, so the bytes are those of integer_matrix.h. Included once by each
 * implementation, after that one and after it has defined:
 *   MANY_AT_ONCE                           rows that share a weight in a register
 *   add_unit(bytes, x, stride, rows, sum)  sum[rows][VECTORS] += a unit of K; `rows` a constant */
#ifndef LORA_KERNELS_INTEGER_MANY_H
#define LORA_KERNELS_INTEGER_MANY_H

/* CALL for runs of COUNT rows from `row` on, a constant of at most MANY_AT_ONCE. Sixteen rows go as
 * eights: four, behind twelve, have too few sums to keep the multipliers busy. */
#define RUNS_OF(most, rows, CALL)                                                                  \
    do {                                                                                           \
        enum { COUNT = MANY_AT_ONCE < (most) ? MANY_AT_ONCE : (most) };                            \
        for (; row + COUNT <= (rows) && !(COUNT == 12 && (rows) - row == 16); row += COUNT) CALL;  \
    } while (0)
#define EACH_RUN(rows, CALL)                                                                       \
    do {                                                                                           \
        uint32_t row = 0;                                                                          \
        RUNS_OF(12, rows, CALL);                                                                   \
        RUNS_OF(8, rows, CALL);                                                                    \
        RUNS_OF(4, rows, CALL);                                                                    \
        RUNS_OF(2, rows, CALL);                                                                    \
        RUNS_OF(1, rows, CALL);                                                                    \
    } while (0)

/* Columns first..end-1 of K, within one group, of all rows: what they share. */
struct part {
    uint32_t first, end;
    float scales[LORA_BLOCK_N], zeros[LORA_BLOCK_N];
    const uint8_t *prefetch;                                                /* what is read later */
    _Alignas(LORA_LINE_BYTES) uint8_t bytes[LORA_BLOCK_K / 4 * TILE_BYTES]; /* [quad][vector] */
};

LANES_INLINE void expand_part(const struct integer_tile *t, struct part *part) {
    uint32_t b = part->first / LORA_BLOCK_K, k = part->first % LORA_BLOCK_K;
    uint32_t last = k + part->end - part->first;
    const uint8_t *block = t->blocks[b], *prefetch = integer_prefetched(t, b + INT4_PREFETCH);
    uint8_t *bytes = part->bytes, zeros[LORA_BLOCK_N];
    part->prefetch = prefetch + k / 8 * QUAD_BYTES;
    for (uint32_t q = k / 8; q < last / 8; q++, bytes += 2 * TILE_BYTES) {
        UNROLLED
        for (int v = 0; v < VECTORS; v++) {
            vec weights = load_vec(block + q * QUAD_BYTES + v * VEC_BYTES);
            store_vec(bytes + v * VEC_BYTES, low_nibbles(weights));
            store_vec(bytes + TILE_BYTES + v * VEC_BYTES, high_nibbles(weights));
        }
    }
    const uint16_t *scales = int4_scales(block, t->group, k);
    fetch_quad((const uint8_t *)int4_scales(prefetch, t->group, k));
    spread_zeros(int4_zeros(block, t->group, k), zeros);
    for (int v = 0; v < VECTORS; v++) {
        store_floats(part->scales + v * LANES, load_halves(scales + v * LANES));
        store_floats(part->zeros + v * LANES, bytes_to_floats(zeros + v * LANES));
    }
}

/* The values of x that runs of rows read after this one, a share with each unit of K: in the first
 * cache by then. */
LANES_INLINE void fetch_rows(const int8_t *x, uint64_t stride, const int rows, uint32_t unit,
                             uint32_t units) {
    for (uint32_t i = unit * (uint32_t)rows / units; i < (unit + 1) * (uint32_t)rows / units; i++)
        for (uint32_t k = 0; k < units * LORA_UNIT_COLUMNS; k += LORA_LINE_BYTES)
            _mm_prefetch((const char *)x + i * stride + k, _MM_HINT_T0);
}

/* `rows` rows, a constant: totals[rows][32] go on. The steps are those of int4_part. */
LANES_INLINE void add_part(const struct integer_tile *t, const struct part *part, uint32_t row,
                           const int rows, float *totals) {
    vec sum[MANY_AT_ONCE * VECTORS];
    const int8_t *x = t->x + row * t->stride + part->first;
    const uint8_t *bytes = part->bytes;
    UNROLLED
    for (int i = 0; i < rows * VECTORS; i++) sum[i] = zero_vec();
    const uint32_t units = (part->end - part->first) / LORA_UNIT_COLUMNS;
    const bool last = row + (uint32_t)rows == t->rows;
    const int8_t *then = last ? t->x + part->end : x + (uint64_t)rows * t->stride;
    for (uint32_t u = 0; u < units; u++) {
        for (uint32_t q = 0; row == 0 && q < UNIT_QUADS / 2; q++)
            fetch_quad(part->prefetch + (u * UNIT_QUADS / 2 + q) * QUAD_BYTES);
        fetch_rows(then, t->stride, rows, u, units);
        add_unit(bytes, x, t->stride, rows, sum);
        bytes += UNIT_QUADS * TILE_BYTES;
        x += LORA_UNIT_COLUMNS;
    }
    UNROLLED
    for (int r = 0; r < rows; r++) {
        float_vec of_x = splat(sum_of_x(t, row + (uint32_t)r, part->first, part->end));
        UNROLLED
        for (int v = 0; v < VECTORS; v++, totals += LANES) {
            float_vec zero = load_floats(part->zeros + v * LANES);
            float_vec scale = load_floats(part->scales + v * LANES);
            float_vec all = to_floats(sum[r * VECTORS + v]);
            store_floats(totals, add(load_floats(totals), mul(sub(all, mul(zero, of_x)), scale)));
        }
    }
}

LANES_INLINE void add_rows(const struct integer_tile *t, const struct part *part, float *totals) {
    EACH_RUN(t->rows, add_part(t, part, row, COUNT, totals + row * LORA_BLOCK_N));
}

LANES_TARGET static void int4_many(const struct integer_tile *t) {
    float parts[LORA_SEGMENTS][LORA_MAX_ROWS * LORA_BLOCK_N];
    const uint32_t floats = t->rows * LORA_BLOCK_N;
    struct part part;
    for (uint32_t s = 0; s < LORA_SEGMENTS; s++) {
        memset(parts[s], 0, floats * sizeof(float));
        for (part.first = t->starts[s]; part.first < t->starts[s + 1]; part.first = part.end) {
            part.end = int4_part_end(part.first, t->starts[s + 1], t->group);
            expand_part(t, &part);
            add_rows(t, &part, parts[s]);
        }
    }
    for (uint32_t i = 0; i < floats; i += LANES) {
        float_vec p[LORA_SEGMENTS];
        for (int s = 0; s < LORA_SEGMENTS; s++) p[s] = load_floats(parts[s] + i);
        store_floats(t->out + i, add(add(add(p[0], p[1]), add(p[2], p[3])),
                                     add(add(p[4], p[5]), add(p[6], p[7]))));
    }
}

#endif
