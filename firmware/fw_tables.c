/* The tables that outlive a step: committed lengths and scratch slots here, page tables in board
 * memory. All are kept as they were before the last step, so that it may be run again. */
#include "fw.h"

/* The first pages of the pool hold the scratch slots. */
uint32_t fw_scratch_pages(const struct lora_list *list) {
    return (list->max_scratch + LORA_TILE_POSITIONS - 1) / LORA_TILE_POSITIONS;
}

uint32_t fw_table_row_bytes(const struct lora_list *list) {
    return (list->max_tiles * 2 + LORA_LINE_BYTES - 1) / LORA_LINE_BYTES * LORA_LINE_BYTES;
}

static uint64_t entry_offset(const struct lora_list *list, uint32_t sequence, uint32_t tile) {
    return (uint64_t)list->table_line * LORA_LINE_BYTES +
           (uint64_t)sequence * fw_table_row_bytes(list) + tile * 2;
}

uint32_t fw_table_page(const struct lora_list *list, uint32_t sequence, uint32_t tile) {
    uint16_t page;
    hal_read(list->table_bank, entry_offset(list, sequence, tile), &page, sizeof page);
    return page;
}

static void store_page(const struct lora_list *list, uint32_t sequence, uint32_t tile,
                       uint32_t page) {
    uint16_t entry = (uint16_t)page;
    hal_write(list->table_bank, entry_offset(list, sequence, tile), &entry, sizeof entry);
}

uint32_t fw_table_write(struct fw *fw, uint32_t sequence, uint32_t tile, uint32_t page) {
    const struct lora_list *list = &fw->list->header;
    struct fw_undo *undo = &fw->undo[fw->undo_count];
    if (fw->undo_count == LORA_MAX_KV_OPS)
        return fw_fail(fw, LORA_ERR_KV, fw->undo_count, LORA_MAX_KV_OPS);
    undo->sequence = (uint16_t)sequence;
    undo->tile = (uint16_t)tile;
    undo->page = (uint16_t)fw_table_page(list, sequence, tile);
    fw->undo_count++;
    store_page(list, sequence, tile, page);
    return FW_MORE;
}

uint32_t fw_table_check(struct fw *fw, uint32_t sequence, uint32_t first, uint32_t last) {
    const struct lora_list *list = &fw->list->header;
    uint16_t pages[32];
    if (last > list->max_tiles) return fw_fail(fw, LORA_ERR_KV, last, list->max_tiles);
    while (first < last) {
        uint32_t count = last - first < 32 ? last - first : 32;
        hal_read(list->table_bank, entry_offset(list, sequence, first), pages, count * 2);
        for (uint32_t i = 0; i < count; i++)
            if (pages[i] < fw_scratch_pages(list) || pages[i] >= list->page_count) {
                fw->error.bank = list->table_bank;
                fw->error.offset = entry_offset(list, sequence, first + i);
                return fw_fail(fw, LORA_ERR_KV, pages[i], list->page_count);
            }
        first += count;
    }
    return FW_MORE;
}

void fw_tables_backup(struct fw *fw) {
    fw_copy(fw->before_lengths, fw->state.lengths, sizeof fw->before_lengths);
    for (uint32_t word = 0; word < LORA_MAX_SCRATCH / 32; word++) {
        uint32_t slot = word * 32;
        for (uint32_t left = fw->touched[word]; left; left >>= 1, slot++)
            if (left & 1)
                fw_copy(&fw->before_slots[slot], &fw->state.slots[slot], sizeof(struct lora_slot));
        fw->touched[word] = 0;
    }
    fw->undo_count = 0;
    fw->undo_list = fw->state.list_id;
}

void fw_state_restore(struct fw *fw) {
    fw_copy(fw->state.lengths, fw->before_lengths, sizeof fw->before_lengths);
    fw_copy(fw->state.slots, fw->before_slots, sizeof fw->before_slots);
    for (uint32_t word = 0; word < LORA_MAX_SCRATCH / 32; word++)
        fw->used[word] = fw->touched[word] = FW_NONE;
}

/* Newest first: an entry may have been written twice. A table whose arena is gone stays as it
 * is. */
void fw_tables_restore(struct fw *fw) {
    const struct lora_list *list = &fw->lists[fw->undo_list].header;
    fw_state_restore(fw);
    while (fw->undo_count > 0) {
        const struct fw_undo *undo = &fw->undo[--fw->undo_count];
        uint64_t offset = entry_offset(list, undo->sequence, undo->tile);
        if (fw_in_arena(fw, list->table_bank, offset, 2))
            store_page(list, undo->sequence, undo->tile, undo->page);
    }
}
