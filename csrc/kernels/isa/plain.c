/* Inner loops in plain C: what every machine runs. docs/numbers.md, 1.1, 3.3. */
#include <math.h>

#include "exponential.h"
#include "gguf.h"
#include "half.h"
#include "segments.h"
#include "variant.h"

static int always(void) { return 1; }

static void halves_to_floats(const uint16_t *halves, uint32_t count, float *floats) {
    for (uint32_t i = 0; i < count; i++) floats[i] = half_to_float(halves[i]);
}

static uint32_t floats_to_halves(const float *floats, uint32_t count, uint16_t *halves) {
    uint32_t bad = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint16_t half = float_to_half(floats[i]);
        bad += (half & 0x7c00) == 0x7c00;
        halves[i] = half;
    }
    return bad;
}

static void pack_panel(const uint16_t *const rows[4], uint32_t columns, float *x) {
    for (uint32_t k = 0; k < columns; k++, x += PANEL_ROWS)
        for (uint32_t i = 0; i < 4; i++) x[i] = half_to_float(rows[i][k]);
}

/* sum[32] of one row goes on; its values are `stride` apart. */
static void add_steps(const float *values, uint32_t stride, uint32_t steps, const float *weights,
                      float *sum) {
    for (uint32_t k = 0; k < steps; k++, values += stride)
        for (uint32_t n = 0; n < LORA_BLOCK_N; n++)
            sum[n] = sum[n] + values[0] * weights[k * LORA_BLOCK_N + n];
}

static void panel(const struct panel_step *step) {
    if (step->halves)
        for (uint32_t k = 0; k < step->steps; k++)
            halves_to_floats(step->halves + (uint64_t)k * step->halves_step, LORA_BLOCK_N,
                             step->weights + k * LORA_BLOCK_N);
    for (uint32_t row = 0; row < step->rows; row++) {
        float *sum = step->sums + row * LORA_BLOCK_N;
        if (step->begins) memset(sum, 0, LORA_BLOCK_N * sizeof(float));
        add_steps(step->x + row, PANEL_ROWS, step->steps, step->weights, sum);
        for (uint32_t join = 0; join < step->joins; join++, sum -= step->level)
            for (uint32_t n = 0; n < LORA_BLOCK_N; n++)
                (sum - step->level)[n] = (sum - step->level)[n] + sum[n];
    }
}

static void row(const float *x, const uint32_t starts[9], const uint16_t *const *blocks,
                const uint16_t *const *next, float out[32]) {
    float work[LORA_BLOCK_K * LORA_BLOCK_N], parts[LORA_SEGMENTS][LORA_BLOCK_N] = {{0}};
    (void)next;
    for (uint32_t s = 0; s < LORA_SEGMENTS; s++)
        for (uint32_t k = starts[s], steps; k < starts[s + 1]; k += steps) {
            steps = LORA_BLOCK_K - k % LORA_BLOCK_K;
            steps = starts[s + 1] - k < steps ? starts[s + 1] - k : steps;
            halves_to_floats(blocks[k / LORA_BLOCK_K] + k % LORA_BLOCK_K * LORA_BLOCK_N,
                             steps * LORA_BLOCK_N, work);
            add_steps(x + k, 1, steps, work, parts[s]);
        }
    for (uint32_t n = 0; n < LORA_BLOCK_N; n++) {
        float sums[LORA_SEGMENTS];
        for (uint32_t s = 0; s < LORA_SEGMENTS; s++) sums[s] = parts[s][n];
        out[n] = segment_tree(sums);
    }
}

static void scores(const float *q, const uint16_t *k, uint32_t head_dim, float out[32]) {
    float sums[LORA_SEGMENTS][LORA_TILE_POSITIONS] = {{0}};
    float values[LORA_TILE_POSITIONS];
    for (uint32_t s = 0; s < LORA_SEGMENTS; s++) {
        uint32_t end = segment_start(head_dim, s + 1);
        for (uint32_t d = segment_start(head_dim, s); d < end; d++) {
            halves_to_floats(k + (uint64_t)d * LORA_TILE_POSITIONS, LORA_TILE_POSITIONS, values);
            for (uint32_t i = 0; i < LORA_TILE_POSITIONS; i++)
                sums[s][i] = sums[s][i] + q[d] * values[i];
        }
    }
    for (uint32_t i = 0; i < LORA_TILE_POSITIONS; i++) {
        float parts[LORA_SEGMENTS];
        for (uint32_t s = 0; s < LORA_SEGMENTS; s++) parts[s] = sums[s][i];
        out[i] = segment_tree(parts);
    }
}

static void gelu(float *x, uint32_t count, const float *a, const float *b) {
    for (uint32_t i = 0; i < count; i++) x[i] = gelu32(x[i], a, b);
}

static void swiglu(float *x, const float *z, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) x[i] = silu32(x[i]) * z[i];
}

static void swiglu_clamped(float *x, const float *z, uint32_t count, float limit, float alpha) {
    for (uint32_t i = 0; i < count; i++) x[i] = swiglu_clamped32(x[i], z[i], limit, alpha);
}

static float scale(float *s, uint32_t count, float factor) {
    float max = -INFINITY;
    for (uint32_t i = 0; i < count; i++) {
        s[i] = s[i] * factor;
        max = s[i] > max ? s[i] : max;
    }
    return max;
}

static float cap(float *s, uint32_t count, float limit) {
    float max = -INFINITY, inverse = 1.0f / limit;
    for (uint32_t i = 0; i < count; i++) {
        s[i] = tanh32(s[i] * inverse) * limit;
        max = s[i] > max ? s[i] : max;
    }
    return max;
}

static float slope(float *s, uint32_t count, float by, int32_t first) {
    float max = -INFINITY;
    for (uint32_t i = 0; i < count; i++) {
        s[i] = s[i] + by * (float)(first + (int32_t)i);
        max = s[i] > max ? s[i] : max;
    }
    return max;
}

static void exps(float *x, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) x[i] = exp32(x[i]);
}

static void exponentials(const float *s, uint32_t count, float max, uint16_t *e) {
    for (uint32_t i = 0; i < count; i++) e[i] = float_to_half(exp32(s[i] - max));
}

static void weigh(const float *e, const uint16_t *const *v, uint32_t count, uint32_t head_dim,
                  float *sum) {
    for (uint32_t d = 0; d < head_dim; d++) {
        float tile = 0.0f;
        for (uint32_t i = 0; i < count; i++) tile = tile + e[i] * half_to_float(v[i][d]);
        sum[d] = sum[d] + tile;
    }
}

#define COLUMNS_TARGET
#include "columns.h"
#include "delta.h"
#include "scan.h"

const struct lora_variant lora_variant_plain = {
    .name = "plain",
    .supported = always,
    .gguf = &lora_gguf_plain,
    .halves_to_floats = halves_to_floats,
    .floats_to_halves = floats_to_halves,
    .row = row,
    .row_cached = row,
    .scale_columns = scale_columns,
    .delta = delta,
    .scan = scan,
    .add_biases = add_biases,
    .pack_panel = pack_panel,
    .panel = panel,
    .scores = scores,
    .gelu = gelu,
    .swiglu = swiglu,
    .swiglu_clamped = swiglu_clamped,
    .scale = scale,
    .cap = cap,
    .slope = slope,
    .exps = exps,
    .exponentials = exponentials,
    .weigh = weigh,
};
