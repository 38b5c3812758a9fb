/* Copies and sums; the firmware has no C library. */
#include "fw.h"

void fw_copy(void *target, const void *source, uint32_t bytes) {
    uint8_t *to = target;
    const uint8_t *from = source;
    if ((((uintptr_t)to | (uintptr_t)from) & 3) == 0) {
        fw_word *words = target;
        const fw_word *read = source;
        for (; bytes >= 16; bytes -= 16, words += 4, read += 4) {
            fw_word a = read[0], b = read[1], c = read[2], d = read[3];
            words[0] = a;
            words[1] = b;
            words[2] = c;
            words[3] = d;
        }
        for (; bytes >= 4; bytes -= 4) *words++ = *read++;
        to = (uint8_t *)words;
        from = (const uint8_t *)read;
    }
    while (bytes--) *to++ = *from++;
}

void fw_zero(void *target, uint32_t bytes) {
    uint8_t *to = target;
    if (((uintptr_t)to & 3) == 0) {
        fw_word *words = target;
        for (; bytes >= 16; bytes -= 16, words += 4) words[0] = words[1] = words[2] = words[3] = 0;
        for (; bytes >= 4; bytes -= 4) *words++ = 0;
        to = (uint8_t *)words;
    }
    while (bytes--) *to++ = 0;
}

/* zlib's crc32 by half bytes: 64 bytes of table instead of 1 KiB. */
uint32_t fw_crc32(uint32_t crc, const void *data, uint32_t bytes) {
    static const uint32_t table[16] = {
        0x00000000, 0x1db71064, 0x3b6e20c8, 0x26d930ac, 0x76dc4190, 0x6b6b51f4,
        0x4db26158, 0x5005713c, 0xedb88320, 0xf00f9344, 0xd6d6a3e8, 0xcb61b38c,
        0x9b64c2b0, 0x86d3d2d4, 0xa00ae278, 0xbdbdf21c,
    };
    const uint8_t *from = data;
    crc = ~crc;
    for (uint32_t i = 0; i < bytes; i++) {
        crc ^= from[i];
        crc = crc >> 4 ^ table[crc & 15];
        crc = crc >> 4 ^ table[crc & 15];
    }
    return ~crc;
}

/* A sum over words in eight independent lanes: cheap enough to check every fetched chunk at run
 * time. Every step is a bijection (33 and PRIME are odd), so one damaged word always shows. */
#define PRIME 0x01000193u
typedef uint32_t lanes __attribute__((vector_size(16), aligned(4), may_alias));

uint32_t fw_seal(const void *data, uint32_t words) {
    const fw_word *from = data;
    lanes a = {1, 2, 3, 4}, b = {5, 6, 7, 8};
    uint32_t i = 0, seal = 0;
    for (; i + 8 <= words; i += 8) {
        a ^= *(const lanes *)(from + i);
        b ^= *(const lanes *)(from + i + 4);
        a += a << 5;
        b += b << 5;
    }
    for (; i < words; i++) seal = (seal ^ from[i]) * PRIME;
    for (uint32_t lane = 0; lane < 4; lane++) seal = ((seal ^ a[lane]) * PRIME ^ b[lane]) * PRIME;
    return seal;
}
