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

#define MANY_AT_ONCE INT8_ROWS
#define INT4_MANY 4 /* rows: from so many on, expanding pays */

LANES_INLINE void add_unit(const uint8_t *bytes, const int8_t *x, uint64_t stride, const int rows,
                           vec *sum) {
    for (int q = 0; q < UNIT_QUADS; q++, bytes += TILE_BYTES, x += 4) {
        vec w[VECTORS];
        UNROLLED
        for (int v = 0; v < VECTORS; v++) w[v] = load_vec(bytes + v * VEC_BYTES);
        UNROLLED
        for (int i = 0; i < rows * VECTORS; i++) {
            const int8_t *values = x + (uint64_t)(i / VECTORS) * stride;
            sum[i] = dot_nibbles(sum[i], w[i % VECTORS], quad(values));
        }
    }
}

#include "integer_many.h"

LANES_TARGET static void int4_tile(const struct integer_tile *t) {
    if (t->rows >= INT4_MANY) int4_many(t);
    else int4(t);
}

#define ATTENTION_TARGET LANES_TARGET
#define ATTENTION_ROWS 2
#define ATTENTION_INLINE LANES_INLINE
#define attention_start dot_start
LANES_INLINE __m256i attention_signed(__m256i sum, __m256i k, const int8_t *q) {
    return dot_signed(sum, dot_weights(k), quad(q));
}

#include "integer_attention.h"

static int32_t weights(const float *s, uint32_t count, float max, uint8_t *e) {
    return lora_integer_avx2.weights(s, count, max, e);
}

int lora_integer_avxvnni_supported(void) {
    unsigned a, b, c, d;
    return __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & 1u << 4);
}

const struct lora_integer lora_integer_avxvnni = {
    .sum_units = sum_units,
    .int8 = int8,
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
