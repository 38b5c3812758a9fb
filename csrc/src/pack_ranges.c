/* What was written, joined where it touches. */
#include <stdlib.h>

#include "pack.h"

#define LENGTHS 8

static int compare(const void *left, const void *right) {
    const struct lora_range *a = left, *b = right;
    if (a->board != b->board) return a->board < b->board ? -1 : 1;
    if (a->bank != b->bank) return a->bank < b->bank ? -1 : 1;
    return a->offset < b->offset ? -1 : a->offset > b->offset;
}

/* What crc32_shift gives of the lengths seen last: pieces of a matrix have few. */
struct shifts {
    uint64_t bytes[LENGTHS];
    uint32_t shift[LENGTHS];
    uint32_t next;
};

static uint32_t shift_of(struct shifts *known, uint64_t bytes) {
    for (uint32_t i = 0; i < LENGTHS; i++)
        if (known->bytes[i] == bytes) return known->shift[i];
    uint32_t at = known->next++ % LENGTHS;
    known->bytes[at] = bytes;
    return known->shift[at] = crc32_shift(bytes);
}

static uint32_t drop_empty(struct lora_range *ranges, uint32_t count) {
    uint32_t kept = 0;
    for (uint32_t i = 0; i < count; i++)
        if (ranges[i].bytes) ranges[kept++] = ranges[i];
    return kept;
}

uint32_t pack_join(struct lora_range *ranges, uint32_t count) {
    struct shifts known = {0};
    uint32_t kept = 0;
    count = drop_empty(ranges, count);
    qsort(ranges, count, sizeof *ranges, compare);
    for (uint32_t i = 0; i < count; i++) {
        struct lora_range *last = ranges + kept - 1;
        if (kept && last->board == ranges[i].board && last->bank == ranges[i].bank &&
            last->offset + last->bytes == ranges[i].offset) {
            last->crc = crc32_join(last->crc, ranges[i].crc, shift_of(&known, ranges[i].bytes));
            last->bytes += ranges[i].bytes;
        } else {
            ranges[kept++] = ranges[i];
        }
    }
    return kept;
}
