/* Greedy decode without Python: one row a step, the argmax of all boards' vocabulary shares.
 * docs/numbers.md, 3.11. */
#include "internal.h"

#include <stddef.h>
#include <string.h>

struct greedy_block { /* a step block of one row and at most one commit */
    struct lora_step header;
    struct lora_kv_op commit;
    uint16_t path[8];    /* one slot, padded to 16 bytes */
    uint8_t padding[32]; /* the row is aligned to a line */
    struct lora_row row;
};

static void build(const struct lora_greedy *loop, uint32_t slot, struct greedy_block *block) {
    uint32_t commits = loop->pending_slot != LORA_NONE;
    memset(block, 0, sizeof *block);
    block->header = (struct lora_step){
        .size = sizeof block->header,
        .abi = LORA_ABI_NUMBER,
        .bytes = sizeof *block,
        .list_id = loop->list_id,
        .row_count = 1,
        .rows_offset = offsetof(struct greedy_block, row),
        .kv_op_count = commits,
        .kv_ops_offset = offsetof(struct greedy_block, commit),
        .path_count = commits,
        .path_offset = offsetof(struct greedy_block, path),
    };
    if (commits) {
        block->commit = (struct lora_kv_op){LORA_KV_COMMIT, (uint16_t)loop->sequence,
                                            loop->position - 1, 0, 1};
        block->path[0] = (uint16_t)loop->pending_slot;
    }
    block->row = (struct lora_row){.sequence = loop->sequence,
                                   .position = loop->position,
                                   .token = loop->token,
                                   .adapter = (int32_t)loop->adapter - 1,
                                   .slot = (int32_t)slot,
                                   .parent = -1,
                                   .flags = LORA_ROW_WANT_ARGMAX};
}

/* The first command of any board that wrote such a value: the others only pass it on. */
int lora_check_finite(const struct lora_cluster *cluster, struct lora_failure *failure) {
    const struct lora_completion *first = NULL;
    uint32_t board = 0;
    for (uint32_t b = 0; b < cluster->count; b++) {
        const struct lora_completion *record = &cluster->boards[b].completion;
        if (!record->nonfinite_count) continue;
        if (first && first->nonfinite_index <= record->nonfinite_index) continue;
        first = record;
        board = b;
    }
    if (!first) return LORA_OK;
    failure->board = (int32_t)board;
    failure->index = first->nonfinite_index;
    failure->row = first->nonfinite_row;
    return lora_fail(failure, LORA_ERR_NAN,
                     "board %u (%s) command %u row %u: %u values written are not finite", board,
                     cluster->boards[board].info.address, first->nonfinite_index,
                     first->nonfinite_row, first->nonfinite_count);
}

int lora_select_token(const struct lora_cluster *cluster, uint32_t *token,
                      struct lora_failure *failure) {
    struct lora_argmax best = {0.0f, LORA_NONE};
    for (uint32_t b = 0; b < cluster->count; b++) {
        const struct lora_argmax share = cluster->boards[b].argmax[0];
        if (share.token == LORA_NONE) continue;
        if (share.value != share.value) {
            failure->board = (int32_t)b;
            return lora_fail(failure, LORA_ERR_NAN, "board %u (%s): a logit is not a number", b,
                             cluster->boards[b].info.address);
        }
        if (best.token == LORA_NONE || share.value > best.value ||
            (share.value == best.value && share.token < best.token))
            best = share;
    }
    if (best.token == LORA_NONE)
        return lora_fail(failure, LORA_ERR_COMPLETION, "no board returned an argmax");
    *token = best.token;
    return LORA_OK;
}

int lora_check_slots(const char *what, const uint32_t slots[3], uint32_t sequence,
                     struct lora_failure *failure) {
    if (slots[0] != slots[1] && slots[1] != slots[2] && slots[0] != slots[2] &&
        slots[0] < LORA_MAX_SCRATCH && slots[1] < LORA_MAX_SCRATCH && slots[2] < LORA_MAX_SCRATCH &&
        sequence < LORA_MAX_SEQUENCES)
        return LORA_OK;
    return lora_fail(failure, LORA_ERR_ARGUMENT,
                     "%s: slots %u, %u and %u of sequence %u; three slots below %d and a sequence "
                     "below %d expected",
                     what, slots[0], slots[1], slots[2], sequence, LORA_MAX_SCRATCH,
                     LORA_MAX_SEQUENCES);
}

static int check_loop(const struct lora_cluster *cluster, const struct lora_greedy *loop,
                      struct lora_failure *failure) {
    if (!cluster || !loop || loop->size != sizeof *loop)
        return lora_fail(failure, LORA_ERR_ARGUMENT,
                         "greedy: no cluster, or a loop of another size");
    int status = lora_check_slots("greedy", loop->slots, loop->sequence, failure);
    if (status) return status;
    if (loop->adapter > LORA_MAX_ADAPTER_SLOTS)
        return lora_fail(failure, LORA_ERR_ARGUMENT, "greedy: adapter slot %u; at most %d expected",
                         loop->adapter - 1, LORA_MAX_ADAPTER_SLOTS - 1);
    if (loop->pending_slot != LORA_NONE &&
        (loop->pending_slot >= LORA_MAX_SCRATCH || !loop->position))
        return lora_fail(failure, LORA_ERR_ARGUMENT, "greedy: pending slot %u at position %u",
                         loop->pending_slot, loop->position);
    return LORA_OK;
}

static uint32_t next_slot(const struct lora_greedy *loop) {
    for (uint32_t i = 0; i < 3; i++)
        if (loop->slots[i] == loop->pending_slot) return loop->slots[(i + 1) % 3];
    return loop->slots[0];
}

static int stops_at(const struct lora_greedy *loop, uint32_t token) {
    for (uint32_t i = 0; i < loop->stop_count; i++)
        if (loop->stop_tokens[i] == token) return 1;
    return 0;
}

int lora_cluster_greedy(struct lora_cluster *cluster, struct lora_greedy *loop,
                        struct lora_failure *failure) {
    struct lora_failure spare;
    struct greedy_block block;
    failure = lora_failure_begin(failure, &spare);
    int status = check_loop(cluster, loop, failure);
    if (status) return status;
    loop->emitted = 0;
    loop->last_token = loop->token;
    loop->last_slot = loop->pending_slot;
    while (loop->emitted < loop->max_tokens) {
        uint32_t slot = next_slot(loop);
        build(loop, slot, &block);
        status = lora_cluster_step(cluster, &block, sizeof block, loop->block_offset, NULL,
                                   failure);
        if (!status) status = lora_check_finite(cluster, failure);
        if (!status) status = lora_select_token(cluster, &loop->token, failure);
        if (status) return status;
        loop->position++;
        loop->emitted++;
        loop->pending_slot = loop->last_slot = slot;
        loop->last_token = loop->token;
        if (loop->on_token && loop->on_token(loop->context, loop->token)) break;
        if (stops_at(loop, loop->token)) break;
        if (lora_cancel_wanted(cluster))
            return lora_fail(failure, LORA_ERR_CANCELLED, "cancelled after %u tokens",
                             loop->emitted);
    }
    return LORA_OK;
}
