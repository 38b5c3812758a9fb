/* STEP: the header, and a step's number in the sequence of steps. */
#include "fw.h"

uint32_t fw_check_part(struct fw *fw, uint32_t offset, uint32_t count, uint32_t item) {
    uint64_t end = (uint64_t)offset + (uint64_t)count * item;
    uint32_t align = item < 4 ? item : 4;
    if (count == 0) return FW_MORE;
    if (offset < sizeof fw->header || offset % align != 0 || end > fw->header.bytes)
        return fw_fail(fw, LORA_ERR_SIZE, offset, fw->header.bytes);
    return FW_MORE;
}

/* The block may not touch the first page, the list, or what a step writes. */
static uint32_t check_block(struct fw *fw, const struct fw_list *entry) {
    const struct lora_list *list = &entry->header;
    uint64_t begin = fw->block_offset, bytes = fw->header.bytes;
    uint32_t list_bytes = sizeof *list + list->command_count * FW_COMMAND_BYTES;
    int clash = begin < LORA_CONTROL_PAGE || begin % 4 != 0 ||
                fw_overlap(begin, bytes, entry->offset, list_bytes) ||
                fw_overlap(begin, bytes, list->results_offset, list->results_bytes);
    if (list->table_bank == fw->control_bank)
        clash |= fw_overlap(begin, bytes, (uint64_t)list->table_line * LORA_LINE_BYTES,
                            (uint64_t)list->max_sequences * fw_table_row_bytes(list));
    if (clash) {
        fw->error.bank = fw->control_bank;
        fw->error.offset = begin;
        return fw_fail(fw, LORA_ERR_ADDRESS, fw->block_offset, list->results_offset);
    }
    return fw_check_range(fw, fw->control_bank, begin, bytes);
}

static uint32_t check_counts(struct fw *fw, const struct lora_list *list) {
    const struct lora_step *header = &fw->header;
    if (header->row_count > list->max_rows)
        return fw_fail(fw, LORA_ERR_SIZE, header->row_count, list->max_rows);
    if (header->kv_op_count > LORA_MAX_KV_OPS)
        return fw_fail(fw, LORA_ERR_SIZE, header->kv_op_count, LORA_MAX_KV_OPS);
    if (header->path_count > LORA_MAX_ROWS * LORA_MAX_SEQUENCES)
        return fw_fail(fw, LORA_ERR_SIZE, header->path_count, LORA_MAX_ROWS * LORA_MAX_SEQUENCES);
    if (fw_check_part(fw, header->rows_offset, header->row_count, sizeof(struct lora_row)) ==
            FW_FAILED ||
        fw_check_part(fw, header->kv_ops_offset, header->kv_op_count, sizeof(struct lora_kv_op)) ==
            FW_FAILED)
        return FW_FAILED;
    return fw_check_part(fw, header->path_offset, header->path_count, 2);
}

static uint32_t check_list(struct fw *fw) {
    uint32_t id = fw->header.list_id;
    const struct fw_list *entry;
    if (id >= LORA_MAX_LISTS || id != hal_register(LORA_REG_LIST_ID) || !fw->lists[id].valid)
        return fw_fail(fw, LORA_ERR_LIST, id, hal_register(LORA_REG_LIST_ID));
    entry = &fw->lists[id];
    if (entry->header.control_bank != fw->control_bank || entry->arena_count > fw->arena_count ||
        fw_arenas_seal(fw, entry->arena_count) != entry->arena_seal)
        return fw_fail(fw, LORA_ERR_LIST, fw->arena_count, entry->arena_count);
    fw->list = &fw->lists[id];
    return FW_MORE;
}

/* Accepted: the step after the last one, or the last one again with a higher epoch. */
static uint32_t check_number(struct fw *fw) {
    const struct lora_step *header = &fw->header;
    if (header->epoch < fw->last_epoch)
        return fw_fail(fw, LORA_ERR_STEP, header->epoch, fw->last_epoch);
    if (header->step == fw->last_step + 1) return FW_MORE;
    if (header->step != fw->last_step)
        return fw_fail(fw, LORA_ERR_STEP, header->step, fw->last_step + 1);
    if (header->epoch == fw->last_epoch)
        return fw_fail(fw, LORA_ERR_STEP, header->epoch, fw->last_epoch + 1);
    return FW_MORE;
}

static uint32_t check_step_header(struct fw *fw) {
    const struct lora_step *header = &fw->header;
    if (fw_check_range(fw, fw->control_bank, fw->block_offset, sizeof fw->header) == FW_FAILED)
        return FW_FAILED;
    hal_read(fw->control_bank, fw->block_offset, &fw->header, sizeof fw->header);
    fw->completion.step = fw->error.step = header->step; /* whose block failed, where it does */
    fw->completion.epoch = header->epoch;
    if (header->size != sizeof *header)
        return fw_fail(fw, LORA_ERR_SIZE, header->size, sizeof *header);
    if (header->abi != LORA_ABI_NUMBER)
        return fw_fail(fw, LORA_ERR_ABI, header->abi, LORA_ABI_NUMBER);
    if (check_list(fw) == FW_FAILED || check_number(fw) == FW_FAILED) return FW_FAILED;
    return check_block(fw, fw->list);
}

static void fill_state(struct fw *fw) {
    const struct lora_step *header = &fw->header;
    struct lora_step_state *state = &fw->state;
    state->size = sizeof *state;
    state->step = header->step;
    state->epoch = header->epoch;
    state->list_id = header->list_id;
    state->row_count = state->selected_count = 0;
    state->kv_op_count = 0;
    state->path_count = header->path_count;
    state->block_offset = fw->block_offset;
    state->kv_ops_offset = fw->block_offset + header->kv_ops_offset;
    state->path_offset = fw->block_offset + header->path_offset;
    state->reserved = 0;
}

uint32_t fw_step_begin(struct fw *fw) {
    if (check_step_header(fw) == FW_FAILED) return FW_FAILED;
    if (fw->header.step == fw->last_step) fw_tables_restore(fw);
    fw->state.step = fw->header.step; /* a failure from here on restores and poisons */
    fw->state.epoch = fw->header.epoch;
    fw->state.list_id = fw->header.list_id;
    fw_tables_backup(fw);
    fw->accepted = 1;
    fw->poisoned = 0;
    hal_links_epoch(fw->header.epoch);
    if (check_counts(fw, &fw->list->header) == FW_FAILED) return FW_FAILED;
    fw_step_enter(fw);
    return FW_MORE;
}

void fw_step_enter(struct fw *fw) {
    fill_state(fw);
    fw->scan_kv = fw->moved_kv = fw->scan_row = 0;
    fw_zero(fw->committed, sizeof fw->committed);
    fw_zero(fw->tables_seen, sizeof fw->tables_seen);
    fw_fetch_reset(fw);
    fw->phase = FW_PHASE_KV;
    fw_commits_reset(fw);
}

/* All rows are checked: the list may run. */
uint32_t fw_step_start(struct fw *fw) {
    fw->completion.row_count = fw->state.row_count;
    fw->completion.selected_count = fw->state.selected_count;
    fw->sequencer = fw_has_sequencer(fw) ? FW_SEQUENCER_DUE : FW_SOFTWARE;
    if (fw->sequencer == FW_SOFTWARE)
        fw_execution_reset(fw, fw->state.row_count, fw->state.selected_count, 1);
    else fw_run_reset(fw, fw->state.row_count, fw->state.selected_count, 1);
    fw->digest = fw->gathers = fw->first_sum = fw->last_sum = 0;
    fw->phase = FW_PHASE_RUN;
    return FW_MORE;
}
