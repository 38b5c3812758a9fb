/* Vectors of 512 bits for streams.h and integer_matrix.h. */
#ifndef LORA_KERNELS_LANES_512_H
#define LORA_KERNELS_LANES_512_H

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#define LANES 16
typedef __m512i vec;
typedef __m512 float_vec;

#define LANES_512_ISA "avx512f,avx512bw,avx512vl,avx512dq,avx2,f16c"
#define LANES_512 __attribute__((target(LANES_512_ISA), always_inline)) static inline

LANES_512 vec load_vec(const uint8_t *p) { return _mm512_loadu_si512((const void *)p); }
LANES_512 void store_vec(uint8_t *p, vec v) { _mm512_store_si512((void *)p, v); }
LANES_512 vec zero_vec(void) { return _mm512_setzero_si512(); }
LANES_512 vec add_vec(vec a, vec b) { return _mm512_add_epi32(a, b); }
LANES_512 vec low_nibbles(vec w) { return _mm512_and_si512(w, _mm512_set1_epi8(15)); }
LANES_512 vec high_nibbles(vec w) { return low_nibbles(_mm512_srli_epi16(w, 4)); }
LANES_512 vec quad(const int8_t *p) {
    int32_t four;
    memcpy(&four, p, sizeof(four));
    return _mm512_set1_epi32(four);
}
LANES_512 float_vec to_floats(vec v) { return _mm512_cvtepi32_ps(v); }
LANES_512 float_vec mul(float_vec a, float_vec b) { return _mm512_mul_ps(a, b); }
LANES_512 float_vec sub(float_vec a, float_vec b) { return _mm512_sub_ps(a, b); }
LANES_512 float_vec add(float_vec a, float_vec b) { return _mm512_add_ps(a, b); }
LANES_512 float_vec splat(float f) { return _mm512_set1_ps(f); }
LANES_512 float_vec zero_floats(void) { return _mm512_setzero_ps(); }
LANES_512 void store_floats(float *p, float_vec f) { _mm512_storeu_ps(p, f); }
LANES_512 float_vec load_floats(const float *p) { return _mm512_loadu_ps(p); }
LANES_512 float_vec load_halves(const uint16_t *p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)p));
}
LANES_512 float_vec bytes_to_floats(const uint8_t *p) {
    return _mm512_cvtepi32_ps(
        _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)p)));
}

#endif
