/* STEP: the header's KV operations, in order. TABLE and LENGTH are table work, done here; the data
 * of COPY and COMMIT is moved by the list's KV_COMMIT command, which walks the operations itself.
 * It finds a commit's pages in the page table, so where a later TABLE would change an entry that an
 * earlier commit still needs, the moves so far are run first. RECURRENCE sees no operation that was
 * moved so: none of them may be a commit behind whose pages it computes a state. */
#include "fw.h"

void fw_commits_reset(struct fw *fw) { fw_zero(fw->commits_seen, sizeof fw->commits_seen); }

static int has_commits(const struct fw *fw, uint32_t sequence) {
    return fw->commits_seen[sequence / 32] >> sequence % 32 & 1;
}

static void note_commit(struct fw *fw, uint32_t sequence, uint32_t first, uint32_t last) {
    struct fw_commit_range *range = &fw->commits[sequence];
    if (!has_commits(fw, sequence)) {
        range->first = 0xffff;
        range->last = 0;
    }
    fw_mark(fw->commits_seen, sequence);
    if (first < range->first) range->first = (uint16_t)first;
    if (last > range->last) range->last = (uint16_t)last;
}

static uint32_t check_page(struct fw *fw, uint32_t page) {
    const struct lora_list *list = &fw->list->header;
    if (page >= fw_scratch_pages(list) && page < list->page_count) return FW_MORE;
    return fw_fail(fw, LORA_ERR_KV, page, list->page_count);
}

static void drop_slots(struct fw *fw, uint32_t sequence) {
    for (uint32_t word = 0; word < LORA_MAX_SCRATCH / 32; word++) {
        struct lora_slot *slot = &fw->state.slots[word * 32];
        uint32_t bit = 1;
        for (uint32_t left = fw->used[word]; left; left >>= 1, bit <<= 1, slot++) {
            if (!(left & 1) || slot->sequence != sequence) continue;
            slot->valid = 0;
            fw->used[word] &= ~bit;
            fw->touched[word] |= bit;
        }
    }
}

static int table_in_use(const struct fw *fw, const struct lora_kv_op *op) {
    const struct fw_commit_range *range = &fw->commits[op->sequence];
    return has_commits(fw, op->sequence) && op->a >= range->first && op->a <= range->last;
}

static uint32_t apply_table(struct fw *fw, const struct lora_kv_op *op) {
    if (op->a >= fw->list->header.max_tiles)
        return fw_fail(fw, LORA_ERR_KV, op->a, fw->list->header.max_tiles);
    if (check_page(fw, op->b) == FW_FAILED) return FW_FAILED;
    return fw_table_write(fw, op->sequence, op->a, op->b);
}

static uint32_t apply_length(struct fw *fw, const struct lora_kv_op *op) {
    uint64_t max = (uint64_t)fw->list->header.max_tiles * LORA_TILE_POSITIONS;
    if (op->a > max) return fw_fail(fw, LORA_ERR_KV, op->a, (uint32_t)max);
    fw->state.lengths[op->sequence] = op->a;
    drop_slots(fw, op->sequence);
    return FW_MORE;
}

static uint32_t apply_copy(struct fw *fw, const struct lora_kv_op *op) {
    if (check_page(fw, op->a) == FW_FAILED || check_page(fw, op->b) == FW_FAILED) return FW_FAILED;
    if (op->c > LORA_TILE_POSITIONS || op->a == op->b)
        return fw_fail(fw, LORA_ERR_KV, op->c, LORA_TILE_POSITIONS);
    if (fw->list->kv_commit == FW_NONE) return fw_fail(fw, LORA_ERR_KV, op->kind, LORA_KV_LENGTH);
    return FW_MORE;
}

/* The path is a chain of uncommitted rows of the sequence from its last committed position on. */
static uint32_t check_path(struct fw *fw, const struct lora_kv_op *op) {
    int32_t parent = -1;
    for (uint32_t i = 0; i < op->c; i++) {
        const struct lora_slot *row;
        uint16_t slot;
        hal_read(fw->control_bank, (uint64_t)fw->state.path_offset + (op->b + i) * 2, &slot,
                 sizeof slot);
        if (slot >= fw->list->header.max_scratch)
            return fw_fail(fw, LORA_ERR_KV, slot, fw->list->header.max_scratch);
        row = &fw->state.slots[slot];
        if (!row->valid || row->sequence != op->sequence)
            return fw_fail(fw, LORA_ERR_KV, slot, op->sequence);
        if (row->parent != parent)
            return fw_fail(fw, LORA_ERR_KV, (uint32_t)(int32_t)row->parent, (uint32_t)parent);
        if (row->position != op->a + i) return fw_fail(fw, LORA_ERR_KV, row->position, op->a + i);
        fw->committed[slot / 32] |= 1u << slot % 32;
        parent = slot;
    }
    return FW_MORE;
}

static uint32_t apply_commit(struct fw *fw, const struct lora_kv_op *op) {
    uint32_t first = op->a / LORA_TILE_POSITIONS, last;
    if (op->a != fw->state.lengths[op->sequence])
        return fw_fail(fw, LORA_ERR_KV, op->a, fw->state.lengths[op->sequence]);
    if (op->b > fw->header.path_count || op->c > fw->header.path_count - op->b ||
        op->c > LORA_MAX_SCRATCH)
        return fw_fail(fw, LORA_ERR_KV, op->b, fw->header.path_count);
    if (op->c > 0) {
        if (fw->list->kv_commit == FW_NONE)
            return fw_fail(fw, LORA_ERR_KV, op->kind, LORA_KV_LENGTH);
        last = (op->a + op->c - 1) / LORA_TILE_POSITIONS;
        if (check_path(fw, op) == FW_FAILED ||
            fw_table_check(fw, op->sequence, first, last + 1) == FW_FAILED)
            return FW_FAILED;
        note_commit(fw, op->sequence, first, last);
    }
    fw->state.lengths[op->sequence] += op->c;
    drop_slots(fw, op->sequence);
    return FW_MORE;
}

static uint32_t apply(struct fw *fw, const struct lora_kv_op *op) {
    switch (op->kind) {
    case LORA_KV_TABLE: return apply_table(fw, op);
    case LORA_KV_LENGTH: return apply_length(fw, op);
    case LORA_KV_COPY: return apply_copy(fw, op);
    case LORA_KV_COMMIT: return apply_commit(fw, op);
    default: return fw_fail(fw, LORA_ERR_KV, op->kind, LORA_KV_COMMIT);
    }
}

/* The operations [moved_kv, scan_kv) are what the units see. */
static void hand_over(struct fw *fw) {
    fw->state.kv_ops_offset = fw->block_offset + fw->header.kv_ops_offset +
                              fw->moved_kv * (uint32_t)sizeof(struct lora_kv_op);
    fw->state.kv_op_count = fw->scan_kv - fw->moved_kv;
}

static void load_op(const struct fw *fw, uint32_t number, struct lora_kv_op *op) {
    uint32_t offset = fw->header.kv_ops_offset + number * (uint32_t)sizeof *op;
    hal_read(fw->control_bank, (uint64_t)fw->block_offset + offset, op, sizeof *op);
}

static uint32_t check_states(struct fw *fw) {
    for (uint32_t i = fw->moved_kv; fw->list->states && i < fw->scan_kv; i++) {
        struct lora_kv_op op;
        load_op(fw, i, &op);
        if (op.kind == LORA_KV_COMMIT &&
            (op.a + op.c) / LORA_TILE_POSITIONS != op.a / LORA_TILE_POSITIONS)
            return fw_fail(fw, LORA_ERR_KV, LORA_KV_TABLE, LORA_KV_COMMIT);
    }
    return FW_MORE;
}

static uint32_t begin_move(struct fw *fw) {
    struct fw_cursor *cursor = &fw->cursors[LORA_UNIT_DMA];
    const struct lora_command *command = fw_fetch(fw, fw->list->kv_commit);
    if (command == 0 || check_states(fw) == FW_FAILED) return FW_FAILED;
    hand_over(fw);
    fw_copy(&cursor->command, command, sizeof cursor->command);
    cursor->command.body[0] = 0; /* all layers, whichever the first KV_COMMIT has */
    cursor->index = fw->list->kv_commit;
    cursor->rows = 0;
    fw_unit_begin(fw, LORA_UNIT_DMA);
    fw->phase = FW_PHASE_KV_MOVE;
    return FW_MORE;
}

uint32_t fw_step_kv_move(struct fw *fw) {
    struct hal_unit_result result;
    uint32_t outcome = fw_unit_poll(fw, LORA_UNIT_DMA, &result);
    if (outcome != FW_OVER) return outcome;
    fw->moved_kv = fw->scan_kv;
    fw_commits_reset(fw);
    fw->phase = FW_PHASE_KV;
    return FW_MORE;
}

static uint32_t read_op(struct fw *fw, struct lora_kv_op *op) {
    load_op(fw, fw->scan_kv, op);
    fw->error.row = fw->scan_kv; /* the operation's number, until it is accepted */
    if (op->sequence >= fw->list->header.max_sequences)
        return fw_fail(fw, LORA_ERR_KV, op->sequence, fw->list->header.max_sequences);
    return fw->operation == LORA_OP_GENERATE ? fw_generate_check_op(fw, op) : (uint32_t)FW_MORE;
}

uint32_t fw_step_kv(struct fw *fw) {
    for (uint32_t i = 0; i < FW_SWEEP && fw->scan_kv < fw->header.kv_op_count; i++) {
        struct lora_kv_op op;
        if (read_op(fw, &op) == FW_FAILED) return FW_FAILED;
        if (op.kind == LORA_KV_TABLE && table_in_use(fw, &op)) return begin_move(fw);
        if (apply(fw, &op) == FW_FAILED) return FW_FAILED;
        fw->error.row = FW_NONE;
        fw->scan_kv++;
    }
    if (fw->scan_kv == fw->header.kv_op_count) {
        hand_over(fw);
        fw->phase = FW_PHASE_ROWS;
    }
    return FW_MORE;
}
