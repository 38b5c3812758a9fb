/* Inner loops for AVX2 with F16C and FMA. FMA only ever joins an FP16 x FP16 product, which is
 * exact in FP32, to its sum: the same bits as multiplying, then adding.
 * docs/numbers.md, 1.1, 3.3. */
#if defined(__x86_64__)

#include "exponential.h"
#include "exponential_avx2.h"
#include "gguf.h"
#include "half.h"
#include "lanes_256.h"
#include "segments.h"
#include "variant.h"

#define AVX2 __attribute__((target("avx2,f16c,fma")))
#define AVX2_INLINE __attribute__((target("avx2,f16c,fma"), always_inline)) static inline
#define VECTORS (LORA_BLOCK_N / LANES)

static int supported(void) {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c") &&
           __builtin_cpu_supports("fma");
}

AVX2 static void halves_to_floats(const uint16_t *halves, uint32_t count, float *floats) {
    uint32_t i = 0;
    for (; i + LANES <= count; i += LANES) _mm256_storeu_ps(floats + i, load_halves(halves + i));
    for (; i < count; i++) floats[i] = half_to_float(halves[i]);
}

AVX2 static uint32_t floats_to_halves(const float *floats, uint32_t count, uint16_t *halves) {
    const __m128i magnitude = _mm_set1_epi16(0x7fff), infinity = _mm_set1_epi16(0x7c00);
    const __m128i max = _mm_set1_epi16(0x7bff), nan = _mm_set1_epi16(LORA_FP16_NAN);
    uint32_t i = 0, bad = 0;
    for (; i + LANES <= count; i += LANES) {
        __m128i half = _mm256_cvtps_ph(_mm256_loadu_ps(floats + i), _MM_FROUND_TO_NEAREST_INT);
        __m128i size = _mm_and_si128(half, magnitude);
        half = _mm_blendv_epi8(half, nan, _mm_cmpgt_epi16(size, infinity));
        int mask = _mm_movemask_epi8(_mm_cmpgt_epi16(size, max));
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
    for (int v = 0; v < VECTORS; v++) _mm256_storeu_ps(out + v * LANES, sum[v]);
}

#include "avx2_panel.h"

AVX2_INLINE float_vec fused(float_vec a, float_vec b, float_vec sum) {
    return _mm256_fmadd_ps(a, b, sum);
}

#define KERNEL AVX2
#define KERNEL_INLINE AVX2_INLINE
#define SUMS 12
#define STREAMS 2
#define PREFETCH 4
#define NEAR 0
#define FEW_ROWS 3

#include "few_rows.h"
#include "row.h"
#include "scores.h"

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
    for (; i < count; i++) x[i] = gelu32(x[i], a, b);
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
    for (; i < count; i++) x[i] = silu32(x[i]) * z[i];
}

/* min and max return their second operand where one is NaN. */
AVX2 static void swiglu_clamped(float *x, const float *z, uint32_t count, float limit,
                                float alpha) {
    const __m256 one = _mm256_set1_ps(1.0f), sign = _mm256_set1_ps(-0.0f);
    const __m256 high = _mm256_set1_ps(limit), low = _mm256_set1_ps(-limit);
    const __m256 by = _mm256_set1_ps(alpha);
    uint32_t i = 0;
    for (; i + LANES <= count; i += LANES) {
        __m256 g = _mm256_min_ps(high, _mm256_loadu_ps(x + i));
        __m256 u = _mm256_max_ps(low, _mm256_min_ps(high, _mm256_loadu_ps(z + i)));
        __m256 below = exp_vector(_mm256_xor_ps(_mm256_mul_ps(g, by), sign));
        g = _mm256_div_ps(g, _mm256_add_ps(one, below));
        _mm256_storeu_ps(x + i, _mm256_mul_ps(g, _mm256_add_ps(u, one)));
    }
    for (; i < count; i++) x[i] = swiglu_clamped32(x[i], z[i], limit, alpha);
}

AVX2 static float scale(float *s, uint32_t count, float factor) {
    __m256 by = _mm256_set1_ps(factor), max_lanes = _mm256_set1_ps(-__builtin_inff());
    float lanes[LANES], max = -__builtin_inff();
    uint32_t i = 0;
    for (; i + LANES <= count; i += LANES) {
        __m256 value = _mm256_mul_ps(_mm256_loadu_ps(s + i), by);
        _mm256_storeu_ps(s + i, value);
        max_lanes = _mm256_max_ps(value, max_lanes);
    }
    for (; i < count; i++) {
        s[i] = s[i] * factor;
        max = s[i] > max ? s[i] : max;
    }
    _mm256_storeu_ps(lanes, max_lanes);
    for (uint32_t j = 0; j < LANES; j++) max = lanes[j] > max ? lanes[j] : max;
    return max;
}

/* Both forms are made of every lane, and each lane takes its own. */
AVX2_INLINE __m256 tanh_vector(__m256 x) {
    const __m256 one = _mm256_set1_ps(1.0f), sign = _mm256_set1_ps(-0.0f);
    __m256 size = _mm256_andnot_ps(sign, x), z = _mm256_mul_ps(x, x);
    __m256 below = _mm256_add_ps(exp_vector(_mm256_add_ps(size, size)), one);
    __m256 far = _mm256_sub_ps(one, _mm256_div_ps(_mm256_set1_ps(2.0f), below));
    far = _mm256_or_ps(_mm256_andnot_ps(sign, far), _mm256_and_ps(sign, x));
    __m256 p = _mm256_set1_ps(lora_tanh_c[0]);
    for (int i = 1; i < 5; i++)
        p = _mm256_add_ps(_mm256_mul_ps(p, z), _mm256_set1_ps(lora_tanh_c[i]));
    __m256 near = _mm256_add_ps(x, _mm256_mul_ps(_mm256_mul_ps(x, z), p));
    __m256 inside = _mm256_cmp_ps(size, _mm256_set1_ps(TANH_POLYNOMIAL), _CMP_LT_OQ);
    return _mm256_blendv_ps(far, near, inside);
}

AVX2 static float cap(float *s, uint32_t count, float limit) {
    float lanes[LANES], max = -__builtin_inff(), inverse = 1.0f / limit;
    __m256 by = _mm256_set1_ps(inverse), max_lanes = _mm256_set1_ps(max);
    uint32_t i = 0;
    for (; i + LANES <= count; i += LANES) {
        __m256 value = tanh_vector(_mm256_mul_ps(_mm256_loadu_ps(s + i), by));
        value = _mm256_mul_ps(value, _mm256_set1_ps(limit));
        _mm256_storeu_ps(s + i, value);
        max_lanes = _mm256_max_ps(value, max_lanes);
    }
    for (; i < count; i++) {
        s[i] = tanh32(s[i] * inverse) * limit;
        max = s[i] > max ? s[i] : max;
    }
    _mm256_storeu_ps(lanes, max_lanes);
    for (uint32_t j = 0; j < LANES; j++) max = lanes[j] > max ? lanes[j] : max;
    return max;
}

AVX2 static float slope(float *s, uint32_t count, float by, int32_t first) {
    const __m256 slopes = _mm256_set1_ps(by), step = _mm256_set1_ps((float)LANES);
    __m256 max_lanes = _mm256_set1_ps(-__builtin_inff());
    __m256 at = _mm256_add_ps(_mm256_set1_ps((float)first), _mm256_setr_ps(0, 1, 2, 3, 4, 5, 6, 7));
    float lanes[LANES], max = -__builtin_inff();
    uint32_t i = 0;
    for (; i + LANES <= count; i += LANES) {
        __m256 value = _mm256_add_ps(_mm256_loadu_ps(s + i), _mm256_mul_ps(slopes, at));
        _mm256_storeu_ps(s + i, value);
        max_lanes = _mm256_max_ps(value, max_lanes);
        at = _mm256_add_ps(at, step);
    }
    for (; i < count; i++) {
        s[i] = s[i] + by * (float)(first + (int32_t)i);
        max = s[i] > max ? s[i] : max;
    }
    _mm256_storeu_ps(lanes, max_lanes);
    for (uint32_t j = 0; j < LANES; j++) max = lanes[j] > max ? lanes[j] : max;
    return max;
}

AVX2 static void exps(float *x, uint32_t count) {
    uint32_t i = 0;
    for (; i + LANES <= count; i += LANES)
        _mm256_storeu_ps(x + i, exp_vector(_mm256_loadu_ps(x + i)));
    for (; i < count; i++) x[i] = exp32(x[i]);
}

AVX2 static void exponentials(const float *s, uint32_t count, float max, uint16_t *e) {
    __m256 max_lanes = _mm256_set1_ps(max);
    uint32_t i = 0;
    for (; i + LANES <= count; i += LANES) {
        __m256 y = exp_vector(_mm256_sub_ps(_mm256_loadu_ps(s + i), max_lanes));
        __m128i half = _mm256_cvtps_ph(y, _MM_FROUND_TO_NEAREST_INT);
        _mm_storeu_si128((__m128i *)(void *)(e + i), half);
    }
    for (; i < count; i++) e[i] = float_to_half(exp32(s[i] - max));
}

/* `vectors` times eight columns from d on. */
AVX2_INLINE void weigh_columns(const float *e, const uint16_t *const *v, uint32_t count, uint32_t d,
                               const int vectors, float *sum) {
    __m256 tile[VECTORS];
    for (int j = 0; j < vectors; j++) tile[j] = _mm256_setzero_ps();
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
    for (; d + LANES <= head_dim; d += LANES) weigh_columns(e, v, count, d, 1, sum);
    for (; d < head_dim; d++) {
        float tile = 0.0f;
        for (uint32_t i = 0; i < count; i++) tile = tile + e[i] * half_to_float(v[i][d]);
        sum[d] = sum[d] + tile;
    }
}

#define COLUMNS_TARGET AVX2
#include "columns.h"
#include "delta.h"
#include "scan.h"

const struct lora_variant lora_variant_avx2 = {
    .name = "avx2",
    .supported = supported,
    .gguf = &lora_gguf_avx2,
    .halves_to_floats = halves_to_floats,
    .floats_to_halves = floats_to_halves,
    .row = row,
    .row_cached = row,
    .few = few,
    .few_rows = FEW_ROWS,
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

#else
typedef int lora_avx2_not_here; /* a translation unit may not be empty */
#endif
