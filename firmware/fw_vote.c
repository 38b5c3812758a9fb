/* The end of a step on several boards: what each says of its share, and what all of them say. */
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
    fw_copy(&entry->ballot_command, ballot, sizeof entry->ballot_command);
    if (ballot->argmax_offset && fw_check_rows(fw, list, argmax, 1) == FW_FAILED) return FW_FAILED;
    if (fw_check_rows(fw, list, votes, 1) == FW_FAILED) return FW_FAILED;
    return fw_check_rows(fw, list, ring, 1);
}

/* Damage of one word always shows: every step is a bijection. */
uint32_t fw_digest(uint32_t digest, uint32_t word) {
    digest = (digest ^ word) * 0x9e3779b1u;
    return digest << 16 | digest >> 16;
}

static uint32_t seal_of(const struct lora_vote *vote) {
    const fw_word *words = (const fw_word *)vote;
    uint32_t seal = 0;
    for (uint32_t i = 0; i < offsetof(struct lora_vote, seal) / sizeof *words; i++)
        seal = fw_digest(seal, words[i]);
    return seal;
}

/* All units are idle: the counts and the digest are final. A board that is alone in a STEP has
 * nobody to tell. */
void fw_vote(struct fw *fw, const struct lora_command *command) {
    const struct lora_list *list = &fw->list->header;
    struct lora_ballot ballot;
    struct lora_vote vote;
    if (fw->rows == 0 || (list->boards == 1 && fw->operation == LORA_OP_STEP)) return;
    fw_copy(&ballot, command, sizeof ballot);
    fw_zero(&vote, sizeof vote);
    vote.token = FW_NONE;
    if (fw->operation == LORA_OP_GENERATE) {
        if (ballot.argmax_offset)
            hal_read(fw->control_bank, ballot.argmax_offset, &vote, sizeof(struct lora_argmax));
        vote.nonfinite_count = (uint16_t)(fw->completion.nonfinite_count < 0xffff
                                              ? fw->completion.nonfinite_count
                                              : 0xffff);
        vote.cancel = hal_register(LORA_REG_CANCEL) != 0;
    }
    vote.step = fw->state.step;
    vote.rank = list->rank;
    vote.digest = fw->digest;
    if (fw->list->received != FW_NONE) vote.received = fw->first_sum;
    if (fw->list->passed != FW_NONE) vote.passed = fw->last_sum;
    vote.seal = seal_of(&vote);
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

static uint32_t fail_gather(struct fw *fw, uint32_t found, uint32_t expected) {
    fw->error.unit = LORA_UNIT_ROUTER;
    return fw_fail(fw, LORA_ERR_GATHERED, found, expected);
}

static uint32_t check_vote(struct fw *fw, const struct lora_vote *vote, uint32_t rank) {
    uint32_t seal = seal_of(vote);
    if (vote->seal != seal) return fail_gather(fw, vote->seal, seal);
    if (vote->step != fw->state.step) return fail_gather(fw, vote->step, fw->state.step);
    return vote->rank == rank ? (uint32_t)FW_MORE : fail_gather(fw, vote->rank, rank);
}

/* That most boards have; where as many have another, that of the lowest rank. */
static uint32_t common_digest(const struct lora_vote *votes, uint32_t boards) {
    uint32_t most = 0, common = 0;
    for (uint32_t i = 0; i < boards; i++) {
        uint32_t count = 0;
        for (uint32_t j = 0; j < boards; j++) count += votes[j].digest == votes[i].digest;
        if (count <= most) continue;
        most = count;
        common = votes[i].digest;
    }
    return common;
}

/* The boards of a stage, of which `first` is the first. */
static uint32_t check_stage(struct fw *fw, const struct lora_vote *votes, uint32_t first,
                            uint32_t boards) {
    uint32_t own = fw->list->header.rank - first;
    votes += first;
    for (uint32_t i = 1; i < boards; i++) {
        if (votes[i].digest == votes[0].digest) continue;
        uint32_t common = common_digest(votes, boards);
        return fail_gather(fw, own < boards ? votes[own].digest : common, common);
    }
    return FW_MORE;
}

/* Every board fails. The host finds who caused it: a board whose digest is not the common one of
 * its stage. Where all of a stage have received other rows than the stage before has, its last
 * board sent them: what any other sends, boards of its own stage receive too. */
static uint32_t check_digests(struct fw *fw, const struct lora_vote *votes) {
    const struct lora_list *list = &fw->list->header;
    uint32_t each = list->stage_boards ? list->stage_boards : list->boards;
    for (uint32_t first = 0; first < list->boards; first += each)
        if (check_stage(fw, votes, first, each) == FW_FAILED) return FW_FAILED;
    for (uint32_t first = each; first < list->boards; first += each) {
        const struct lora_vote *sender = &votes[first - 1], *receiver = &votes[first];
        if (sender->passed == receiver->received) continue;
        return fail_gather(fw, list->rank + 1u == first ? sender->passed : receiver->received,
                           receiver->received);
    }
    return FW_MORE;
}

uint32_t fw_read_votes(struct fw *fw) {
    uint32_t boards = fw->list->header.boards;
    struct lora_vote *votes = fw->votes;
    hal_read(fw->control_bank, fw->votes_offset, votes, boards * (uint32_t)sizeof votes[0]);
    for (uint32_t rank = 0; rank < boards; rank++)
        if (check_vote(fw, &votes[rank], rank) == FW_FAILED) return FW_FAILED;
    return check_digests(fw, votes);
}

uint32_t fw_compare_gathers(struct fw *fw) {
    if (fw->list->ballot == FW_NONE || fw->list->header.boards == 1 || fw->rows == 0)
        return FW_OVER;
    return fw_read_votes(fw) == FW_FAILED ? FW_FAILED : FW_OVER;
}

uint32_t fw_count_votes(struct fw *fw, struct lora_vote *best) {
    uint32_t broken = 0;
    fw_zero(best, sizeof *best);
    best->token = FW_NONE;
    if (fw_read_votes(fw) == FW_FAILED) return FW_FAILED;
    for (uint32_t rank = 0; rank < fw->list->header.boards; rank++) {
        const struct lora_vote *vote = &fw->votes[rank];
        broken += vote->nonfinite_count != 0;
        if (vote->token == FW_NONE) continue;
        broken += (uint32_t)is_nan(vote->value);
        if (best->token == FW_NONE || order_of(vote->value) > order_of(best->value) ||
            (order_of(vote->value) == order_of(best->value) && vote->token < best->token))
            fw_copy(best, vote, sizeof *best);
    }
    if (broken) best->token = FW_NONE;
    best->cancel = fw->votes[0].cancel;
    return FW_MORE;
}
