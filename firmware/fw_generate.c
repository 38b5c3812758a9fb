/* GENERATE: greedy tokens, a step each, without the host. Boards decide from the same votes, so
 * they go on, stop and number their steps alike. After a failure they differ by one step at most,
 * and the last two can be run again: `before_*` stay one step behind, and `behind` is what that
 * step did. */
#include "fw.h"

static uint32_t check_generate(struct fw *fw) {
    const struct lora_generate *generate = &fw->generate;
    uint32_t row_at = fw->header.generate_offset + (uint32_t)offsetof(struct lora_generate, row);
    if (generate->size != sizeof *generate)
        return fw_fail(fw, LORA_ERR_SIZE, generate->size, sizeof *generate);
    if (generate->max_tokens - 1 >= LORA_MAX_GENERATE)
        return fw_fail(fw, LORA_ERR_SIZE, generate->max_tokens, LORA_MAX_GENERATE);
    if (generate->stop_count > LORA_MAX_STOP_TOKENS)
        return fw_fail(fw, LORA_ERR_SIZE, generate->stop_count, LORA_MAX_STOP_TOKENS);
    if (fw->header.row_count != 1) return fw_fail(fw, LORA_ERR_SIZE, fw->header.row_count, 1);
    if (fw->header.rows_offset != row_at)
        return fw_fail(fw, LORA_ERR_SIZE, fw->header.rows_offset, row_at);
    return fw_check_part(fw, generate->stop_offset, generate->stop_count, 4);
}

uint32_t fw_generate_begin(struct fw *fw) {
    uint32_t at;
    fw->step_commits = 0;
    if (fw_step_begin(fw) == FW_FAILED) return FW_FAILED;
    if (fw->list->ballot == FW_NONE) return fw_fail(fw, LORA_ERR_LIST, fw->operation, LORA_OP_STEP);
    at = fw->header.generate_offset;
    if (fw_check_part(fw, at, 1, sizeof fw->generate) == FW_FAILED) return FW_FAILED;
    hal_read(fw->control_bank, (uint64_t)fw->block_offset + at, &fw->generate, sizeof fw->generate);
    return check_generate(fw);
}

static void drop_rows(struct lora_slot *slots, uint32_t sequence) {
    for (uint32_t i = 0; i < LORA_MAX_SCRATCH; i++)
        if (slots[i].sequence == sequence) slots[i].valid = 0;
}

/* Takes lengths and slots from before the step `behind` to after it. */
static void apply_behind(struct fw *fw, uint32_t *lengths, struct lora_slot *slots) {
    const struct fw_token_step *behind = &fw->behind;
    uint32_t sequence = behind->sequence;
    struct lora_slot *slot = &slots[behind->slot];
    if (behind->commits) {
        drop_rows(slots, sequence);
        lengths[sequence]++;
    }
    slot->parent = -1;
    slot->sequence = (uint16_t)sequence;
    slot->position = behind->position;
    slot->valid = 1;
}

/* The step failed: the state is as after the one before it, which may be run again. */
void fw_generate_restore(struct fw *fw) {
    fw_state_restore(fw);
    apply_behind(fw, fw->state.lengths, fw->state.slots);
    fw->behind.valid = 0;
}

void fw_generate_finish(struct fw *fw) {
    apply_behind(fw, fw->before_lengths, fw->before_slots);
    fw->behind.valid = 0;
}

static void remember_step(struct fw *fw) {
    const struct lora_row *row = &fw->state.rows[0];
    if (fw->behind.valid) fw_generate_finish(fw);
    fw->behind.valid = 1;
    fw->behind.commits = fw->step_commits;
    fw->behind.sequence = row->sequence;
    fw->behind.slot = (uint32_t)row->slot;
    fw->behind.position = row->position;
    fw->undo_count = fw->step_commits = 0;
}

/* The next step's parts, where the block has room for them. */
static void write_step(struct fw *fw, uint32_t token) {
    struct lora_generate *generate = &fw->generate;
    struct lora_step *header = &fw->header;
    uint32_t at = header->generate_offset;
    struct lora_row *row = &generate->row;
    fw_copy(row, &fw->state.rows[0], sizeof *row);
    generate->commit.kind = LORA_KV_COMMIT;
    generate->commit.sequence = (uint16_t)row->sequence;
    generate->commit.a = row->position;
    generate->commit.b = 0;
    generate->commit.c = 1;
    generate->path[0] = (uint16_t)row->slot;
    row->token = token;
    row->position++;
    row->slot = generate->slots[fw->token_count % 3];
    hal_write(fw->control_bank, (uint64_t)fw->block_offset + at, generate, sizeof *generate);
    header->step++;
    header->kv_op_count = header->path_count = 1;
    header->kv_ops_offset = at + (uint32_t)offsetof(struct lora_generate, commit);
    header->path_offset = at + (uint32_t)offsetof(struct lora_generate, path);
    header->rows_offset = at + (uint32_t)offsetof(struct lora_generate, row);
}

static uint32_t begin_token(struct fw *fw, uint32_t token) {
    fw->last_step = fw->state.step;
    fw->last_epoch = fw->state.epoch;
    remember_step(fw);
    write_step(fw, token);
    fw->completion.step = fw->header.step;
    fw_blame_none(fw);
    fw->started = hal_cycles();
    fw_step_enter(fw);
    return FW_MORE;
}

static void post_token(struct fw *fw, const struct lora_vote *best) {
    struct lora_token entry;
    uint32_t at = fw->state.step % LORA_MAX_GENERATE * (uint32_t)sizeof entry;
    uint32_t count = ++fw->token_count & LORA_TOKEN_COUNT_MASK;
    entry.step = fw->state.step;
    entry.epoch = fw->state.epoch;
    entry.token = best->token;
    entry.value = best->value;
    hal_write(fw->control_bank, fw->ring_offset + at, &entry, sizeof entry);
    hal_fence(fw->control_bank, fw->ring_offset + at);
    hal_set_register(LORA_REG_TOKEN,
                     count << LORA_TOKEN_COUNT_SHIFT | (best->token & LORA_TOKEN_MASK));
}

static int stops_at(const struct fw *fw, uint32_t token) {
    uint64_t at = (uint64_t)fw->block_offset + fw->generate.stop_offset;
    for (uint32_t i = 0; i < fw->generate.stop_count; i++, at += 4) {
        uint32_t stop;
        hal_read(fw->control_bank, at, &stop, sizeof stop);
        if (stop == token) return 1;
    }
    return 0;
}

static uint32_t end_with(struct fw *fw, uint32_t end) {
    fw->completion.end = end;
    return FW_OVER;
}

uint32_t fw_generate_decide(struct fw *fw) {
    struct lora_vote best;
    if (fw_count_votes(fw, &best) == FW_FAILED) return FW_FAILED;
    if (best.token == FW_NONE) return end_with(fw, LORA_GENERATE_NONFINITE);
    post_token(fw, &best);
    if (fw->token_count == fw->generate.max_tokens) return end_with(fw, LORA_GENERATE_COUNT);
    if (stops_at(fw, best.token)) return end_with(fw, LORA_GENERATE_STOP);
    if (best.cancel) return end_with(fw, LORA_GENERATE_CANCELLED);
    return begin_token(fw, best.token);
}
