/* GENERATE: what each board says of its share of a step, and what all of them say together. */
#include "fw.h"

uint32_t fw_check_ballot(struct fw *fw, const struct lora_list *list,
                         const struct lora_ballot *ballot, uint32_t index) {
    struct fw_buffer argmax = {list->control_bank, ballot->argmax_offset, 0,
                               sizeof(struct lora_argmax), 4};
    struct fw_buffer votes = {list->control_bank, ballot->votes_offset, 0,
                              list->boards * (uint32_t)sizeof(struct lora_vote), 4};
    struct fw_buffer ring = {list->control_bank, ballot->ring_offset, 0,
                             LORA_MAX_GENERATE * sizeof(struct lora_token), 4};
    struct fw_list *entry = fw->list;
    if (entry->ballot != FW_NONE) return fw_fail(fw, LORA_ERR_OPCODE, index, entry->ballot);
    entry->ballot = index;
    if (ballot->argmax_offset && fw_check_rows(fw, list, argmax, 1) == FW_FAILED) return FW_FAILED;
    if (fw_check_rows(fw, list, votes, 1) == FW_FAILED) return FW_FAILED;
    return fw_check_rows(fw, list, ring, 1);
}

/* All units are idle: the counts are final. */
void fw_vote(struct fw *fw, const struct lora_command *command) {
    const struct lora_list *list = &fw->list->header;
    struct lora_ballot ballot;
    struct lora_vote vote;
    fw_copy(&ballot, command, sizeof ballot);
    fw_zero(&vote, sizeof vote);
    vote.token = FW_NONE;
    if (ballot.argmax_offset)
        hal_read(fw->control_bank, ballot.argmax_offset, &vote, sizeof(struct lora_argmax));
    vote.nonfinite_count = fw->completion.nonfinite_count;
    vote.cancel = hal_register(LORA_REG_CANCEL);
    vote.step = fw->state.step;
    vote.rank = list->rank;
    fw->votes_offset = ballot.votes_offset;
    fw->ring_offset = ballot.ring_offset;
    hal_write(fw->control_bank, ballot.votes_offset + list->rank * (uint32_t)sizeof vote, &vote,
              sizeof vote);
}

/* Of finite FP32 bits, and -0 equals +0: an order that integers have. */
static int32_t order_of(uint32_t bits) {
    int32_t size = (int32_t)(bits & 0x7fffffff);
    return bits >> 31 ? -size : size;
}

static int is_nan(uint32_t bits) { return (bits & 0x7fffffff) > 0x7f800000; }

uint32_t fw_count_votes(struct fw *fw, struct lora_vote *best) {
    const struct lora_list *list = &fw->list->header;
    struct lora_vote vote;
    uint32_t broken = 0, cancel = 0;
    fw_zero(best, sizeof *best);
    best->token = FW_NONE;
    for (uint32_t rank = 0; rank < list->boards; rank++) {
        hal_read(fw->control_bank, fw->votes_offset + rank * (uint32_t)sizeof vote, &vote,
                 sizeof vote);
        if (vote.step != fw->state.step)
            return fw_fail(fw, LORA_ERR_LINK_CRC, vote.step, fw->state.step);
        if (vote.rank != rank) return fw_fail(fw, LORA_ERR_LINK_CRC, vote.rank, rank);
        if (rank == 0) cancel = vote.cancel;
        broken += vote.nonfinite_count != 0;
        if (vote.token == FW_NONE) continue;
        broken += (uint32_t)is_nan(vote.value);
        if (best->token == FW_NONE || order_of(vote.value) > order_of(best->value) ||
            (order_of(vote.value) == order_of(best->value) && vote.token < best->token))
            fw_copy(best, &vote, sizeof *best);
    }
    if (broken) best->token = FW_NONE;
    best->cancel = cancel;
    return FW_MORE;
}
