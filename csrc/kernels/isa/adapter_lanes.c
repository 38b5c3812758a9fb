#include "adapter_lanes.h"

#include "half.h"

static void down(const float *x, const uint16_t *a, uint32_t count, float *sum) {
    for (uint32_t k = 0; k < count; k++, a += LORA_ADAPTER_GROUP)
        for (uint32_t j = 0; j < LORA_ADAPTER_GROUP; j++)
            sum[j] = sum[j] + x[k] * half_to_float(a[j]);
}

static void up(const float *h, const uint16_t *b, uint32_t count, float *sum) {
    for (uint32_t j = 0; j < count; j++, b += LORA_BLOCK_N)
        for (uint32_t n = 0; n < LORA_BLOCK_N; n++) sum[n] = sum[n] + h[j] * half_to_float(b[n]);
}

const struct adapter_lanes adapter_lanes_plain = {.down = down, .up = up};

#if defined(__x86_64__)
#include <immintrin.h>

/* Products of two FP16 values are exact in FP32: a fused product rounds as often as a plain one. */
#define AVX2 __attribute__((target("avx2,f16c,fma")))
#define VECTORS (LORA_BLOCK_N / 8)

AVX2 static void down_avx2(const float *x, const uint16_t *a, uint32_t count, float *sum) {
    __m256 total = _mm256_loadu_ps(sum);
    for (uint32_t k = 0; k < count; k++, a += LORA_ADAPTER_GROUP) {
        __m256 values = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)a));
        total = _mm256_fmadd_ps(_mm256_broadcast_ss(x + k), values, total);
    }
    _mm256_storeu_ps(sum, total);
}

AVX2 static void up_avx2(const float *h, const uint16_t *b, uint32_t count, float *sum) {
    __m256 total[VECTORS];
    for (int v = 0; v < VECTORS; v++) total[v] = _mm256_loadu_ps(sum + 8 * v);
    for (uint32_t j = 0; j < count; j++, b += LORA_BLOCK_N) {
        __m256 value = _mm256_broadcast_ss(h + j);
        for (int v = 0; v < VECTORS; v++) {
            const __m128i *halves = (const __m128i *)(const void *)(b + 8 * v);
            __m256 values = _mm256_cvtph_ps(_mm_loadu_si128(halves));
            total[v] = _mm256_fmadd_ps(value, values, total[v]);
        }
    }
    for (int v = 0; v < VECTORS; v++) _mm256_storeu_ps(sum + 8 * v, total[v]);
}

const struct adapter_lanes adapter_lanes_avx2 = {.down = down_avx2, .up = up_avx2};
#endif
