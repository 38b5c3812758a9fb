/* The card's main loop, and the two functions that the compiler calls by itself. */
#include "fw.h"

static struct fw board;

void card_main(void);
void *memcpy(void *target, const void *source, uint32_t bytes);
void *memset(void *target, int value, uint32_t bytes);

void card_main(void) {
    fw_reset(&board);
    for (;;) (void)fw_poll(&board);
}

void *memcpy(void *target, const void *source, uint32_t bytes) {
    uint8_t *to = target;
    const uint8_t *from = source;
    while (bytes--) *to++ = *from++;
    return target;
}

void *memset(void *target, int value, uint32_t bytes) {
    uint8_t *to = target;
    while (bytes--) *to++ = (uint8_t)value;
    return target;
}
