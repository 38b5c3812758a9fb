/* Copying past the caches, for what is not read soon. */
#ifndef LORA_STREAM_COPY_H
#define LORA_STREAM_COPY_H

#include <stdint.h>
#include <string.h>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#define STREAM_MIN (16u << 10) /* fewer bytes may be read next: lists, rows, records */
#define STREAM_LINE 64u

/* Weights come in runs for dozens of banks alternately, so a line's page has left the caches since
 * the system cleared it: an ordinary store would read it from memory first. */
static inline void stream_copy(uint8_t *to, const uint8_t *from, uint64_t bytes) {
#if defined(__SSE2__) /* part of every x86-64 */
    if (bytes >= STREAM_MIN) {
        uint64_t head = -(uintptr_t)to % STREAM_LINE;
        memcpy(to, from, head);
        to += head, from += head, bytes -= head;
        for (; bytes >= STREAM_LINE; to += STREAM_LINE, from += STREAM_LINE, bytes -= STREAM_LINE) {
            __m128i part[4];
            for (int i = 0; i < 4; i++)
                part[i] = _mm_loadu_si128((const __m128i *)(const void *)from + i);
            for (int i = 0; i < 4; i++) _mm_stream_si128((__m128i *)(void *)to + i, part[i]);
        }
        _mm_sfence(); /* such stores keep no order: a thread that learns of them must see them */
    }
#endif
    memcpy(to, from, bytes);
}

#endif
