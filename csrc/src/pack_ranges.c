/* What was written, joined where it touches. */
#include <stdlib.h>

#include "pack.h"

static int compare(const void *left, const void *right) {
    const struct lora_range *a = left, *b = right;
    if (a->board != b->board) return a->board < b->board ? -1 : 1;
    if (a->bank != b->bank) return a->bank < b->bank ? -1 : 1;
    return a->offset < b->offset ? -1 : a->offset > b->offset;
}

uint32_t pack_join(struct lora_range *ranges, uint32_t count) {
    uint32_t kept = 0, shift = 0;
    uint64_t shift_bytes = 0; /* of `shift`: most ranges are equally long */
    qsort(ranges, count, sizeof *ranges, compare);
    for (uint32_t i = 0; i < count; i++) {
        struct lora_range *last = ranges + kept - 1;
        if (!ranges[i].bytes) continue;
        if (kept && last->board == ranges[i].board && last->bank == ranges[i].bank &&
            last->offset + last->bytes == ranges[i].offset) {
            if (shift_bytes != ranges[i].bytes) shift = crc32_shift(shift_bytes = ranges[i].bytes);
            last->crc = crc32_join(last->crc, ranges[i].crc, shift);
            last->bytes += ranges[i].bytes;
        } else {
            ranges[kept++] = ranges[i];
        }
    }
    return kept;
}
