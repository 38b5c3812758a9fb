/* What a recurrence keeps of each position, and the states behind full pages, in the cache's pages
 * (abi.h, struct lora_recurrence). */
#ifndef LORA_KERNELS_KEPT_H
#define LORA_KERNELS_KEPT_H

#include <stdbool.h>
#include <stdint.h>

#include "job.h"
#include "visible.h"

struct kept_position {
    uint32_t page, lane;
};

struct kept { /* of one KV head */
    const struct lora_unit_call *call;
    const struct lora_recurrence *command;
    uint32_t head;
};

static inline struct kept_position kept_slot(uint32_t slot) {
    return (struct kept_position){slot / LORA_TILE_POSITIONS, slot % LORA_TILE_POSITIONS};
}

/* Position p of a row's text; p counts from 0, committed positions first. */
static inline struct kept_position kept_at(const struct visible *seen, uint32_t p) {
    if (p >= seen->committed) return kept_slot(seen->path[p - seen->committed]);
    return (struct kept_position){seen->pages[p / LORA_TILE_POSITIONS], p % LORA_TILE_POSITIONS};
}

/* Columns first .. first + count - 1 of a position, as FP32, or from FP16. An enum lora_status. */
int lora_kept_read(const struct kept *kept, struct kept_position at, uint32_t first, uint32_t count,
                   float *values);
int lora_kept_write(const struct kept *kept, struct kept_position at, uint32_t first,
                    uint32_t count, const uint16_t *values);

/* `count` values from value `first` on of the state behind a page, to the page or from it. */
int lora_kept_state(const struct kept *kept, uint32_t page, uint64_t first, uint64_t count,
                    float *values, bool store);

#endif
