/* The native kernels: C that equals the NumPy model bit for bit. The fastest variant that the
 * machine supports is taken at first use. */
#ifndef LORA_NATIVE_H
#define LORA_NATIVE_H

#include <stdint.h>

extern const struct lora_kernels lora_kernels_native;

/* Variants, slowest first: "plain", "avx2", "avx2-vnni", "avx512", "avx512-vnni". NULL past the
 * last one. */
const char *lora_native_variant(uint32_t index);
/* 1 when this machine can run it. */
int lora_native_supported(uint32_t index);
/* Takes one variant from now on, for tests; returns 0, or -1 when unknown or not supported.
 * NULL goes back to the fastest. Not while a kernel runs. */
int lora_native_force(const char *variant);
const char *lora_native_current(void);

#endif
