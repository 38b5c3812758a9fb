/* Integer inner loops for AVX2. Signed bytes are multiplied as halves of words, which is exact for
 * all of them; unsigned ones of 4 or 7 bits fit maddubs without saturating. */
#if defined(__x86_64__)

#include "exponential.h"
#include "exponential_avx2.h"
#include "lanes_256.h"
#include "zeros_avx2.h"

#define LANES_TARGET __attribute__((target("avx2,f16c")))
#define LANES_INLINE LANES_256
#define INT8_ROWS 2
#define INT4_ROWS 2
#define INT8_BLOCKS 2
#define INT4_BLOCKS 1

typedef struct {
    __m256i even, odd; /* words: bytes 0 and 2, 1 and 3 of a quad */
} dot_x;

LANES_256 __m256i even_words(__m256i v) { return _mm256_srai_epi16(_mm256_slli_epi16(v, 8), 8); }
LANES_256 __m256i odd_words(__m256i v) { return _mm256_srai_epi16(v, 8); }
LANES_256 vec dot_start(int32_t sum) {
    (void)sum;
    return zero_vec();
}
LANES_256 vec dot_weights(vec w) { return w; }
LANES_256 dot_x dot_values(const int8_t *p) {
    vec four = quad(p);
    return (dot_x){even_words(four), odd_words(four)};
}
LANES_256 vec dot_signed(vec sum, vec w, dot_x x) {
    vec even = _mm256_madd_epi16(even_words(w), x.even);
    vec odd = _mm256_madd_epi16(odd_words(w), x.odd);
    return add_vec(sum, add_vec(even, odd));
}
/* Unsigned times signed: pairs of products below 2^15. */
LANES_256 vec dot_bytes(vec sum, vec small, vec x) {
    return add_vec(sum, _mm256_madd_epi16(_mm256_maddubs_epi16(small, x), _mm256_set1_epi16(1)));
}
LANES_256 vec dot_nibbles(vec sum, vec w, vec x) { return dot_bytes(sum, w, x); }

#include "integer_matrix.h"

#include "integer_many_avx2.h"

#define ATTENTION_TARGET LANES_TARGET
#define ATTENTION_ROWS 2
#define ATTENTION_INLINE LANES_256
#define attention_start dot_start
LANES_256 __m256i attention_signed(__m256i sum, __m256i k, const int8_t *q) {
    return dot_signed(sum, k, dot_values(q));
}

#include "integer_attention.h"

LANES_TARGET static void sum_units(const int8_t *x, uint32_t units, int32_t *sums) {
    for (uint32_t u = 0; u < units; u++, x += LORA_UNIT_COLUMNS) {
        __m256i values = _mm256_xor_si256(load_row(x), _mm256_set1_epi8(-128));
        __m256i of_eight = _mm256_sad_epu8(values, _mm256_setzero_si256());
        __m128i half = _mm_add_epi64(_mm256_castsi256_si128(of_eight),
                                     _mm256_extracti128_si256(of_eight, 1));
        int32_t sum = _mm_cvtsi128_si32(half) + _mm_extract_epi32(half, 2);
        sums[u] = sum - 128 * LORA_UNIT_COLUMNS;
    }
}

/* Columns 8*v .. 8*v+7 of step k: FP16((q - zero)*scale). */
LANES_256 __m128i wide_columns(vec nibbles, int step, vec zero, float_vec scale) {
    vec q = _mm256_and_si256(_mm256_srl_epi32(nibbles, _mm_cvtsi32_si128(8 * step)),
                             _mm256_set1_epi32(15));
    return _mm256_cvtps_ph(mul(to_floats(_mm256_sub_epi32(q, zero)), scale),
                           _MM_FROUND_TO_NEAREST_INT);
}

LANES_TARGET static void widen(const uint8_t *block, uint32_t group, uint16_t *wide) {
    for (uint32_t k = 0; k < LORA_BLOCK_K; k += 8) {
        uint8_t zeros[LORA_BLOCK_N];
        spread_zeros(int4_zeros(block, group, k), zeros);
        for (int v = 0; v < VECTORS; v++) {
            vec weights = load_vec(block + k / 8 * QUAD_BYTES + v * LANES * 4);
            vec zero = _mm256_cvtepu8_epi32(
                _mm_loadl_epi64((const __m128i *)(const void *)(zeros + v * LANES)));
            float_vec scale = load_halves(int4_scales(block, group, k) + v * LANES);
            for (int step = 0; step < 8; step++) {
                vec half = step < 4 ? low_nibbles(weights) : high_nibbles(weights);
                uint16_t *target = wide + (k + (uint32_t)step) * LORA_BLOCK_N + v * LANES;
                _mm_storeu_si128((__m128i *)(void *)target,
                                 wide_columns(half, step % 4, zero, scale));
            }
        }
    }
}

LANES_TARGET static uint32_t quantize(const uint16_t *x, uint32_t count, float inverse, int8_t *y) {
    uint32_t i = 0, bad = 0;
    for (; i + LANES <= count; i += LANES) {
        float_vec value = mul(load_halves(x + i), splat(inverse));
        float_vec absent = _mm256_cmp_ps(value, value, _CMP_UNORD_Q);
        value = _mm256_max_ps(_mm256_min_ps(value, splat(127.0f)), splat(-127.0f));
        vec whole = _mm256_cvtps_epi32(_mm256_andnot_ps(absent, value));
        __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(whole),
                                        _mm256_extracti128_si256(whole, 1));
        _mm_storel_epi64((__m128i *)(void *)(y + i), _mm_packs_epi16(words, words));
        bad += (uint32_t)__builtin_popcount((unsigned)_mm256_movemask_ps(absent));
    }
    return bad + lora_integer_plain.quantize(x + i, count - i, inverse, y + i);
}

LANES_TARGET static uint16_t max_magnitude(const uint16_t *x, uint32_t count) {
    enum { STEP = 16 };
    uint32_t i = 0;
    vec max = zero_vec(), infinity = _mm256_set1_epi16(0x7c00);
    for (; i + STEP <= count; i += STEP) {
        vec size = _mm256_and_si256(_mm256_loadu_si256((const __m256i *)(const void *)(x + i)),
                                    _mm256_set1_epi16(0x7fff));
        size = _mm256_andnot_si256(_mm256_cmpgt_epi16(size, infinity), size);
        max = _mm256_max_epi16(max, size);
    }
    uint16_t parts[STEP], found = lora_integer_plain.max_magnitude(x + i, count - i);
    _mm256_storeu_si256((__m256i *)(void *)parts, max);
    for (int lane = 0; lane < STEP; lane++) found = parts[lane] > found ? parts[lane] : found;
    return found;
}

LANES_TARGET static int32_t weights(const float *s, uint32_t count, float max, uint8_t *e) {
    uint32_t i = 0;
    vec sum = zero_vec();
    for (; i + LANES <= count; i += LANES) {
        float_vec value = exp_vector(sub(load_floats(s + i), splat(max)));
        vec whole = _mm256_cvtps_epi32(mul(splat(127.0f), value));
        __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(whole),
                                        _mm256_extracti128_si256(whole, 1));
        _mm_storel_epi64((__m128i *)(void *)(e + i), _mm_packus_epi16(words, words));
        sum = add_vec(sum, whole);
    }
    int32_t parts[LANES], total = 0;
    _mm256_storeu_si256((__m256i *)(void *)parts, sum);
    for (int lane = 0; lane < LANES; lane++) total += parts[lane];
    return total + lora_integer_plain.weights(s + i, count - i, max, e + i);
}

const struct lora_integer lora_integer_avx2 = {
    .sum_units = sum_units,
    .many_rows = INT8_MANY,
    .spread = spread,
    .int8 = int8_tile,
    .int4 = int4_tile,
    .widen = widen,
    .quantize = quantize,
    .max_magnitude = max_magnitude,
    .scores = scores,
    .weights = weights,
    .weigh = weigh,
};

#else
typedef int lora_integer_avx2_not_here; /* a translation unit may not be empty */
#endif
