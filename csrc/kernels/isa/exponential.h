/* exp, silu, gelu and tanh in FP32, spelled as in the NumPy model. docs/numbers.md, 4.1, 4.2, 4.7,
 * 3.10. */
#ifndef LORA_KERNELS_EXPONENTIAL_H
#define LORA_KERNELS_EXPONENTIAL_H

#include <math.h>

#include "half.h"
#include "lora/coefficients.h"

static inline float exp32(float x) {
    if (x < lora_exp_min) return 0.0f;
    if (!(x <= lora_exp_max)) return x > lora_exp_max ? float_of_bits(0x7f800000) : x;
    /* Nearest even integer of a value below 2^22: the sum has no bits for fractions. */
    float n = (x * lora_log2e + 0x1.8p+23f) - 0x1.8p+23f;
    float r = (x - n * lora_ln2_hi) - n * lora_ln2_lo;
    float p = lora_exp_c[0];
    for (int i = 1; i < 7; i++) p = p * r + lora_exp_c[i];
    int32_t whole = (int32_t)n;
    int32_t half = whole >= 0 ? whole / 2 : -((1 - whole) / 2);
    p = p * float_of_bits((uint32_t)(half + 127) << 23);
    return p * float_of_bits((uint32_t)(whole - half + 127) << 23);
}

static inline float silu32(float g) { return g / (1.0f + exp32(-g)); }

static inline float swiglu_clamped32(float g, float u, float limit, float alpha) {
    g = g > limit ? limit : g;
    u = u > limit ? limit : u < -limit ? -limit : u;
    return (g / (1.0f + exp32(-(g * alpha)))) * (u + 1.0f);
}

#define TANH_POLYNOMIAL 0.625f /* below it by the polynomial, from it on by exp */

static inline float tanh32(float x) {
    float size = fabsf(x);
    if (!(size < TANH_POLYNOMIAL)) return copysignf(1.0f - 2.0f / (exp32(size + size) + 1.0f), x);
    float z = x * x, p = lora_tanh_c[0];
    for (int i = 1; i < 5; i++) p = p * z + lora_tanh_c[i];
    return x + (x * z) * p;
}

static inline float gelu32(float x, const float *a, const float *b) {
    if (!(x >= -8.0f) || !(x < 8.0f)) return x < -8.0f ? 0.0f : x;
    float scaled = x * 64.0f;
    int32_t i = (int32_t)scaled;
    i -= (float)i > scaled; /* floor */
    float slope = a[i + 512] * x;
    return slope + b[i + 512];
}

#endif
