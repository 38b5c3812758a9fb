/* FP16 <-> FP32 in plain C, nearest even; every NaN that is made is 0x7e00.
 * docs/numbers.md, 1.1, 1.2. */
#ifndef LORA_KERNELS_HALF_H
#define LORA_KERNELS_HALF_H

#include <stdint.h>
#include <string.h>

#include "lora/abi.h"

static inline float float_of_bits(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

static inline uint32_t bits_of_float(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

static inline float half_to_float(uint16_t half) {
    uint32_t sign = (uint32_t)(half & 0x8000) << 16;
    uint32_t magnitude = (uint32_t)(half & 0x7fff) << 13;
    /* The multiplication is exact and sets the exponent's bias, subnormals included. */
    uint32_t bits = bits_of_float(float_of_bits(magnitude) * 0x1p112f);
    if ((half & 0x7c00) == 0x7c00) bits |= 0x7f800000;
    return float_of_bits(sign | bits);
}

static inline uint16_t float_to_half(float value) {
    uint32_t bits = bits_of_float(value);
    uint32_t sign = (bits >> 16) & 0x8000;
    uint32_t magnitude = bits & 0x7fffffff;
    if (magnitude > 0x7f800000) return LORA_FP16_NAN;
    if (magnitude >= 0x477ff000) /* 65520 and above rounds to infinity */
        return (uint16_t)(sign | 0x7c00);
    if (magnitude < 0x38800000) { /* below 2^-14: one addition rounds on the subnormals' grid */
        float shifted = float_of_bits(magnitude) + 0.5f;
        return (uint16_t)(sign | (bits_of_float(shifted) - 0x3f000000));
    }
    uint32_t odd = (magnitude >> 13) & 1;
    return (uint16_t)(sign | ((magnitude - 0x38000000 + 0xfff + odd) >> 13));
}

#endif
