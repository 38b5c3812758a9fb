/* The positions that a row attends to. docs/numbers.md, 3.8. */
#include "visible.h"

#include <string.h>

#define TILE LORA_TILE_POSITIONS

static int find_path(const struct lora_step_state *state, const struct lora_row *row,
                     struct visible *visible) {
    uint16_t reversed[LORA_MAX_SCRATCH];
    uint32_t depth = 0;
    for (int32_t slot = row->slot; slot != -1; slot = state->slots[slot].parent) {
        if (slot < 0 || slot >= LORA_MAX_SCRATCH || depth == LORA_MAX_SCRATCH) return LORA_ERR_ROW;
        reversed[depth++] = (uint16_t)slot;
    }
    for (uint32_t i = 0; i < SCRATCH_PAGES; i++) visible->page_used[i] = 0;
    for (uint32_t i = 0; i < depth; i++) {
        visible->path[i] = reversed[depth - 1 - i];
        visible->page_used[visible->path[i] / TILE] = 1;
    }
    visible->depth = depth;
    return LORA_OK;
}

const uint16_t *lora_visible_pages(const struct lora_unit_call *call, uint32_t sequence) {
    uint64_t bytes = 2ull * call->list->max_tiles;
    uint64_t offset = (uint64_t)call->list->table_line * LORA_LINE_BYTES +
                      sequence * padded_lines(bytes);
    return call_at(call, call->list->table_bank, offset, bytes, 2);
}

uint32_t lora_visible_common(const struct visible *a, const struct visible *b, uint32_t tile) {
    uint32_t least = a->committed < b->committed ? a->committed : b->committed;
    while (tile < least / TILE && a->pages[tile] == b->pages[tile]) tile++;
    return tile;
}

int lora_visible_find(const struct lora_unit_call *call, const struct lora_row *row,
                      struct visible *visible) {
    const struct lora_list *list = call->list;
    if (row->sequence >= LORA_MAX_SEQUENCES) return LORA_ERR_ROW;
    visible->committed = call->state->lengths[row->sequence];
    visible->pages = lora_visible_pages(call, row->sequence);
    if (!visible->pages) return LORA_ERR_ADDRESS;
    if (visible->committed > (uint64_t)list->max_tiles * TILE) return LORA_ERR_ROW;
    return find_path(call->state, row, visible);
}

bool lora_visible_straight(const struct visible *visible) {
    for (uint32_t d = 1; d < visible->depth; d++)
        if (visible->path[d] != visible->path[0] + d) return false;
    return visible->depth > 0;
}

bool lora_visible_begins(const struct visible *row, const struct visible *longer) {
    return row->pages == longer->pages && row->committed == longer->committed &&
           row->depth <= longer->depth &&
           memcmp(row->path, longer->path, row->depth * sizeof row->path[0]) == 0;
}

uint32_t lora_visible_max(const struct lora_unit_call *call) {
    uint32_t max = 0;
    for (uint32_t i = 0; i < call_rows(call); i++) {
        uint32_t sequence = call_row(call, i)->sequence;
        uint32_t length = sequence < LORA_MAX_SEQUENCES ? call->state->lengths[sequence] : 0;
        max = length > max ? length : max;
    }
    uint64_t room = (uint64_t)call->list->max_tiles * TILE;
    return max < room ? max : (uint32_t)room;
}
