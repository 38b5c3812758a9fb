/* The CRC-32 of a whole from those of its parts: multiplication by x^(8 * bytes) modulo the
 * polynomial, whose bits are reflected as in crc32.c. */
#include <stdint.h>

#include "lora/pack.h"

#define POLYNOMIAL 0xedb88320u
#define ONE 0x80000000u

static uint32_t multiply(uint32_t a, uint32_t b) {
    uint32_t product = 0;
    for (uint32_t bit = ONE; bit; bit >>= 1) {
        if (a & bit) product ^= b;
        b = (b >> 1) ^ (POLYNOMIAL & (0u - (b & 1)));
    }
    return product;
}

uint32_t lora_crc32_combine(uint32_t first, uint32_t second, uint64_t second_bytes) {
    uint32_t shift = ONE, square = ONE >> 8; /* x^8: one byte */
    for (; second_bytes; second_bytes >>= 1) {
        if (second_bytes & 1) shift = multiply(shift, square);
        square = multiply(square, square);
    }
    return multiply(shift, first) ^ second;
}
