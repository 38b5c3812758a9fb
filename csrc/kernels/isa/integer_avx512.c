/* Integer inner loops for AVX-512 with VNNI: twice the lanes for matmuls. dpbusd multiplies
 * unsigned bytes by signed ones and wraps: w + 128 is unsigned, and the sum begins with -128 times
 * the sum of x. */
#if defined(__x86_64__)

#include "integer_shared.h"
#include "lanes_512.h"
#include "zeros_avx2.h"

#define VNNI_512_ISA LANES_512_ISA ",avx512vnni"
#define VNNI_512 __attribute__((target(VNNI_512_ISA), always_inline)) static inline
#define LANES_TARGET __attribute__((target(VNNI_512_ISA)))
#define LANES_INLINE VNNI_512
#define INT8_ROWS 12
#define INT4_ROWS 4

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

#define ATTENTION_TARGET LANES_TARGET
#define ATTENTION_INLINE VNNI_512
VNNI_512 __m256i attention_start(int32_t sum) {
    return _mm256_set1_epi32((int32_t)(0u - 128u * (uint32_t)sum));
}
VNNI_512 __m256i attention_signed(__m256i sum, __m256i k, const int8_t *q) {
    int32_t four;
    memcpy(&four, q, sizeof(four));
    k = _mm256_xor_si256(k, _mm256_set1_epi8(-128));
    return _mm256_dpbusd_epi32(sum, k, _mm256_set1_epi32(four));
}
VNNI_512 __m256i dot_bytes(__m256i sum, __m256i e, __m256i v) {
    return _mm256_dpbusd_epi32(sum, e, v);
}

#include "integer_attention.h"

int lora_integer_avx512vnni_supported(void) { return __builtin_cpu_supports("avx512vnni"); }

const struct lora_integer lora_integer_avx512vnni = {
    .sum_units = sum_units,
    .int8 = int8,
    .int4 = int4,
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
