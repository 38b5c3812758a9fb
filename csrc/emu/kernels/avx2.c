/* Inner loops for AVX2 with F16C and FMA. FMA only ever joins an FP16 x FP16 product, which is
 * exact in FP32, to its sum: the same bits as multiplying, then adding. */
#if defined(__x86_64__)

#include <immintrin.h>

#include "exponential.h"
#include "exponential_avx2.h"
#include "half.h"
#include "segments.h"
#include "variant.h"

#define AVX2 __attribute__((target("avx2,f16c,fma")))
#define AVX2_INLINE __attribute__((target("avx2,f16c,fma"), always_inline)) static inline
#define LANES 8
#define VECTORS (LORA_BLOCK_N / LANES)
#define STREAMS 2
#define AHEAD 4 /* units of 2 KiB that each stream is fetched ahead */

static int supported(void) {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c") &&
           __builtin_cpu_supports("fma");
}

AVX2_INLINE __m256 load_halves(const uint16_t *halves) {
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)halves));
}

AVX2 static void halves_to_floats(const uint16_t *halves, uint32_t count, float *floats) {
    uint32_t i = 0;
    for (; i + LANES <= count; i += LANES)
        _mm256_storeu_ps(floats + i, load_halves(halves + i));
    for (; i < count; i++)
        floats[i] = half_to_float(halves[i]);
}

AVX2 static uint32_t floats_to_halves(const float *floats, uint32_t count, uint16_t *halves) {
    const __m128i magnitude = _mm_set1_epi16(0x7fff), infinity = _mm_set1_epi16(0x7c00);
    const __m128i largest = _mm_set1_epi16(0x7bff), nan = _mm_set1_epi16(LORA_FP16_NAN);
    uint32_t i = 0, bad = 0;
    for (; i + LANES <= count; i += LANES) {
        __m128i half = _mm256_cvtps_ph(_mm256_loadu_ps(floats + i), _MM_FROUND_TO_NEAREST_INT);
        __m128i size = _mm_and_si128(half, magnitude);
        half = _mm_blendv_epi8(half, nan, _mm_cmpgt_epi16(size, infinity));
        int mask = _mm_movemask_epi8(_mm_cmpgt_epi16(size, largest));
        bad += (uint32_t)__builtin_popcount((unsigned)mask) / 2;
        _mm_storeu_si128((__m128i *)(void *)(halves + i), half);
    }
    for (; i < count; i++) {
        halves[i] = float_to_half(floats[i]);
        bad += (halves[i] & 0x7c00) == 0x7c00;
    }
    return bad;
}

AVX2_INLINE void store_sums(float *out, const __m256 *sum) {
    for (int v = 0; v < VECTORS; v++)
        _mm256_storeu_ps(out + v * LANES, sum[v]);
}

#include "avx2_panel.h"

AVX2_INLINE const uint16_t *unit_at(const uint16_t *const *blocks, uint32_t k) {
    return blocks[k / LORA_BLOCK_K] + k % LORA_BLOCK_K * LORA_BLOCK_N;
}

/* Up to one unit of one segment, each weight converted on the way. */
AVX2_INLINE void add_unit(const float *x, uint32_t steps, const uint16_t *weights,
                            __m256 *sum) {
    for (uint32_t k = 0; k < steps; k++, weights += LORA_BLOCK_N) {
        __m256 value = _mm256_broadcast_ss(x + k);
        for (int v = 0; v < VECTORS; v++)
            sum[v] = _mm256_fmadd_ps(value, load_halves(weights + v * LANES), sum[v]);
    }
}

/* A unit of several segments at once: they lie in different places of memory, and what comes after
 * each is fetched meanwhile, so that more requests are under way than one stream has. */
AVX2_INLINE void add_units(const float *const *x, const uint16_t *const *weights,
                             const uint16_t *const *ahead, __m256 sum[STREAMS][VECTORS]) {
    for (uint32_t k = 0; k < LORA_UNIT_COLUMNS; k++)
        for (int i = 0; i < STREAMS; i++) {
            __m256 value = _mm256_broadcast_ss(x[i] + k);
            _mm_prefetch((const char *)(ahead[i] + k * LORA_BLOCK_N), _MM_HINT_T1);
            for (int v = 0; v < VECTORS; v++)
                sum[i][v] = _mm256_fmadd_ps(
                    value, load_halves(weights[i] + k * LORA_BLOCK_N + v * LANES), sum[i][v]);
        }
}

/* Sums of segments s .. s+STREAMS-1. After them those from `following` on are read, in `next`. */
AVX2_INLINE void add_segments(const float *x, const uint32_t *starts, uint32_t s,
                                const uint16_t *const *blocks, uint32_t following,
                                const uint16_t *const *next, __m256 sum[STREAMS][VECTORS]) {
    uint32_t units = common_units(starts, s, STREAMS), whole = units * LORA_UNIT_COLUMNS;
    uint32_t ahead_units = units < AHEAD ? units : AHEAD;
    for (int i = 0; i < STREAMS; i++)
        for (int v = 0; v < VECTORS; v++)
            sum[i][v] = _mm256_setzero_ps();
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

AVX2 static void join_sums(const float sums[LORA_SEGMENTS][LORA_BLOCK_N], float out[32]) {
    for (uint32_t i = 0; i < LORA_BLOCK_N; i++)
        out[i] = ((sums[0][i] + sums[1][i]) + (sums[2][i] + sums[3][i])) +
                 ((sums[4][i] + sums[5][i]) + (sums[6][i] + sums[7][i]));
}

AVX2 static void row(const float *x, const uint32_t starts[9], const uint16_t *const *blocks,
                     const uint16_t *const *next, float out[32]) {
    float sums[LORA_SEGMENTS][LORA_BLOCK_N];
    for (uint32_t s = 0; s < LORA_SEGMENTS; s += STREAMS) {
        __m256 sum[STREAMS][VECTORS];
        uint32_t following = (s + STREAMS) % LORA_SEGMENTS;
        add_segments(x, starts, s, blocks, following, following ? blocks : next, sum);
        for (uint32_t i = 0; i < STREAMS; i++)
            store_sums(sums[s + i], sum[i]);
    }
    join_sums(sums, out);
}

/* Heads of at most two units: each is a segment, and the sums of the others are +0. */
AVX2_INLINE void score_units(const float *q, const uint16_t *k, uint32_t head_dim, float *out) {
    uint32_t first = head_dim < LORA_UNIT_COLUMNS ? head_dim : LORA_UNIT_COLUMNS;
    __m256 sum[2][VECTORS];
    for (int v = 0; v < VECTORS; v++)
        sum[0][v] = sum[1][v] = _mm256_setzero_ps();
    add_unit(q, first, k, sum[0]);
    add_unit(q + first, head_dim - first, k + first * LORA_TILE_POSITIONS, sum[1]);
    for (int v = 0; v < VECTORS; v++)
        sum[0][v] = _mm256_add_ps(sum[0][v], sum[1][v]);
    store_sums(out, sum[0]);
}

AVX2 static void scores(const float *q, const uint16_t *k, uint32_t head_dim, float out[32]) {
    if (head_dim <= 2 * LORA_UNIT_COLUMNS) {
        score_units(q, k, head_dim, out);
        return;
    }
    float sums[LORA_SEGMENTS][LORA_TILE_POSITIONS];
    for (uint32_t s = 0; s < LORA_SEGMENTS; s++) {
        __m256 sum[VECTORS] = {_mm256_setzero_ps(), _mm256_setzero_ps(), _mm256_setzero_ps(),
                               _mm256_setzero_ps()};
        uint32_t end = segment_start(head_dim, s + 1);
        for (uint32_t d = segment_start(head_dim, s); d < end; d++) {
            __m256 value = _mm256_broadcast_ss(q + d);
            const uint16_t *keys = k + (uint64_t)d * LORA_TILE_POSITIONS;
            for (int v = 0; v < VECTORS; v++)
                sum[v] = _mm256_fmadd_ps(value, load_halves(keys + v * LANES), sum[v]);
        }
        store_sums(sums[s], sum);
    }
    join_sums(sums, out);
}

AVX2 static void gelu(float *x, uint32_t count, const float *a, const float *b) {
    const __m256 low = _mm256_set1_ps(-8.0f), high = _mm256_set1_ps(8.0f);
    uint32_t i = 0;
    for (; i + LANES <= count; i += LANES) {
        __m256 value = _mm256_loadu_ps(x + i);
        __m256 below = _mm256_cmp_ps(value, low, _CMP_LT_OQ);
        __m256 inside = _mm256_and_ps(_mm256_cmp_ps(value, low, _CMP_GE_OQ),
                                      _mm256_cmp_ps(value, high, _CMP_LT_OQ));
        __m256 safe = _mm256_and_ps(value, inside);
        __m256i at = _mm256_cvttps_epi32(
            _mm256_floor_ps(_mm256_mul_ps(safe, _mm256_set1_ps(64.0f))));
        at = _mm256_add_epi32(at, _mm256_set1_epi32(512));
        __m256 chord = _mm256_mul_ps(_mm256_i32gather_ps(a, at, 4), safe);
        chord = _mm256_add_ps(chord, _mm256_i32gather_ps(b, at, 4));
        value = _mm256_andnot_ps(below, value);
        _mm256_storeu_ps(x + i, _mm256_blendv_ps(value, chord, inside));
    }
    for (; i < count; i++)
        x[i] = gelu32(x[i], a, b);
}

AVX2 static void swiglu(float *x, const float *z, uint32_t count) {
    const __m256 one = _mm256_set1_ps(1.0f), sign = _mm256_set1_ps(-0.0f);
    uint32_t i = 0;
    for (; i + LANES <= count; i += LANES) {
        __m256 g = _mm256_loadu_ps(x + i);
        __m256 below = _mm256_add_ps(one, exp_vector(_mm256_xor_ps(g, sign)));
        __m256 y = _mm256_mul_ps(_mm256_div_ps(g, below), _mm256_loadu_ps(z + i));
        _mm256_storeu_ps(x + i, y);
    }
    for (; i < count; i++)
        x[i] = silu32(x[i]) * z[i];
}

AVX2 static float scale(float *s, uint32_t count, float factor) {
    __m256 by = _mm256_set1_ps(factor), most = _mm256_set1_ps(-__builtin_inff());
    float lanes[LANES], largest = -__builtin_inff();
    uint32_t i = 0;
    for (; i + LANES <= count; i += LANES) {
        __m256 value = _mm256_mul_ps(_mm256_loadu_ps(s + i), by);
        _mm256_storeu_ps(s + i, value);
        most = _mm256_max_ps(value, most);
    }
    for (; i < count; i++) {
        s[i] = s[i] * factor;
        largest = s[i] > largest ? s[i] : largest;
    }
    _mm256_storeu_ps(lanes, most);
    for (uint32_t j = 0; j < LANES; j++)
        largest = lanes[j] > largest ? lanes[j] : largest;
    return largest;
}

AVX2 static void exponentials(const float *s, uint32_t count, float largest, uint16_t *e) {
    __m256 most = _mm256_set1_ps(largest);
    uint32_t i = 0;
    for (; i + LANES <= count; i += LANES) {
        __m256 y = exp_vector(_mm256_sub_ps(_mm256_loadu_ps(s + i), most));
        __m128i half = _mm256_cvtps_ph(y, _MM_FROUND_TO_NEAREST_INT);
        _mm_storeu_si128((__m128i *)(void *)(e + i), half);
    }
    for (; i < count; i++)
        e[i] = float_to_half(exp32(s[i] - largest));
}

/* `vectors` times eight columns from d on. */
AVX2_INLINE void weigh_columns(const float *e, const uint16_t *const *v, uint32_t count,
                               uint32_t d, const int vectors, float *sum) {
    __m256 tile[VECTORS];
    for (int j = 0; j < vectors; j++)
        tile[j] = _mm256_setzero_ps();
    for (uint32_t i = 0; i < count; i++) {
        __m256 weight = _mm256_broadcast_ss(e + i);
        for (int j = 0; j < vectors; j++)
            tile[j] = _mm256_fmadd_ps(weight, load_halves(v[i] + d + j * LANES), tile[j]);
    }
    for (int j = 0; j < vectors; j++) {
        float *target = sum + d + j * LANES;
        _mm256_storeu_ps(target, _mm256_add_ps(_mm256_loadu_ps(target), tile[j]));
    }
}

AVX2 static void weigh(const float *e, const uint16_t *const *v, uint32_t count, uint32_t head_dim,
                       float *sum) {
    uint32_t d = 0;
    for (; d + VECTORS * LANES <= head_dim; d += VECTORS * LANES)
        weigh_columns(e, v, count, d, VECTORS, sum);
    for (; d + LANES <= head_dim; d += LANES)
        weigh_columns(e, v, count, d, 1, sum);
    for (; d < head_dim; d++) {
        float tile = 0.0f;
        for (uint32_t i = 0; i < count; i++)
            tile = tile + e[i] * half_to_float(v[i][d]);
        sum[d] = sum[d] + tile;
    }
}

const struct lora_variant lora_variant_avx2 = {
    .name = "avx2",
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
typedef int lora_avx2_not_here; /* a translation unit may not be empty */
#endif
