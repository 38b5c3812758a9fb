/* What a row sees of its sequence: the committed positions by the page table, then its uncommitted
 * ancestors and itself in their scratch slots; and where a block of K or V is stored. */
#ifndef LORA_KERNELS_VISIBLE_H
#define LORA_KERNELS_VISIBLE_H

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

/* An enum lora_status. */
int lora_visible_find(const struct lora_unit_call *call, const struct lora_row *row,
                      struct visible *visible);

/* Most committed positions of a sequence that a row of the call belongs to. */
uint32_t lora_visible_max(const struct lora_unit_call *call);

/* K (v = 0) or V (v = 1) of one page and local KV head, scales included; NULL out of range. */
static inline const uint8_t *kv_block_at(const struct lora_unit_call *call, uint32_t layer,
                                         uint32_t page, uint32_t head, uint32_t v) {
    const struct lora_list *list = call->list;
    uint64_t lines = kv_block_lines(list), j = kv_block_number(list, page, layer, head, v);
    uint32_t bank = list->kv_bank_first + (uint32_t)(j % list->kv_bank_count);
    uint64_t line = list->kv_line + j / list->kv_bank_count * lines;
    return call_at(call, bank, line * LORA_LINE_BYTES, lines * LORA_LINE_BYTES, 2);
}

#endif
