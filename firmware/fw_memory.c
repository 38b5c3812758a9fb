/* Copies and sums; the firmware has no C library. */
#include "fw.h"

void fw_copy(void *target, const void *source, uint32_t bytes)
{
    uint8_t *to = target;
    const uint8_t *from = source;
    for (uint32_t i = 0; i < bytes; i++)
        to[i] = from[i];
}

void fw_zero(void *target, uint32_t bytes)
{
    uint8_t *to = target;
    for (uint32_t i = 0; i < bytes; i++)
        to[i] = 0;
}

/* zlib's crc32 by half bytes: 64 bytes of table instead of 1 KiB. */
uint32_t fw_crc32(uint32_t crc, const void *data, uint32_t bytes)
{
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

/* FNV-1a over words, in four lanes that do not wait for each other: cheap enough to hold against
 * every fetched chunk at run time. Every step is a bijection, so one damaged word always shows. */
uint32_t fw_seal(const void *data, uint32_t words)
{
    const fw_word *from = data;
    uint32_t a = 1, b = 2, c = 3, d = 4, i = 0;
    for (; i + 4 <= words; i += 4) {
        a = (a ^ from[i]) * 0x01000193u;
        b = (b ^ from[i + 1]) * 0x01000193u;
        c = (c ^ from[i + 2]) * 0x01000193u;
        d = (d ^ from[i + 3]) * 0x01000193u;
    }
    for (; i < words; i++)
        a = (a ^ from[i]) * 0x01000193u;
    return (((a ^ b) * 0x01000193u ^ c) * 0x01000193u ^ d) * 0x01000193u;
}
