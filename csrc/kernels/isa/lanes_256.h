/* Vectors of 256 bits for streams.h and integer_matrix.h. */
#ifndef LORA_KERNELS_LANES_256_H
#define LORA_KERNELS_LANES_256_H

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#define LANES 8
typedef __m256i vec;
typedef __m256 float_vec;

#define LANES_256 __attribute__((target("avx2,f16c"), always_inline)) static inline

LANES_256 vec load_vec(const uint8_t *p) {
    return _mm256_loadu_si256((const __m256i *)(const void *)p);
}
LANES_256 void store_vec(uint8_t *p, vec v) { _mm256_store_si256((__m256i *)(void *)p, v); }
LANES_256 vec zero_vec(void) { return _mm256_setzero_si256(); }
LANES_256 vec add_vec(vec a, vec b) { return _mm256_add_epi32(a, b); }
LANES_256 vec low_nibbles(vec w) { return _mm256_and_si256(w, _mm256_set1_epi8(15)); }
LANES_256 vec high_nibbles(vec w) { return low_nibbles(_mm256_srli_epi16(w, 4)); }
LANES_256 vec quad(const int8_t *p) {
    int32_t four;
    memcpy(&four, p, sizeof(four));
    return _mm256_set1_epi32(four);
}
LANES_256 float_vec to_floats(vec v) { return _mm256_cvtepi32_ps(v); }
LANES_256 float_vec mul(float_vec a, float_vec b) { return _mm256_mul_ps(a, b); }
LANES_256 float_vec sub(float_vec a, float_vec b) { return _mm256_sub_ps(a, b); }
LANES_256 float_vec add(float_vec a, float_vec b) { return _mm256_add_ps(a, b); }
LANES_256 float_vec splat(float f) { return _mm256_set1_ps(f); }
LANES_256 float_vec zero_floats(void) { return _mm256_setzero_ps(); }
LANES_256 void store_floats(float *p, float_vec f) { _mm256_storeu_ps(p, f); }
LANES_256 float_vec load_floats(const float *p) { return _mm256_loadu_ps(p); }
LANES_256 float_vec load_halves(const uint16_t *p) {
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p));
}
LANES_256 float_vec bytes_to_floats(const uint8_t *p) {
    return _mm256_cvtepi32_ps(
        _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)p)));
}

#endif
