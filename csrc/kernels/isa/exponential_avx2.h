/* exp of eight values: every step as in exp32. docs/numbers.md, 4.1. */
#ifndef LORA_KERNELS_EXPONENTIAL_AVX2_H
#define LORA_KERNELS_EXPONENTIAL_AVX2_H

#include <immintrin.h>

#include "lora/coefficients.h"

__attribute__((target("avx2"), always_inline)) static inline __m256 exp_vector(__m256 x) {
    __m256 low = _mm256_set1_ps(lora_exp_min), high = _mm256_set1_ps(lora_exp_max);
    __m256 inside = _mm256_and_ps(_mm256_cmp_ps(x, low, _CMP_GE_OQ),
                                  _mm256_cmp_ps(x, high, _CMP_LE_OQ));
    __m256 safe = _mm256_and_ps(x, inside);
    __m256 n = _mm256_round_ps(_mm256_mul_ps(safe, _mm256_set1_ps(lora_log2e)),
                               _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    __m256 r = _mm256_sub_ps(safe, _mm256_mul_ps(n, _mm256_set1_ps(lora_ln2_hi)));
    r = _mm256_sub_ps(r, _mm256_mul_ps(n, _mm256_set1_ps(lora_ln2_lo)));
    __m256 p = _mm256_set1_ps(lora_exp_c[0]);
    for (int i = 1; i < 7; i++)
        p = _mm256_add_ps(_mm256_mul_ps(p, r), _mm256_set1_ps(lora_exp_c[i]));
    __m256i whole = _mm256_cvtps_epi32(n), bias = _mm256_set1_epi32(127);
    __m256i half = _mm256_srai_epi32(whole, 1);
    __m256i rest = _mm256_sub_epi32(whole, half);
    p = _mm256_mul_ps(p, _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(half, bias), 23)));
    p = _mm256_mul_ps(p, _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(rest, bias), 23)));
    __m256 outside = _mm256_blendv_ps(x, _mm256_setzero_ps(), _mm256_cmp_ps(x, low, _CMP_LT_OQ));
    __m256 infinity = _mm256_set1_ps(__builtin_inff());
    outside = _mm256_blendv_ps(outside, infinity, _mm256_cmp_ps(x, high, _CMP_GT_OQ));
    return _mm256_blendv_ps(outside, p, inside);
}

#endif
