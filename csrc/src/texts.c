/* Texts of a GGUF file, each behind 8 bytes that hold its length: a vocabulary has hundreds of
 * thousands. */
#include <string.h>

#include "lora/opening.h"

#define LEAD 8

static uint64_t length_at(const uint8_t *at) {
    uint64_t length = 0;
    for (int byte = 0; byte < LEAD; byte++) length |= (uint64_t)at[byte] << 8 * byte;
    return length;
}

uint64_t lora_texts_end(const uint8_t *file, uint64_t bytes, uint64_t start, uint64_t count) {
    uint64_t at = start;
    for (uint64_t i = 0; i < count; i++) {
        if (at > bytes || bytes - at < LEAD) return 0;
        uint64_t length = length_at(file + at);
        at += LEAD;
        if (length > bytes - at) return 0;
        at += length;
    }
    return at;
}

uint32_t lora_texts_joined(const uint8_t *texts, uint64_t count, uint8_t separator, uint8_t *out) {
    for (uint64_t i = 0; i < count; i++) {
        uint64_t length = length_at(texts);
        texts += LEAD;
        if (length && memchr(texts, separator, length)) return 0;
        memcpy(out, texts, length);
        out[length] = separator;
        out += length + 1;
        texts += length;
    }
    return 1;
}
