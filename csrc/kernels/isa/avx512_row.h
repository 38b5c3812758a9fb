/* avx512_row.c: a row whose weights are in the cache. */
#ifndef LORA_KERNELS_AVX512_ROW_H
#define LORA_KERNELS_AVX512_ROW_H

#include <stdint.h>

void lora_avx512_row_cached(const float *x, const uint32_t starts[9], const uint16_t *const *blocks,
                            const uint16_t *const *next, float out[32]);

#endif
