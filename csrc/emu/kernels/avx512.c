/* Inner loops for AVX-512: twice the lanes for matrix products and attention; the rest is AVX2's.
 * FMA only ever joins an FP16 x FP16 product, which is exact in FP32, to its sum. */
#if defined(__x86_64__)

#include <immintrin.h>

#include "half.h"
#include "segments.h"
#include "variant.h"

#define AVX512 __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx2,f16c,fma")))
#define AVX512_INLINE                                                                              \
    __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx2,f16c,fma"), always_inline))     \
    static inline
#define LANES 16
#define VECTORS (LORA_BLOCK_N / LANES)
#define STREAMS 8
#define AHEAD 1 /* units of 2 KiB that each stream is fetched ahead */

static int supported(void) {
    return lora_variant_avx2.supported() && __builtin_cpu_supports("avx512f") &&
           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512dq");
}

AVX512_INLINE __m512 load_halves(const uint16_t *halves) {
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)halves));
}

#include "avx512_panel.h"

AVX512_INLINE const uint16_t *unit_at(const uint16_t *const *blocks, uint32_t k) {
    return blocks[k / LORA_BLOCK_K] + k % LORA_BLOCK_K * LORA_BLOCK_N;
}

/* Up to one unit of one segment, each weight converted on the way. */
AVX512_INLINE void add_unit(const float *x, uint32_t steps, const uint16_t *weights,
                            __m512 *sum) {
    for (uint32_t k = 0; k < steps; k++, weights += LORA_BLOCK_N) {
        __m512 value = _mm512_set1_ps(x[k]);
        for (int v = 0; v < VECTORS; v++)
            sum[v] = _mm512_fmadd_ps(value, load_halves(weights + v * LANES), sum[v]);
    }
}

/* A unit of several segments at once: they lie in different places of memory, and what comes after
 * each is fetched meanwhile, so that more requests are under way than one stream has. */
AVX512_INLINE void add_units(const float *const *x, const uint16_t *const *weights,
                             const uint16_t *const *ahead, __m512 sum[STREAMS][VECTORS]) {
    for (uint32_t k = 0; k < LORA_UNIT_COLUMNS; k++)
        for (int i = 0; i < STREAMS; i++) {
            __m512 value = _mm512_set1_ps(x[i][k]);
            _mm_prefetch((const char *)(ahead[i] + k * LORA_BLOCK_N), _MM_HINT_T1);
            for (int v = 0; v < VECTORS; v++)
                sum[i][v] = _mm512_fmadd_ps(
                    value, load_halves(weights[i] + k * LORA_BLOCK_N + v * LANES), sum[i][v]);
        }
}

/* Sums of segments s .. s+STREAMS-1. After them those from `following` on are read, in `next`. */
AVX512_INLINE void add_segments(const float *x, const uint32_t *starts, uint32_t s,
                                const uint16_t *const *blocks, uint32_t following,
                                const uint16_t *const *next, __m512 sum[STREAMS][VECTORS]) {
    uint32_t units = common_units(starts, s, STREAMS), whole = units * LORA_UNIT_COLUMNS;
    uint32_t ahead_units = units < AHEAD ? units : AHEAD;
    for (int i = 0; i < STREAMS; i++)
        for (int v = 0; v < VECTORS; v++)
            sum[i][v] = _mm512_setzero_ps();
    for (uint32_t u = 0; u < units; u++) {
        const uint16_t *weights[STREAMS], *ahead[STREAMS];
        const float *values[STREAMS];
        uint32_t at = u * LORA_UNIT_COLUMNS, then = at + ahead_units * LORA_UNIT_COLUMNS;
        for (uint32_t i = 0; i < STREAMS; i++) {
            values[i] = x + starts[s + i] + at;
            weights[i] = unit_at(blocks, starts[s + i] + at);
            ahead[i] = u + ahead_units < units
                           ? unit_at(blocks, starts[s + i] + then)
                           : unit_at(next, starts[following + i] + then - whole);
        }
        add_units(values, weights, ahead, sum);
    }
    for (uint32_t i = 0; i < STREAMS; i++)
        for (uint32_t at = starts[s + i] + whole; at < starts[s + i + 1];
             at += LORA_UNIT_COLUMNS) {
            uint32_t left = starts[s + i + 1] - at;
            add_unit(x + at, left < LORA_UNIT_COLUMNS ? left : LORA_UNIT_COLUMNS,
                     unit_at(blocks, at), sum[i]);
        }
}

AVX512_INLINE __m512 tree(const __m512 sums[LORA_SEGMENTS][VECTORS], int v) {
    __m512 a = _mm512_add_ps(_mm512_add_ps(sums[0][v], sums[1][v]),
                             _mm512_add_ps(sums[2][v], sums[3][v]));
    __m512 b = _mm512_add_ps(_mm512_add_ps(sums[4][v], sums[5][v]),
                             _mm512_add_ps(sums[6][v], sums[7][v]));
    return _mm512_add_ps(a, b);
}

AVX512 static void row(const float *x, const uint32_t starts[9], const uint16_t *const *blocks,
                       const uint16_t *const *next, float out[32]) {
    __m512 sums[LORA_SEGMENTS][VECTORS];
    for (uint32_t s = 0; s < LORA_SEGMENTS; s += STREAMS) {
        uint32_t following = (s + STREAMS) % LORA_SEGMENTS;
        add_segments(x, starts, s, blocks, following, following ? blocks : next, sums + s);
    }
    for (int v = 0; v < VECTORS; v++)
        _mm512_storeu_ps(out + v * LANES, tree(sums, v));
}

AVX512 static void halves_to_floats(const uint16_t *halves, uint32_t count, float *floats) {
    uint32_t i = 0;
    for (; i + 2 * LANES <= count; i += 2 * LANES) {
        _mm512_storeu_ps(floats + i, load_halves(halves + i));
        _mm512_storeu_ps(floats + i + LANES, load_halves(halves + i + LANES));
    }
    lora_variant_avx2.halves_to_floats(halves + i, count - i, floats + i);
}

/* Heads of at most two units: each is a segment, and the sums of the others are +0. */
AVX512_INLINE void score_units(const float *q, const uint16_t *k, uint32_t head_dim, float *out) {
    uint32_t first = head_dim < LORA_UNIT_COLUMNS ? head_dim : LORA_UNIT_COLUMNS;
    __m512 sum[2][VECTORS];
    for (int v = 0; v < VECTORS; v++)
        sum[0][v] = sum[1][v] = _mm512_setzero_ps();
    add_unit(q, first, k, sum[0]);
    add_unit(q + first, head_dim - first, k + first * LORA_TILE_POSITIONS, sum[1]);
    for (int v = 0; v < VECTORS; v++)
        _mm512_storeu_ps(out + v * LANES, _mm512_add_ps(sum[0][v], sum[1][v]));
}

AVX512 static void scores(const float *q, const uint16_t *k, uint32_t head_dim, float out[32]) {
    if (head_dim <= 2 * LORA_UNIT_COLUMNS) {
        score_units(q, k, head_dim, out);
        return;
    }
    __m512 sums[LORA_SEGMENTS][VECTORS];
    for (uint32_t s = 0; s < LORA_SEGMENTS; s++) {
        __m512 sum[VECTORS] = {_mm512_setzero_ps(), _mm512_setzero_ps()};
        uint32_t end = segment_start(head_dim, s + 1);
        for (uint32_t d = segment_start(head_dim, s); d < end; d++) {
            __m512 value = _mm512_set1_ps(q[d]);
            const uint16_t *keys = k + (uint64_t)d * LORA_TILE_POSITIONS;
            for (int v = 0; v < VECTORS; v++)
                sum[v] = _mm512_fmadd_ps(value, load_halves(keys + v * LANES), sum[v]);
        }
        for (int v = 0; v < VECTORS; v++)
            sums[s][v] = sum[v];
    }
    for (int v = 0; v < VECTORS; v++)
        _mm512_storeu_ps(out + v * LANES, tree(sums, v));
}

AVX512 static void weigh_columns(const float *e, const uint16_t *const *v, uint32_t count,
                                 uint32_t d, float *sum) {
    __m512 tile[VECTORS] = {_mm512_setzero_ps(), _mm512_setzero_ps()};
    for (uint32_t i = 0; i < count; i++) {
        __m512 weight = _mm512_set1_ps(e[i]);
        for (int j = 0; j < VECTORS; j++)
            tile[j] = _mm512_fmadd_ps(weight, load_halves(v[i] + d + j * LANES), tile[j]);
    }
    for (int j = 0; j < VECTORS; j++) {
        float *target = sum + d + j * LANES;
        _mm512_storeu_ps(target, _mm512_add_ps(_mm512_loadu_ps(target), tile[j]));
    }
}

static void lay_rows(const uint16_t *const rows[4], uint32_t columns, float *x) {
    lora_variant_avx2.lay_rows(rows, columns, x);
}

AVX512 static uint32_t floats_to_halves(const float *floats, uint32_t count, uint16_t *halves) {
    const __m256i magnitude = _mm256_set1_epi16(0x7fff), infinity = _mm256_set1_epi16(0x7c00);
    const __m256i largest = _mm256_set1_epi16(0x7bff), nan = _mm256_set1_epi16(LORA_FP16_NAN);
    uint32_t i = 0, bad = 0;
    for (; i + LANES <= count; i += LANES) {
        __m256i half =
            _mm512_cvtps_ph(_mm512_loadu_ps(floats + i), _MM_FROUND_TO_NEAREST_INT);
        __m256i size = _mm256_and_si256(half, magnitude);
        half = _mm256_mask_mov_epi16(half, _mm256_cmpgt_epi16_mask(size, infinity), nan);
        bad += (uint32_t)__builtin_popcount(_mm256_cmpgt_epi16_mask(size, largest));
        _mm256_storeu_si256((__m256i *)(void *)(halves + i), half);
    }
    if (i < count)
        bad += lora_variant_avx2.floats_to_halves(floats + i, count - i, halves + i);
    return bad;
}

static void gelu(float *x, uint32_t count, const float *a, const float *b) {
    lora_variant_avx2.gelu(x, count, a, b);
}

static void swiglu(float *x, const float *z, uint32_t count) {
    lora_variant_avx2.swiglu(x, z, count);
}

static float scale(float *s, uint32_t count, float factor) {
    return lora_variant_avx2.scale(s, count, factor);
}

static void exponentials(const float *s, uint32_t count, float largest, uint16_t *e) {
    lora_variant_avx2.exponentials(s, count, largest, e);
}

/* The columns past the last whole 32 go the way of AVX2, their pointers moved on. */
static void weigh_rest(const float *e, const uint16_t *const *v, uint32_t count, uint32_t d,
                       uint32_t head_dim, float *sum) {
    const uint16_t *rest[LORA_TILE_POSITIONS];
    for (uint32_t i = 0; i < count; i++)
        rest[i] = v[i] + d;
    lora_variant_avx2.weigh(e, rest, count, head_dim - d, sum + d);
}

static void weigh(const float *e, const uint16_t *const *v, uint32_t count, uint32_t head_dim,
                  float *sum) {
    uint32_t d = 0;
    for (; d + VECTORS * LANES <= head_dim; d += VECTORS * LANES)
        weigh_columns(e, v, count, d, sum);
    if (d < head_dim)
        weigh_rest(e, v, count, d, head_dim, sum);
}

const struct lora_variant lora_variant_avx512 = {
    .name = "avx512",
    .supported = supported,
    .halves_to_floats = halves_to_floats,
    .floats_to_halves = floats_to_halves,
    .row = row,
    .lay_rows = lay_rows,
    .panel = panel,
    .scores = scores,
    .gelu = gelu,
    .swiglu = swiglu,
    .scale = scale,
    .exponentials = exponentials,
    .weigh = weigh,
};

#else
typedef int lora_avx512_not_here; /* a translation unit may not be empty */
#endif
