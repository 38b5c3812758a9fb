/* What the library's own parts use of CRC-32 beyond lora_crc32 (lora/host.h). */
#ifndef LORA_CRC32_H
#define LORA_CRC32_H

#include <stdint.h>

/* lora_crc32 from the start, with the byte at `at`, one of 16..31, counted as 0. Nothing is written
 * meanwhile: a byte just stored would hold up the wide load of its neighbours. */
uint32_t lora_crc32_without(const void *data, uint64_t bytes, uint32_t at);

#endif
