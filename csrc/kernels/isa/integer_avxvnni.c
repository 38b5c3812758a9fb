/* Integer inner loops for AVX2 with VNNI in VEX encoding. dpbusd multiplies unsigned bytes by
 * signed ones and wraps: w + 128 is unsigned, and the sum begins with -128 times the sum of x. */
#include "integer.h"

#if LORA_HAS_AVXVNNI

#include <cpuid.h>

#include "integer_shared.h"
#include "lanes_256.h"
#include "zeros_avx2.h"

#define LANES_TARGET __attribute__((target("avx2,f16c,avxvnni")))
#define LANES_INLINE __attribute__((target("avx2,f16c,avxvnni"), always_inline)) static inline
#define INT8_ROWS 3
#define INT4_ROWS 2
#define INT8_BLOCKS 2
#define INT4_BLOCKS 1

typedef __m256i dot_x;

LANES_INLINE vec dot_start(int32_t sum) {
    return _mm256_set1_epi32((int32_t)(0u - 128u * (uint32_t)sum));
}
LANES_INLINE vec dot_weights(vec w) { return _mm256_xor_si256(w, _mm256_set1_epi8(-128)); }
LANES_INLINE dot_x dot_values(const int8_t *p) { return quad(p); }
LANES_INLINE vec dot_signed(vec sum, vec w, dot_x x) { return _mm256_dpbusd_avx_epi32(sum, w, x); }
LANES_INLINE vec dot_bytes(vec sum, vec e, vec v) { return _mm256_dpbusd_avx_epi32(sum, e, v); }
LANES_INLINE vec dot_nibbles(vec sum, vec w, vec x) { return _mm256_dpbusd_avx_epi32(sum, w, x); }

#include "integer_matrix.h"

#define INT8_MANY 8 /* rows: from so many on, preparing weights pays */
#define INT4_MANY 4

#include "integer_many_vnni.h"

#define ATTENTION_TARGET LANES_TARGET
#define ATTENTION_ROWS 2
#define ATTENTION_INLINE LANES_INLINE
#define attention_start dot_start
LANES_INLINE __m256i attention_signed(__m256i sum, __m256i k, const int8_t *q) {
    return dot_signed(sum, dot_weights(k), quad(q));
}

#include "integer_attention.h"

static uint32_t quantize(const uint16_t *x, uint32_t count, float inverse, int8_t *y) {
    return lora_integer_avx2.quantize(x, count, inverse, y);
}

static int32_t weights(const float *s, uint32_t count, float max, uint8_t *e) {
    return lora_integer_avx2.weights(s, count, max, e);
}

int lora_integer_avxvnni_supported(void) {
    unsigned a, b, c, d;
    return __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & 1u << 4);
}

const struct lora_integer lora_integer_avxvnni = {
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
typedef int lora_integer_avxvnni_not_here; /* a translation unit may not be empty */
#endif
