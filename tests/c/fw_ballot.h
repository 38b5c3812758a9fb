/* A list with a BALLOT, for GENERATE on a board of two, and the script of what the boards' shares
 * of each step's logits are. */
#ifndef TEST_FW_BALLOT_H
#define TEST_FW_BALLOT_H

#include "fw_step.h"

enum {
    ARGMAX_PLACE = RESULTS_AT + ROWS * 256,
    VOTES_AT = RESULTS_AT + 0x2a00,
    RING_AT = RESULTS_AT + 0x2b00,
    BALLOT_AT = FENCE_AT,
    OWN_AT = BALLOT_AT + 1,
    VOTES_GATHER_AT,
    ALL_AT,
    LAST_AT,
    TOKENS = 16, /* steps that the script knows */
    GENERATE_AT = ROWS_AT,
    STOPS_AT = GENERATE_AT + 256
};

static struct test_list list;

static struct {
    struct lora_argmax mine[TOKENS], theirs[TOKENS];
    uint32_t their_step, their_rank, their_nonfinite_at, fail_at, cancel_at;
    uint32_t differ_at, garble_at; /* steps: another digest, a changed word of their vote */
    uint32_t positions[TOKENS], tokens[TOKENS], slots[TOKENS], lengths[TOKENS];
} script;

static uint32_t digest_of(uint32_t digest, uint32_t word) {
    uint64_t twice = (uint64_t)(uint32_t)((digest ^ word) * 0x9e3779b1u) << 16;
    return (uint32_t)(twice | twice >> 32);
}

static struct lora_vote vote_at(uint32_t rank) {
    struct lora_vote vote;
    memcpy(&vote, board.banks[CONTROL] + VOTES_AT + rank * sizeof vote, sizeof vote);
    return vote;
}

static uint32_t seal_of(const struct lora_vote *vote) {
    uint32_t words[8], seal = 0;
    memcpy(words, vote, sizeof words);
    for (uint32_t i = 0; i < 7; i++) seal = digest_of(seal, words[i]);
    return seal;
}

/* Their vote arrives; their gathers gave the same sums, if the script does not say otherwise. */
static void send_vote(uint32_t step) {
    struct lora_vote mine = vote_at(list.header.rank);
    const struct lora_argmax *best = &script.theirs[step % TOKENS];
    struct lora_vote vote = {.token = best->token,
                             .nonfinite_count = script.their_nonfinite_at == step,
                             .step = script.their_step ? script.their_step : step,
                             .rank = script.their_rank,
                             .digest = mine.digest ^ (script.differ_at == step)};
    memcpy(&vote.value, &best->value, 4);
    vote.seal = seal_of(&vote);
    CHECK_EQUAL(mine.seal, seal_of(&mine));
    if (script.garble_at == step) vote.token ^= 1;
    memcpy(board.banks[CONTROL] + VOTES_AT + (list.header.rank ^ 1u) * sizeof vote, &vote,
           sizeof vote);
}

static void play(const struct lora_command *command, const struct lora_step_state *state) {
    uint32_t step = state->step % TOKENS;
    union record record = {.command = *command};
    if (command->opcode == LORA_CMD_VECTOR && record.vector.op == LORA_VEC_EMBED) {
        script.positions[step] = state->rows[0].position;
        script.tokens[step] = state->rows[0].token;
        script.slots[step] = (uint32_t)state->rows[0].slot;
        script.lengths[step] = state->lengths[0];
        if (script.cancel_at == state->step) board.registers[LORA_REG_CANCEL / 4] = 1;
    }
    if (command->opcode == LORA_CMD_VECTOR && record.vector.op == LORA_VEC_ARGMAX)
        memcpy(board.banks[CONTROL] + ARGMAX_PLACE, &script.mine[step], sizeof script.mine[0]);
    if (command->opcode == LORA_CMD_MATRIX)
        board.units[LORA_UNIT_MPU].status = script.fail_at == state->step ? LORA_ERR_UNIT : LORA_OK;
    if (command->opcode == LORA_CMD_MOVE_ROWS && record.move.y_bank == CONTROL)
        send_vote(state->step);
}

static struct test_list ballot_list(void) {
    struct test_list made = list_new();
    union record *c = made.commands;
    common(&c[BALLOT_AT], LORA_CMD_BALLOT, LORA_UNIT_CONTROL, 0, LORA_NO_COUNTER, 0,
           LORA_NO_COUNTER);
    struct lora_ballot ballot;
    memcpy(&ballot, &c[BALLOT_AT], sizeof ballot);
    ballot.argmax_offset = ARGMAX_PLACE;
    ballot.votes_offset = VOTES_AT;
    ballot.ring_offset = RING_AT;
    memcpy(&c[BALLOT_AT], &ballot, sizeof ballot);
    common(&c[OWN_AT], LORA_CMD_MOVE_ROWS, LORA_UNIT_DMA, LORA_FLAG_VOTES, LORA_NO_COUNTER, 0,
           COUNTERS);
    c[OWN_AT].move.x_bank = CONTROL;
    c[OWN_AT].move.y_bank = LORA_BANK_ONCHIP;
    c[OWN_AT].move.x_offset = VOTES_AT;
    c[OWN_AT].move.bytes = sizeof(struct lora_vote);
    common(&c[VOTES_GATHER_AT], LORA_CMD_GATHER, LORA_UNIT_ROUTER, LORA_FLAG_VOTES, COUNTERS, 1,
           COUNTERS + 1);
    c[VOTES_GATHER_AT].gather.stride = 64;
    c[VOTES_GATHER_AT].gather.columns = 8;
    c[VOTES_GATHER_AT].gather.share_unit = c[VOTES_GATHER_AT].gather.segment_unit = 4;
    c[VOTES_GATHER_AT].gather.element_bytes = 8;
    c[VOTES_GATHER_AT].gather.collective = 2;
    common(&c[ALL_AT], LORA_CMD_MOVE_ROWS, LORA_UNIT_DMA, LORA_FLAG_VOTES, COUNTERS + 1, 1,
           LORA_NO_COUNTER);
    c[ALL_AT].move.x_bank = LORA_BANK_ONCHIP;
    c[ALL_AT].move.y_bank = CONTROL;
    c[ALL_AT].move.y_offset = VOTES_AT;
    c[ALL_AT].move.bytes = 2 * sizeof(struct lora_vote);
    common(&c[LAST_AT], LORA_CMD_END, LORA_UNIT_CONTROL, 0, LORA_NO_COUNTER, 0, LORA_NO_COUNTER);
    made.header.command_count = LAST_AT + 1;
    made.header.counter_count = COUNTERS + 2;
    return made;
}

static void script_begin(void) {
    memset(&script, 0, sizeof script);
    script.their_rank = 1;
    for (uint32_t i = 0; i < TOKENS; i++) {
        script.mine[i] = (struct lora_argmax){1.0f, i};
        script.theirs[i] = (struct lora_argmax){2.0f, 50 + i};
    }
    board.on_start = play;
}

#endif
