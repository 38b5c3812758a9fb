/* Integer inner loops for AVX-512 with VNNI: twice the lanes for matmuls. dpbusd multiplies
 * unsigned bytes by signed ones and wraps: w + 128 is unsigned, and the sum begins with -128 times
 * the sum of x. */
#if defined(__x86_64__)

#include "exponential_avx512.h"
#include "integer_shared.h"
#include "lanes_512.h"
#include "zeros_avx2.h"

#define VNNI_512_ISA LANES_512_ISA ",avx512vnni"
#define VNNI_512 __attribute__((target(VNNI_512_ISA), always_inline)) static inline
#define LANES_TARGET __attribute__((target(VNNI_512_ISA)))
#define LANES_INLINE VNNI_512
#define INT8_ROWS 12
#define INT4_ROWS 4
#define INT8_BLOCKS 4
#define INT4_BLOCKS 4

typedef __m512i dot_x;

LANES_INLINE vec dot_start(int32_t sum) {
    return _mm512_set1_epi32((int32_t)(0u - 128u * (uint32_t)sum));
}
LANES_INLINE vec dot_weights(vec w) { return _mm512_xor_si512(w, _mm512_set1_epi8(-128)); }
LANES_INLINE dot_x dot_values(const int8_t *p) { return quad(p); }
/* The intrinsic changes the vector's type on the way in and out, and GCC then keeps each sum
 * twice. */
LANES_INLINE vec dot_signed(vec sum, vec w, dot_x x) {
    __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(w), "v"(x));
    return sum;
}
LANES_INLINE vec dot_nibbles(vec sum, vec w, vec x) { return dot_signed(sum, w, x); }

#include "integer_matrix.h"

#define INT8_MANY 16 /* rows: from so many on, preparing weights pays */
#define INT4_MANY 8

#include "integer_many_vnni.h"

#define ATTENTION_TARGET LANES_TARGET
#define ATTENTION_ROWS 4
#define ATTENTION_INLINE VNNI_512
VNNI_512 __m256i attention_start(int32_t sum) {
    return _mm256_set1_epi32((int32_t)(0u - 128u * (uint32_t)sum));
}
/* No intrinsic, as in dot_signed. */
VNNI_512 __m256i dot_bytes(__m256i sum, __m256i e, __m256i v) {
    __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(e), "v"(v));
    return sum;
}
VNNI_512 __m256i attention_signed(__m256i sum, __m256i k, const int8_t *q) {
    int32_t four;
    memcpy(&four, q, sizeof(four));
    return dot_bytes(sum, _mm256_xor_si256(k, _mm256_set1_epi8(-128)), _mm256_set1_epi32(four));
}

#include "integer_attention.h"

LANES_TARGET static int32_t weights(const float *s, uint32_t count, float max, uint8_t *e) {
    uint32_t i = 0;
    __m512i sum = _mm512_setzero_si512();
    for (; i + LANES <= count; i += LANES) {
        __m512 y = exp_wide(_mm512_sub_ps(_mm512_loadu_ps(s + i), _mm512_set1_ps(max)));
        __m512i whole = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_set1_ps(127.0f), y));
        _mm_storeu_si128((__m128i *)(void *)(e + i), _mm512_cvtepi32_epi8(whole));
        sum = _mm512_add_epi32(sum, whole);
    }
    return _mm512_reduce_add_epi32(sum) + lora_integer_avx2.weights(s + i, count - i, max, e + i);
}

LANES_TARGET static uint32_t quantize(const uint16_t *x, uint32_t count, float inverse, int8_t *y) {
    uint32_t i = 0, bad = 0;
    for (; i + LANES <= count; i += LANES) {
        float_vec value = mul(load_halves(x + i), splat(inverse));
        __mmask16 present = _mm512_cmp_ps_mask(value, value, _CMP_ORD_Q);
        value = _mm512_max_ps(_mm512_min_ps(value, splat(127.0f)), splat(-127.0f));
        __m512i whole = _mm512_maskz_cvtps_epi32(present, value);
        _mm_storeu_si128((__m128i *)(void *)(y + i), _mm512_cvtepi32_epi8(whole));
        bad += (uint32_t)__builtin_popcount((unsigned)(uint16_t)~present);
    }
    return bad + lora_integer_avx2.quantize(x + i, count - i, inverse, y + i);
}

int lora_integer_avx512vnni_supported(void) { return __builtin_cpu_supports("avx512vnni"); }

const struct lora_integer lora_integer_avx512vnni = {
    .sum_units = sum_units,
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
typedef int lora_integer_avx512_not_here; /* a translation unit may not be empty */
#endif
