/* Integer inner loops in plain C: what every machine runs. */
#include "exponential.h"
#include "half.h"
#include "int4_block.h"
#include "integer.h"
#include "segments.h"

#define N LORA_BLOCK_N

static void sum_units(const int8_t *x, uint32_t units, int32_t *sums) {
    for (uint32_t u = 0; u < units; u++, x += LORA_UNIT_COLUMNS) {
        int32_t sum = 0;
        for (uint32_t i = 0; i < LORA_UNIT_COLUMNS; i++) sum += x[i];
        sums[u] = sum;
    }
}

static void int8(const struct integer_tile *tile) {
    for (uint32_t row = 0; row < tile->rows; row++) {
        int32_t sums[N] = {0};
        const int8_t *x = tile->x + row * tile->stride;
        for (uint32_t b = 0; b < tile->block_count; b++, x += LORA_BLOCK_K)
            for (uint32_t k = 0; k < LORA_BLOCK_K; k++)
                for (uint32_t n = 0; n < N; n++)
                    sums[n] += x[k] * (int8_t)tile->blocks[b][k / 4 * 4 * N + n * 4 + k % 4];
        for (uint32_t n = 0; n < N; n++) tile->out[row * N + n] = (float)sums[n];
    }
}

static int32_t nibble(const uint8_t *block, uint32_t k, uint32_t n) {
    uint8_t pair = block[k / 8 * 4 * N + n * 4 + k % 4];
    return k % 8 < 4 ? pair & 15 : pair >> 4;
}

static int32_t zero_of(const uint8_t *zeros, uint32_t n) {
    return n % 2 ? zeros[n / 2] >> 4 : zeros[n / 2] & 15;
}

/* Columns first..end-1 of K, within one group: sums goes on. */
static void add_part(const struct integer_tile *tile, uint32_t row, uint32_t first, uint32_t end,
                     float *sums) {
    const uint8_t *block = tile->blocks[first / LORA_BLOCK_K];
    const int8_t *x = tile->x + row * tile->stride;
    const uint16_t *scales = int4_scales(block, tile->group, first % LORA_BLOCK_K);
    const uint8_t *zeros = int4_zeros(block, tile->group, first % LORA_BLOCK_K);
    for (uint32_t n = 0; n < N; n++) {
        int32_t sum = 0, of_x = 0;
        for (uint32_t k = first; k < end; k++) {
            sum += x[k] * nibble(block, k % LORA_BLOCK_K, n);
            of_x += x[k];
        }
        float part = (float)(sum - zero_of(zeros, n) * of_x) * half_to_float(scales[n]);
        sums[n] = sums[n] + part;
    }
}

static void int4(const struct integer_tile *tile) {
    for (uint32_t row = 0; row < tile->rows; row++) {
        float parts[LORA_SEGMENTS][N] = {{0}};
        for (uint32_t s = 0; s < LORA_SEGMENTS; s++)
            for (uint32_t k = tile->starts[s], end; k < tile->starts[s + 1]; k = end) {
                end = int4_part_end(k, tile->starts[s + 1], tile->group);
                add_part(tile, row, k, end, parts[s]);
            }
        for (uint32_t n = 0; n < N; n++) {
            float sums[LORA_SEGMENTS];
            for (uint32_t s = 0; s < LORA_SEGMENTS; s++) sums[s] = parts[s][n];
            tile->out[row * N + n] = segment_tree(sums);
        }
    }
}

static void widen(const uint8_t *block, uint32_t group, uint16_t *wide) {
    for (uint32_t k = 0; k < LORA_BLOCK_K; k++) {
        const uint16_t *scales = int4_scales(block, group, k);
        const uint8_t *zeros = int4_zeros(block, group, k);
        for (uint32_t n = 0; n < N; n++) {
            float value = (float)(nibble(block, k, n) - zero_of(zeros, n));
            wide[k * N + n] = float_to_half(value * half_to_float(scales[n]));
        }
    }
}

/* Nearest even integer of a value below 2^22: the sum has no bits for fractions. */
static int32_t nearest(float value) { return (int32_t)((value + 0x1.8p+23f) - 0x1.8p+23f); }

static uint32_t quantize(const uint16_t *x, uint32_t count, float inverse, int8_t *y) {
    uint32_t bad = 0;
    for (uint32_t i = 0; i < count; i++) {
        float value = half_to_float(x[i]) * inverse;
        bad += value != value;
        value = value > 127.0f ? 127.0f : value < -127.0f ? -127.0f : value;
        y[i] = value != value ? 0 : (int8_t)nearest(value);
    }
    return bad;
}

static uint16_t max_magnitude(const uint16_t *x, uint32_t count) {
    uint16_t max = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint16_t size = x[i] & 0x7fff;
        size = size > 0x7c00 ? 0 : size;
        max = size > max ? size : max;
    }
    return max;
}

static void score_block(const int8_t *q, const int8_t *k, uint32_t head_dim, float scale,
                        float *s) {
    int32_t sums[LORA_TILE_POSITIONS] = {0};
    for (uint32_t d = 0; d < head_dim; d++, k += LORA_TILE_POSITIONS)
        for (uint32_t i = 0; i < LORA_TILE_POSITIONS; i++) sums[i] += q[d] * k[i];
    for (uint32_t i = 0; i < LORA_TILE_POSITIONS; i++) s[i] = (float)sums[i] * scale;
}

static void scores(const struct integer_tiles *k, const int8_t *const *q, const int32_t *totals,
                   float scale, float *const *s) {
    (void)totals;
    for (uint32_t t = 0; t < k->tiles; t++)
        for (uint32_t r = 0; r < k->rows; r++)
            score_block(q[r], k->blocks[t], k->head_dim, scale, s[r] + t * LORA_TILE_POSITIONS);
}

static int32_t weights(const float *s, uint32_t count, float max, uint8_t *e) {
    int32_t sum = 0;
    for (uint32_t i = 0; i < count; i++) {
        float value = 127.0f * exp32(s[i] - max);
        e[i] = (uint8_t)nearest(value);
        sum += e[i];
    }
    return sum;
}

static void weigh(const struct integer_tiles *v, const uint8_t *const *e, int32_t *const *sums) {
    for (uint32_t i = 0; i < v->tiles * LORA_TILE_POSITIONS; i++) {
        const int8_t *block = v->blocks[i / LORA_TILE_POSITIONS];
        const int8_t *values = block + (uint64_t)(i % LORA_TILE_POSITIONS) * v->head_dim;
        for (uint32_t r = 0; r < v->rows; r++)
            for (uint32_t d = 0; d < v->head_dim; d++) sums[r][d] += e[r][i] * values[d];
    }
}

const struct lora_integer lora_integer_plain = {
    .sum_units = sum_units,
    .int8 = int8,
    .int4 = int4,
    .widen = widen,
    .quantize = quantize,
    .max_magnitude = max_magnitude,
    .scores = scores,
    .weights = weights,
    .weigh = weigh,
};
