/* The CRC-32 of a whole from those of its parts: multiplication by x^(8 * bytes) modulo the
 * polynomial, whose bits are reflected as in crc32.c. */
#include "pack.h"

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

uint32_t crc32_shift(uint64_t bytes) {
    uint32_t shift = ONE, square = ONE >> 8; /* x^8: one byte */
    for (; bytes; bytes >>= 1) {
        if (bytes & 1) shift = multiply(shift, square);
        square = multiply(square, square);
    }
    return shift;
}

uint32_t crc32_join(uint32_t first, uint32_t second, uint32_t shift) {
    return multiply(shift, first) ^ second;
}

uint32_t lora_crc32_combine(uint32_t first, uint32_t second, uint64_t second_bytes) {
    return crc32_join(first, second, crc32_shift(second_bytes));
}
