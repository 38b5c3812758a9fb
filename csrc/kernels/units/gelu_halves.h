/* GELU of FP16 values by a table of all of them: one reading of memory each, where the chords need
 * two and two conversions. For many rows: a table of 128 KB does not stay in the cache while a
 * single row's weights are read. docs/numbers.md, 3.9, 4.2. */
#ifndef LORA_KERNELS_GELU_HALVES_H
#define LORA_KERNELS_GELU_HALVES_H

#include <stdint.h>

/* By the bits of x: FP16(gelu(x)). Made on first use. */
const uint16_t *lora_gelu_tanh_halves(void);
const uint16_t *lora_gelu_erf_halves(void);

/* y[i] = table[x[i]]; how many are not finite. y is x, or lies apart. */
uint32_t lora_gelu_by_table(const uint16_t *table, const uint16_t *x, uint32_t count, uint16_t *y);

#endif
