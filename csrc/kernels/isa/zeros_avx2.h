/* Zero points of 32 columns, a byte each. */
#ifndef LORA_KERNELS_ZEROS_AVX2_H
#define LORA_KERNELS_ZEROS_AVX2_H

#include <immintrin.h>
#include <stdint.h>

__attribute__((target("avx2"), always_inline)) static inline void spread_zeros(const uint8_t *pairs,
                                                                               uint8_t zeros[32]) {
    __m128i both = _mm_loadu_si128((const __m128i *)(const void *)pairs);
    __m128i even = _mm_and_si128(both, _mm_set1_epi8(15));
    __m128i odd = _mm_and_si128(_mm_srli_epi16(both, 4), _mm_set1_epi8(15));
    __m128i *target = (__m128i *)(void *)zeros;
    _mm_storeu_si128(target, _mm_unpacklo_epi8(even, odd));
    _mm_storeu_si128(target + 1, _mm_unpackhi_epi8(even, odd));
}

#endif
