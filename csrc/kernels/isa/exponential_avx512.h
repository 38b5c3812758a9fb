/* exp of sixteen values: every step as in exp32. docs/numbers.md, 4.1. */
#ifndef LORA_KERNELS_EXPONENTIAL_AVX512_H
#define LORA_KERNELS_EXPONENTIAL_AVX512_H

#include <immintrin.h>

#include "lora/coefficients.h"

__attribute__((target("avx512f"), always_inline)) static inline __m512 exp_wide(__m512 x) {
    __mmask16 low = _mm512_cmp_ps_mask(x, _mm512_set1_ps(lora_exp_min), _CMP_LT_OQ);
    __mmask16 high = _mm512_cmp_ps_mask(x, _mm512_set1_ps(lora_exp_max), _CMP_GT_OQ);
    __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(x, _mm512_set1_ps(lora_log2e)),
                                    _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    __m512 r = _mm512_sub_ps(x, _mm512_mul_ps(n, _mm512_set1_ps(lora_ln2_hi)));
    r = _mm512_sub_ps(r, _mm512_mul_ps(n, _mm512_set1_ps(lora_ln2_lo)));
    __m512 p = _mm512_set1_ps(lora_exp_c[0]);
    for (int i = 1; i < 7; i++)
        p = _mm512_add_ps(_mm512_mul_ps(p, r), _mm512_set1_ps(lora_exp_c[i]));
    __m512i whole = _mm512_cvtps_epi32(n), bias = _mm512_set1_epi32(127);
    __m512i half = _mm512_srai_epi32(whole, 1), rest = _mm512_sub_epi32(whole, half);
    p = _mm512_mul_ps(p, _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_add_epi32(half, bias), 23)));
    p = _mm512_mul_ps(p, _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_add_epi32(rest, bias), 23)));
    p = _mm512_mask_mov_ps(p, high, _mm512_set1_ps(__builtin_inff()));
    return _mm512_mask_mov_ps(p, low, _mm512_setzero_ps());
}

#endif
