/* Inner loops of adapters: FP16 values as a slot stores them, sums in order. */
#ifndef LORA_KERNELS_ADAPTER_LANES_H
#define LORA_KERNELS_ADAPTER_LANES_H

#include <stdint.h>

#include "lora/abi.h"

struct adapter_lanes {
    /* sum[8] += x[k]*A[k][8], k = 0..count-1 in order. */
    void (*down)(const float *x, const uint16_t *a, uint32_t count, float *sum);
    /* sum[32] += h[j]*B[j][32], j = 0..count-1 in order. */
    void (*up)(const float *h, const uint16_t *b, uint32_t count, float *sum);
};

extern const struct adapter_lanes adapter_lanes_plain;
extern const struct adapter_lanes adapter_lanes_avx2; /* where the avx2 variant is supported */

#endif
