/* STEP: the rows. Each is checked against the tables as the header's operations left them and takes
 * its scratch slot. */
#include "fw.h"

#define ROW_FLAGS                                                                                  \
    (LORA_ROW_WANT_LOGITS | LORA_ROW_WANT_ARGMAX | LORA_ROW_WANT_HIDDEN | LORA_ROW_VECTOR)

static uint32_t fail_row(struct fw *fw, uint32_t found, uint32_t expected) {
    return fw_fail(fw, LORA_ERR_ROW, found, expected);
}

static uint32_t check_input(struct fw *fw, const struct lora_row *row) {
    const struct lora_list *list = &fw->list->header;
    uint32_t bytes = list->embed_columns * 2;
    if (!(row->flags & LORA_ROW_VECTOR))
        return row->token < list->vocabulary ? (uint32_t)FW_MORE
                                             : fail_row(fw, row->token, list->vocabulary);
    if (bytes == 0 || bytes > fw->header.bytes || row->token > fw->header.bytes - bytes ||
        row->token < sizeof fw->header || row->token % 2 != 0)
        return fail_row(fw, row->token, fw->header.bytes);
    return FW_MORE;
}

static uint32_t check_slot(struct fw *fw, const struct lora_row *row) {
    uint32_t slot = (uint32_t)row->slot;
    if (row->slot < 0 || slot >= fw->list->header.max_scratch)
        return fail_row(fw, slot, fw->list->header.max_scratch);
    if (fw->state.slots[slot].valid || fw->committed[slot / 32] >> slot % 32 & 1)
        return fail_row(fw, slot, FW_NONE);
    return FW_MORE;
}

static uint32_t check_parent(struct fw *fw, const struct lora_row *row) {
    const struct lora_slot *parent;
    uint32_t length = fw->state.lengths[row->sequence];
    if (row->parent == -1)
        return row->position == length ? (uint32_t)FW_MORE : fail_row(fw, row->position, length);
    if (row->parent < 0 || (uint32_t)row->parent >= fw->list->header.max_scratch)
        return fail_row(fw, (uint32_t)row->parent, fw->list->header.max_scratch);
    parent = &fw->state.slots[row->parent];
    if (!parent->valid || parent->sequence != row->sequence)
        return fail_row(fw, (uint32_t)row->parent, FW_NONE);
    if (row->position != parent->position + 1)
        return fail_row(fw, row->position, parent->position + 1);
    return FW_MORE;
}

/* Attention reads every committed tile of a sequence; once a step is enough. */
static uint32_t check_tables(struct fw *fw, uint32_t sequence) {
    uint32_t length = fw->state.lengths[sequence];
    uint32_t *seen = &fw->tables_seen[sequence / 32];
    if (*seen >> sequence % 32 & 1) return FW_MORE;
    *seen |= 1u << sequence % 32;
    return fw_table_check(fw, sequence, 0,
                          length / LORA_TILE_POSITIONS + (length % LORA_TILE_POSITIONS != 0));
}

static uint32_t check_row(struct fw *fw, const struct lora_row *row) {
    const struct lora_list *list = &fw->list->header;
    if (row->sequence >= list->max_sequences)
        return fail_row(fw, row->sequence, list->max_sequences);
    if (row->position >= list->positions || row->position / LORA_TILE_POSITIONS >= list->max_tiles)
        return fail_row(fw, row->position, list->positions);
    if (fw_check_row_adapter(fw, row) == FW_FAILED) return FW_FAILED;
    if (row->flags & ~(uint32_t)ROW_FLAGS) return fail_row(fw, row->flags, ROW_FLAGS);
    if ((row->flags & LORA_ROW_WANT_HIDDEN) && list->taps == 0)
        return fail_row(fw, row->flags, ROW_FLAGS & ~LORA_ROW_WANT_HIDDEN);
    if (check_input(fw, row) == FW_FAILED || check_slot(fw, row) == FW_FAILED ||
        check_parent(fw, row) == FW_FAILED)
        return FW_FAILED;
    return check_tables(fw, row->sequence);
}

static void take_row(struct fw *fw, const struct lora_row *row) {
    struct lora_step_state *state = &fw->state;
    struct lora_slot *slot = &state->slots[row->slot];
    slot->parent = (int16_t)row->parent;
    slot->sequence = (uint16_t)row->sequence;
    slot->position = row->position;
    slot->valid = 1;
    fw_mark(fw->used, (uint32_t)row->slot);
    fw_mark(fw->touched, (uint32_t)row->slot);
    if (row->flags & (LORA_ROW_WANT_LOGITS | LORA_ROW_WANT_ARGMAX))
        state->selected[state->selected_count++] = (uint16_t)state->row_count;
    state->row_count++;
}

uint32_t fw_step_rows(struct fw *fw) {
    for (uint32_t i = 0; i < LORA_ROW_GROUP && fw->scan_row < fw->header.row_count; i++) {
        struct lora_row *row = &fw->state.rows[fw->scan_row];
        uint32_t offset = fw->header.rows_offset + fw->scan_row * (uint32_t)sizeof *row;
        hal_read(fw->control_bank, (uint64_t)fw->block_offset + offset, row, sizeof *row);
        fw->error.row = fw->scan_row;
        if (fw->operation == LORA_OP_GENERATE && fw_generate_check_row(fw, row) == FW_FAILED)
            return FW_FAILED;
        if (check_row(fw, row) == FW_FAILED) return FW_FAILED;
        take_row(fw, row);
        fw->error.row = FW_NONE;
        fw->scan_row++;
    }
    if (fw->scan_row < fw->header.row_count) return FW_MORE;
    return fw_step_start(fw);
}
