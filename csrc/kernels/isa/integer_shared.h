/* What the implementations with VNNI take from AVX2's. */
#ifndef LORA_KERNELS_INTEGER_SHARED_H
#define LORA_KERNELS_INTEGER_SHARED_H

#include "integer.h"

static void sum_units(const int8_t *x, uint32_t units, int32_t *sums) {
    lora_integer_avx2.sum_units(x, units, sums);
}
static void widen(const uint8_t *block, uint32_t group, uint16_t *wide) {
    lora_integer_avx2.widen(block, group, wide);
}
static uint16_t max_magnitude(const uint16_t *x, uint32_t count) {
    return lora_integer_avx2.max_magnitude(x, count);
}

#endif
