/* Inner loops for AVX-512: twice the lanes for matmuls and attention; the rest is AVX2's.
 * FMA only ever joins an FP16 x FP16 product, which is exact in FP32, to its sum.
 * docs/numbers.md, 1.1, 3.3. */
#if defined(__x86_64__)

#include "avx512_row.h"
#include "exponential_avx512.h"
#include "gguf.h"
#include "half.h"
#include "lanes_512.h"
#include "segments.h"
#include "unrolled.h"
#include "variant.h"

#define AVX512 __attribute__((target(LANES_512_ISA ",fma")))
#define AVX512_INLINE __attribute__((target(LANES_512_ISA ",fma"), always_inline)) static inline
#define VECTORS (LORA_BLOCK_N / LANES)

static int supported(void) {
    return lora_variant_avx2.supported() && __builtin_cpu_supports("avx512f") &&
           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512dq");
}

#include "avx512_panel.h"

AVX512_INLINE float_vec fused(float_vec a, float_vec b, float_vec sum) {
    return _mm512_fmadd_ps(a, b, sum);
}

#define KERNEL AVX512
#define KERNEL_INLINE AVX512_INLINE
#define SUMS 16
#define STREAMS 8
#define PREFETCH 2
#define NEAR 4
#define FEW_ROWS 4

#include "few_rows.h"
#include "row.h"
#include "scores.h"

AVX512 static void halves_to_floats(const uint16_t *halves, uint32_t count, float *floats) {
    uint32_t i = 0;
    for (; i + 2 * LANES <= count; i += 2 * LANES) {
        _mm512_storeu_ps(floats + i, load_halves(halves + i));
        _mm512_storeu_ps(floats + i + LANES, load_halves(halves + i + LANES));
    }
    lora_variant_avx2.halves_to_floats(halves + i, count - i, floats + i);
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

static void pack_panel(const uint16_t *const rows[4], uint32_t columns, float *x) {
    lora_variant_avx2.pack_panel(rows, columns, x);
}

AVX512 static uint32_t floats_to_halves(const float *floats, uint32_t count, uint16_t *halves) {
    const __m512i magnitude = _mm512_set1_epi16(0x7fff), max = _mm512_set1_epi16(0x7bff);
    const __m512i infinity = _mm512_set1_epi16(0x7c00), nan = _mm512_set1_epi16(LORA_FP16_NAN);
    uint32_t i = 0, bad = 0;
    for (; i + 2 * LANES <= count; i += 2 * LANES) {
        __m256i low = _mm512_cvtps_ph(_mm512_loadu_ps(floats + i), _MM_FROUND_TO_NEAREST_INT);
        __m256i high = _mm512_cvtps_ph(_mm512_loadu_ps(floats + i + LANES),
                                       _MM_FROUND_TO_NEAREST_INT);
        __m512i half = _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
        __m512i size = _mm512_and_si512(half, magnitude);
        __mmask32 beyond = _mm512_cmpgt_epi16_mask(size, max);
        if (beyond) { /* rare */
            half = _mm512_mask_mov_epi16(half, _mm512_cmpgt_epi16_mask(size, infinity), nan);
            bad += (uint32_t)__builtin_popcount(beyond);
        }
        _mm512_storeu_si512((void *)(halves + i), half);
    }
    if (i < count) bad += lora_variant_avx2.floats_to_halves(floats + i, count - i, halves + i);
    return bad;
}

static void gelu(float *x, uint32_t count, const float *a, const float *b) {
    lora_variant_avx2.gelu(x, count, a, b);
}

static void swiglu(float *x, const float *z, uint32_t count) {
    lora_variant_avx2.swiglu(x, z, count);
}

static void swiglu_clamped(float *x, const float *z, uint32_t count, float limit, float alpha) {
    lora_variant_avx2.swiglu_clamped(x, z, count, limit, alpha);
}

static float scale(float *s, uint32_t count, float factor) {
    return lora_variant_avx2.scale(s, count, factor);
}

static float cap(float *s, uint32_t count, float limit) {
    return lora_variant_avx2.cap(s, count, limit);
}

static float slope(float *s, uint32_t count, float by, int32_t first) {
    return lora_variant_avx2.slope(s, count, by, first);
}

AVX512 static void exps(float *x, uint32_t count) {
    uint32_t i = 0;
    for (; i + LANES <= count; i += LANES)
        _mm512_storeu_ps(x + i, exp_wide(_mm512_loadu_ps(x + i)));
    lora_variant_avx2.exps(x + i, count - i);
}

AVX512 static void exponentials(const float *s, uint32_t count, float max, uint16_t *e) {
    const __m512 max_lanes = _mm512_set1_ps(max);
    uint32_t i = 0;
    for (; i + LANES <= count; i += LANES) {
        __m512 y = exp_wide(_mm512_sub_ps(_mm512_loadu_ps(s + i), max_lanes));
        __m256i half = _mm512_cvtps_ph(y, _MM_FROUND_TO_NEAREST_INT);
        _mm256_storeu_si256((__m256i *)(void *)(e + i), half);
    }
    lora_variant_avx2.exponentials(s + i, count - i, max, e + i);
}

/* AVX2's loop does the columns past the last whole 32, from pointers moved on. */
static void weigh_rest(const float *e, const uint16_t *const *v, uint32_t count, uint32_t d,
                       uint32_t head_dim, float *sum) {
    const uint16_t *rest[LORA_TILE_POSITIONS];
    for (uint32_t i = 0; i < count; i++) rest[i] = v[i] + d;
    lora_variant_avx2.weigh(e, rest, count, head_dim - d, sum + d);
}

static void weigh(const float *e, const uint16_t *const *v, uint32_t count, uint32_t head_dim,
                  float *sum) {
    uint32_t d = 0;
    for (; d + VECTORS * LANES <= head_dim; d += VECTORS * LANES)
        weigh_columns(e, v, count, d, sum);
    if (d < head_dim) weigh_rest(e, v, count, d, head_dim, sum);
}

#define COLUMNS_TARGET AVX512
#include "columns.h"
#include "delta.h"
#include "scan.h"

const struct lora_variant lora_variant_avx512 = {
    .name = "avx512",
    .supported = supported,
    .gguf = &lora_gguf_avx512,
    .halves_to_floats = halves_to_floats,
    .floats_to_halves = floats_to_halves,
    .row = row,
    .row_cached = lora_avx512_row_cached,
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
typedef int lora_avx512_not_here; /* a translation unit may not be empty */
#endif
