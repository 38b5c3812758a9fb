/* What a row sees of its sequence: the committed positions by the page table, then its uncommitted
 * ancestors and itself in their scratch slots; and where a block of K or V is stored. */
#ifndef LORA_KERNELS_VISIBLE_H
#define LORA_KERNELS_VISIBLE_H

#include <stdbool.h>
#include <stdint.h>

#include "lora/kv_layout.h"
#include "operands.h"

#define SCRATCH_PAGES (LORA_MAX_SCRATCH / LORA_TILE_POSITIONS)

struct visible {
    const uint16_t *pages; /* of the row's sequence */
    uint32_t committed;    /* positions of it */
    uint32_t depth;        /* uncommitted rows seen: path[0..depth-1], the row itself last */
    uint16_t path[LORA_MAX_SCRATCH];
    uint8_t page_used[SCRATCH_PAGES];
};

/* The page table of a sequence; NULL out of range. */
const uint16_t *lora_visible_pages(const struct lora_unit_call *call, uint32_t sequence);

/* The first tile from `tile` on that is not the same whole page to both. */
uint32_t lora_visible_common(const struct visible *a, const struct visible *b, uint32_t tile);

/* An enum lora_status. */
int lora_visible_find(const struct lora_unit_call *call, const struct lora_row *row,
                      struct visible *visible);

/* Whether the slots of its path follow one another. */
bool lora_visible_straight(const struct visible *visible);

/* Whether a row's path begins another's, of the same sequence. */
bool lora_visible_begins(const struct visible *row, const struct visible *longer);

/* Most committed positions of a sequence that a row of the call belongs to. */
uint32_t lora_visible_max(const struct lora_unit_call *call);

/* K (v = 0) or V (v = 1) of one page and local KV head, scales included; NULL out of range. */
static inline const uint8_t *kv_block_at(const struct lora_unit_call *call, uint32_t layer,
                                         uint32_t page, uint32_t head, uint32_t v) {
    struct kv_place place = kv_block_place(call->list, page, layer, head, v);
    return call_at(call, place.bank, place.offset, place.bytes, 2);
}

#endif
