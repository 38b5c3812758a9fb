/* CRC-32 as zlib's: polynomial 0xedb88320, reflected, eight bytes a turn (slicing by 8). */
#include <pthread.h>
#include <string.h>

#include "lora/abi.h"
#include "lora/transport.h"
#include "lora/host.h"

static uint32_t table[8][256];
static pthread_once_t table_made = PTHREAD_ONCE_INIT;

static void make_table(void) {
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++) crc = (crc >> 1) ^ (0xedb88320u & (0u - (crc & 1)));
        table[0][byte] = crc;
    }
    for (uint32_t byte = 0; byte < 256; byte++)
        for (int slice = 1; slice < 8; slice++)
            table[slice][byte] =
                (table[slice - 1][byte] >> 8) ^ table[0][table[slice - 1][byte] & 0xff];
}

static uint32_t eight_bytes(uint32_t crc, const uint8_t *at) {
    uint32_t low, high;
    memcpy(&low, at, 4);
    memcpy(&high, at + 4, 4);
    low ^= crc;
    return table[7][low & 0xff] ^ table[6][low >> 8 & 0xff] ^ table[5][low >> 16 & 0xff] ^
           table[4][low >> 24] ^ table[3][high & 0xff] ^ table[2][high >> 8 & 0xff] ^
           table[1][high >> 16 & 0xff] ^ table[0][high >> 24];
}

uint32_t lora_crc32(uint32_t crc, const void *data, uint64_t bytes) {
    pthread_once(&table_made, make_table);
    const uint8_t *at = data;
    crc = ~crc;
    for (; bytes >= 8; bytes -= 8, at += 8) crc = eight_bytes(crc, at);
    for (; bytes > 0; bytes--, at++) crc = (crc >> 8) ^ table[0][(crc ^ *at) & 0xff];
    return ~crc;
}
