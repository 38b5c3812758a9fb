/* Weights in GGUF's blocks for AVX2. */
#if defined(__x86_64__)

#include "lanes_256.h"
#include "gguf.h"

#define VECTORS (LORA_BLOCK_N / LANES)

#define KERNEL __attribute__((target("avx2,f16c,fma")))
#define KERNEL_INLINE __attribute__((target("avx2,f16c,fma"), always_inline)) static inline

KERNEL_INLINE float_vec fused(float_vec a, float_vec b, float_vec sum) {
    return _mm256_fmadd_ps(a, b, sum);
}
KERNEL_INLINE float_vec negated_fused(float_vec a, float_vec b, float_vec sum) {
    return _mm256_fmsub_ps(a, b, sum);
}
KERNEL_INLINE vec unsigned_bytes(const uint8_t *p) {
    return _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)p));
}
KERNEL_INLINE vec signed_bytes(const uint8_t *p) {
    return _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)p));
}
KERNEL_INLINE vec and_vec(vec v, int mask) { return _mm256_and_si256(v, _mm256_set1_epi32(mask)); }
KERNEL_INLINE vec sub_vec(vec v, int less) { return _mm256_sub_epi32(v, _mm256_set1_epi32(less)); }
KERNEL_INLINE vec right(vec v, const int bits) { return _mm256_srli_epi32(v, bits); }
KERNEL_INLINE vec left(vec v, const int bits) { return _mm256_slli_epi32(v, bits); }
KERNEL_INLINE void signed_floats(__m256i bytes, float_vec v[VECTORS]) {
    const __m128i halves[] = {_mm256_castsi256_si128(bytes), _mm256_extracti128_si256(bytes, 1)};
    for (int i = 0; i < 2; i++) {
        v[2 * i] = to_floats(_mm256_cvtepi8_epi32(halves[i]));
        v[2 * i + 1] = to_floats(_mm256_cvtepi8_epi32(_mm_srli_si128(halves[i], 8)));
    }
}
KERNEL_INLINE float_vec four_floats(const uint32_t kind, vec q) {
    if (kind != LORA_GGUF_IQ4_NL && kind != LORA_GGUF_MXFP4)
        return to_floats(sub_vec(and_vec(q, 15), (int)lora_gguf_offset(kind)));
    static const float codebook[] = LORA_GGUF_CODEBOOK, e2m1[] = LORA_GGUF_E2M1;
    const float *meaning = kind == LORA_GGUF_MXFP4 ? e2m1 : codebook;
    __m256 low = _mm256_permutevar8x32_ps(_mm256_loadu_ps(meaning), q);
    __m256 high = _mm256_permutevar8x32_ps(_mm256_loadu_ps(meaning + 8), q);
    return _mm256_blendv_ps(low, high, _mm256_castsi256_ps(left(q, 28)));
}
KERNEL_INLINE float_vec with_exponent(vec v) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(v, 23));
}
KERNEL_INLINE vec from_255(vec v) { return _mm256_sub_epi32(_mm256_set1_epi32(255), v); }
KERNEL_INLINE void store_halves(uint16_t *p, float_vec f) {
    _mm_storeu_si128((__m128i *)(void *)p, _mm256_cvtps_ph(f, _MM_FROUND_TO_NEAREST_INT));
}

#include "gguf_lanes.h"

const struct lora_gguf lora_gguf_avx2 = {.widen = widen, .row = row};

#else
typedef int lora_gguf_avx2_not_here; /* a translation unit may not be empty */
#endif
