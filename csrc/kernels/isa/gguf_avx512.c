/* Weights in GGUF's blocks for AVX-512. */
#if defined(__x86_64__)

#include "lanes_512.h"
#include "gguf.h"

#define VECTORS (LORA_BLOCK_N / LANES)

#define KERNEL __attribute__((target(LANES_512_ISA ",fma")))
#define KERNEL_INLINE __attribute__((target(LANES_512_ISA ",fma"), always_inline)) static inline

KERNEL_INLINE float_vec fused(float_vec a, float_vec b, float_vec sum) {
    return _mm512_fmadd_ps(a, b, sum);
}
KERNEL_INLINE float_vec negated_fused(float_vec a, float_vec b, float_vec sum) {
    return _mm512_fmsub_ps(a, b, sum);
}
KERNEL_INLINE vec unsigned_bytes(const uint8_t *p) {
    return _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)p));
}
KERNEL_INLINE vec signed_bytes(const uint8_t *p) {
    return _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(const void *)p));
}
KERNEL_INLINE vec sub_vec(vec v, int less) { return _mm512_sub_epi32(v, _mm512_set1_epi32(less)); }
KERNEL_INLINE vec right(vec v, const int bits) { return _mm512_srli_epi32(v, (unsigned)bits); }
KERNEL_INLINE void signed_floats(__m256i bytes, float_vec v[VECTORS]) {
    v[0] = to_floats(_mm512_cvtepi8_epi32(_mm256_castsi256_si128(bytes)));
    v[1] = to_floats(_mm512_cvtepi8_epi32(_mm256_extracti128_si256(bytes, 1)));
}
/* Of each lane's index the permutation reads four bits. */
KERNEL_INLINE float_vec four_floats(const uint32_t kind, vec q) {
    static const float codebook[] = LORA_GGUF_CODEBOOK, e2m1[] = LORA_GGUF_E2M1;
    static const float whole[] = {-8, -7, -6, -5, -4, -3, -2, -1, 0,  1,  2,  3,
                                  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15};
    const float *first = kind == LORA_GGUF_IQ4_NL  ? codebook
                         : kind == LORA_GGUF_MXFP4 ? e2m1
                                                   : whole + 8 - lora_gguf_offset(kind);
    return _mm512_permutexvar_ps(q, _mm512_loadu_ps(first));
}
KERNEL_INLINE float_vec with_exponent(vec v) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(v, 23));
}
KERNEL_INLINE vec from_255(vec v) { return _mm512_sub_epi32(_mm512_set1_epi32(255), v); }
KERNEL_INLINE void store_halves(uint16_t *p, float_vec f) {
    _mm256_storeu_si256((__m256i *)(void *)p, _mm512_cvtps_ph(f, _MM_FROUND_TO_NEAREST_INT));
}

#include "gguf_lanes.h"

const struct lora_gguf lora_gguf_avx512 = {.widen = widen, .row = row};

#else
typedef int lora_gguf_avx512_not_here; /* a translation unit may not be empty */
#endif
