/* Weights in GGUF's blocks for AVX-512. */
#if defined(__x86_64__)

#include "lanes_512.h"

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
KERNEL_INLINE vec and_vec(vec v, int mask) { return _mm512_and_si512(v, _mm512_set1_epi32(mask)); }
KERNEL_INLINE vec or_vec(vec a, vec b) { return _mm512_or_si512(a, b); }
KERNEL_INLINE vec sub_vec(vec v, int less) { return _mm512_sub_epi32(v, _mm512_set1_epi32(less)); }
KERNEL_INLINE vec right(vec v, const int bits) { return _mm512_srli_epi32(v, (unsigned)bits); }
KERNEL_INLINE vec left(vec v, const int bits) { return _mm512_slli_epi32(v, (unsigned)bits); }
/* In the sum f's last place is FP16's: 2^13 times that of f, or 2^-24 of subnormal numbers. The
 * other term has the other sign, so that their sum is never in a higher binade; just below the
 * lower one it rounds as it would above. Two conversions take longer. */
KERNEL_INLINE float_vec rounded(float_vec f) {
    __m512 large = _mm512_range_ps(_mm512_mul_ps(f, _mm512_set1_ps(-8192.0f)),
                                   _mm512_set1_ps(0.75f), 3); /* of larger magnitude, its sign */
    return _mm512_sub_ps(_mm512_add_ps(f, large), large);
}
KERNEL_INLINE int all_normal(float_vec f) {
    __m512 size = _mm512_abs_ps(f);
    __mmask16 small = _mm512_cmp_ps_mask(size, _mm512_set1_ps(0x1p-14f), _CMP_LT_OQ);
    return _mm512_mask_cmp_ps_mask(small, size, _mm512_setzero_ps(), _CMP_NEQ_OQ) == 0;
}
KERNEL_INLINE void store_halves(uint16_t *p, float_vec f) {
    _mm256_storeu_si256((__m256i *)(void *)p, _mm512_cvtps_ph(f, _MM_FROUND_TO_NEAREST_INT));
}

#include "gguf_lanes.h"

const struct lora_gguf lora_gguf_avx512 = {.widen = widen, .row = row};

#else
typedef int lora_gguf_avx512_not_here; /* a translation unit may not be empty */
#endif
