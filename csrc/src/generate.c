/* Tokens without the host: boards choose them, the host follows rank 0's token register and, where
 * it is late, reads the ring. */
#include "internal.h"

#include <stddef.h>
#include <string.h>

/* Tiles that the tokens of one run can touch, and one COMMIT. */
#define MAX_OPS (LORA_MAX_GENERATE / LORA_TILE_POSITIONS + 2)

struct generate_block {
    struct lora_step header;
    struct lora_kv_op ops[MAX_OPS];
    uint16_t path[8]; /* one slot, padded to 16 bytes */
    struct lora_generate generate;
    uint32_t stops[LORA_MAX_STOP_TOKENS];
};

struct session { /* one lora_cluster_generate */
    struct lora_cluster *cluster;
    struct lora_generation *generation;
    struct lora_run run;
    uint32_t token;   /* pending, at the position after `generation->rows` rows */
    uint32_t first;   /* step of the run's first token */
    uint32_t begun;   /* rows before this run */
    uint32_t shown;   /* tokens of this run that the host knows */
    uint32_t ended;   /* the caller wants no more */
    uint32_t stopped; /* rank 0 has been told */
    uint32_t tokens[LORA_MAX_GENERATE];
};

static uint32_t least(uint32_t a, uint32_t b) { return a < b ? a : b; }

static uint32_t slot_of(const struct lora_generation *generation, uint32_t row) {
    return generation->slots[row % 3];
}

/* Pages of the tiles that this run's rows will be committed to. */
static uint32_t fill_pages(const struct lora_generation *generation, uint32_t position,
                           uint32_t count, struct lora_kv_op *ops) {
    uint32_t first = (position + LORA_TILE_POSITIONS - 1) / LORA_TILE_POSITIONS;
    uint32_t end = least((position + count - 1) / LORA_TILE_POSITIONS + 1, generation->page_count);
    uint32_t used = 0;
    for (uint32_t tile = first; tile < end; tile++)
        ops[used++] = (struct lora_kv_op){LORA_KV_TABLE, (uint16_t)generation->sequence, tile,
                                          generation->pages[tile], 0};
    return used;
}

static void build(const struct session *session, uint32_t count, struct generate_block *block) {
    const struct lora_generation *generation = session->generation;
    uint32_t rows = generation->rows, position = generation->position + rows;
    memset(block, 0, sizeof *block);
    uint32_t ops = fill_pages(generation, position, count, block->ops);
    if (rows) {
        block->ops[ops++] = (struct lora_kv_op){LORA_KV_COMMIT, (uint16_t)generation->sequence,
                                                position - 1, 0, 1};
        block->path[0] = (uint16_t)slot_of(generation, rows - 1);
    }
    block->header = (struct lora_step){
        .size = sizeof block->header,
        .abi = LORA_ABI_NUMBER,
        .bytes = sizeof *block,
        .list_id = generation->list_id,
        .row_count = 1,
        .rows_offset = offsetof(struct generate_block, generate) +
                       offsetof(struct lora_generate, row),
        .kv_op_count = ops,
        .kv_ops_offset = offsetof(struct generate_block, ops),
        .path_count = rows != 0,
        .path_offset = offsetof(struct generate_block, path),
        .generate_offset = offsetof(struct generate_block, generate),
    };
    block->generate = (struct lora_generate){
        .size = sizeof block->generate,
        .max_tokens = count,
        .stop_count = generation->stop_count,
        .stop_offset = offsetof(struct generate_block, stops),
        .row = {.sequence = generation->sequence,
                .position = position,
                .token = session->token,
                .adapter = (int32_t)generation->adapter - 1,
                .slot = (int32_t)slot_of(generation, rows),
                .parent = -1,
                .flags = LORA_ROW_WANT_ARGMAX},
    };
    for (uint32_t i = 0; i < 3; i++)
        block->generate.slots[i] = (uint16_t)slot_of(generation, rows + i);
    if (generation->stop_count)
        memcpy(block->stops, generation->stop_tokens,
               generation->stop_count * sizeof block->stops[0]);
}

/* A token that a failed run had shown already is not told twice. */
static void deliver(struct session *session, uint32_t token) {
    struct lora_generation *generation = session->generation;
    uint32_t number = session->begun + session->shown;
    session->tokens[session->shown++] = token;
    if (number < generation->emitted || session->ended) return;
    generation->emitted++;
    session->cluster->stats.tokens++;
    if (generation->on_token && generation->on_token(generation->context, token))
        session->ended = 1;
}

/* Entries of the ring from the first token that the host does not know. */
static int read_ring(struct session *session, uint32_t end, struct lora_failure *failure) {
    struct lora_cluster *cluster = session->cluster;
    const struct lora_generation *generation = session->generation;
    uint32_t board = generation->first_board;
    while (session->shown < end) {
        struct lora_token entries[LORA_MAX_GENERATE];
        uint32_t step = session->first + session->shown, at = step % LORA_MAX_GENERATE;
        uint32_t count = least(end - session->shown, LORA_MAX_GENERATE - at);
        int status = lora_memory_read(cluster, board, cluster->boards[board].control_bank,
                                      generation->ring_offset + at * sizeof entries[0], entries,
                                      count * sizeof entries[0], failure);
        if (status) return status;
        for (uint32_t i = 0; i < count; i++) {
            if (entries[i].step != step + i || entries[i].epoch != cluster->epoch)
                return lora_fail(failure, LORA_ERR_COMPLETION,
                                 "board %u (%s): the ring holds step %u epoch %u where step %u "
                                 "epoch %u is expected",
                                 board, cluster->boards[board].info.address, entries[i].step,
                                 entries[i].epoch, step + i, cluster->epoch);
            deliver(session, entries[i].token);
        }
    }
    return LORA_OK;
}

static int write_rank0(struct session *session, uint32_t offset, uint32_t value,
                       struct lora_failure *failure) {
    return lora_register_write(session->cluster, session->generation->first_board,
                               LORA_BLOCK_CONTROL, offset, value, failure);
}

static int stop(struct session *session, struct lora_failure *failure) {
    if (session->stopped) return LORA_OK;
    session->stopped = session->cluster->cancel_written = 1;
    return write_rank0(session, LORA_REG_CANCEL, 1, failure);
}

/* What the token register says: *over where there is nothing more to follow. */
static int take_word(struct session *session, uint32_t word, uint32_t *over,
                     struct lora_failure *failure) {
    uint32_t count = word >> LORA_TOKEN_COUNT_SHIFT & LORA_TOKEN_COUNT_MASK;
    *over = (word & LORA_TOKEN_OVER) != 0;
    if (count == session->shown) return LORA_OK;
    if (count < session->shown || count > session->run.tokens) {
        *over = 1; /* a board that is gone: polls will tell */
        return LORA_OK;
    }
    if (count > session->shown + 1) {
        int status = read_ring(session, count - 1, failure);
        if (status) return status;
    }
    deliver(session, word & LORA_TOKEN_MASK);
    return LORA_OK;
}

/* Until rank 0's run is over, or longer without a token than a step may take. */
static int follow(struct session *session, uint32_t *cancelled, struct lora_failure *failure) {
    struct lora_cluster *cluster = session->cluster;
    uint32_t board = session->generation->first_board;
    const struct lora_board *it = &cluster->boards[board];
    struct lora_stopwatch watch;
    lora_stopwatch_start(&watch);
    while (1) {
        uint32_t word = 0, over, shown = session->shown;
        cluster->stats.looks++;
        int status = it->transport->poll_register(it->handle, LORA_REG_TOKEN, &word, failure);
        if (status) return lora_fail_board(cluster, board, status, failure);
        status = take_word(session, word, &over, failure);
        if (status || over) return status;
        if (lora_cancel_wanted(cluster)) *cancelled = session->ended = 1;
        if (session->ended) status = stop(session, failure);
        if (!status && session->shown != shown) {
            lora_stopwatch_start(&watch);
            continue;
        }
        if (status || lora_stopwatch_us(&watch, it->transport) >= session->run.timeout_us)
            return status;
        status = lora_pause(cluster, board, &watch, failure);
        if (status) return status;
    }
}

/* Each token has a step. */
static int ends_right(const struct session *session, const struct lora_completion *record) {
    return record->step == session->first + record->tokens - 1;
}

static int fail_end(const struct session *session, uint32_t board, uint32_t other,
                    struct lora_failure *failure) {
    const struct lora_board *boards = session->cluster->boards;
    const struct lora_completion *record = &boards[board].completion;
    const struct lora_completion *expected = &boards[other].completion;
    failure->board = (int32_t)board;
    return lora_fail(failure, LORA_ERR_COMPLETION,
                     "board %u (%s): step %u and %u tokens, board %u has step %u and %u; their "
                     "links do not deliver what was sent",
                     board, boards[board].info.address, record->step, record->tokens, other,
                     expected->step, expected->tokens);
}

/* All boards tell the same end. */
static int take_end(struct session *session, struct lora_failure *failure) {
    struct lora_cluster *cluster = session->cluster;
    const struct lora_completion *record = &cluster->boards[0].completion;
    for (uint32_t b = 0; b < cluster->count; b++) {
        const struct lora_completion *other = &cluster->boards[b].completion;
        cluster->stats.frames_dropped += other->frames_dropped;
        if (other->step == record->step && other->tokens == record->tokens &&
            other->end == record->end)
            continue;
        if (ends_right(session, other) && !ends_right(session, record))
            return fail_end(session, 0, b, failure);
        return fail_end(session, b, 0, failure);
    }
    cluster->step = record->step;
    cluster->dirty = cluster->uncounted = 0;
    int status = read_ring(session, least(record->tokens, session->run.tokens), failure);
    if (status || record->end != LORA_GENERATE_NONFINITE) return status;
    uint32_t token;
    status = lora_check_finite(cluster, failure);
    return status ? status : lora_select_token(cluster, &token, failure);
}

/* Steps that all boards have completed, whatever became of the run. */
static void count_rows(struct session *session) {
    struct lora_cluster *cluster = session->cluster;
    struct lora_generation *generation = session->generation;
    struct lora_failure ignored, *unused = lora_failure_begin(NULL, &ignored);
    if (cluster->uncounted && !cluster->hung) (void)lora_renumber(cluster, unused);
    uint32_t next = cluster->dirty ? cluster->step : cluster->step + 1;
    uint32_t done = cluster->uncounted ? session->shown : next - session->first;
    if (done > session->run.tokens) done = 0;
    if (!cluster->hung) (void)read_ring(session, done, unused);
    generation->rows = session->begun + done;
    cluster->stats.steps += done;
    if (done && done <= session->shown) session->token = session->tokens[done - 1];
}

static int run_once(struct session *session, uint32_t count, struct lora_failure *failure) {
    struct lora_cluster *cluster = session->cluster;
    const struct lora_generation *generation = session->generation;
    lora_boards all = lora_all_boards(cluster);
    uint32_t cancelled = 0;
    struct generate_block block;
    session->begun = generation->rows;
    session->shown = session->stopped = 0;
    session->run = (struct lora_run){.operation = LORA_OP_GENERATE,
                                     .list_id = generation->list_id,
                                     .block_offset = generation->block_offset,
                                     .timeout_us = cluster->timeouts.step_us,
                                     .watchdog_ms = cluster->timeouts.watchdog_ms,
                                     .tokens = count};
    build(session, count, &block);
    int status = lora_check_block(cluster, &block.header, sizeof block, generation->block_offset,
                                  failure);
    if (!status)
        status = lora_place_block(cluster, &block.header, generation->block_offset, failure);
    if (!status) status = write_rank0(session, LORA_REG_TOKEN, 0, failure);
    if (!status && cluster->cancel_written) {
        status = write_rank0(session, LORA_REG_CANCEL, 0, failure);
        cluster->cancel_written = 0;
    }
    if (status) return status;
    session->first = cluster->step;
    cluster->uncounted = 1;
    status = lora_run_begin(cluster, all, &session->run, failure);
    if (!status) status = follow(session, &cancelled, failure);
    if (!status) status = lora_run_end(cluster, all, &session->run, failure);
    if (!status) status = take_end(session, failure);
    count_rows(session);
    if (!status && cancelled)
        status = lora_fail(failure, LORA_ERR_CANCELLED, "cancelled after %u tokens",
                           generation->emitted);
    return status;
}

static int check(const struct lora_cluster *cluster, const struct lora_generation *generation,
                 struct lora_failure *failure) {
    if (!cluster || !generation || generation->size != sizeof *generation ||
        generation->first_board >= cluster->count)
        return lora_fail(failure, LORA_ERR_ARGUMENT,
                         "generate: no cluster, no board of rank 0, or a record of another size");
    int status = lora_check_slots("generate", generation->slots, generation->sequence, failure);
    if (status) return status;
    if (generation->adapter > LORA_MAX_ADAPTER_SLOTS)
        return lora_fail(failure, LORA_ERR_ARGUMENT,
                         "generate: adapter slot %u; at most %d expected", generation->adapter - 1,
                         LORA_MAX_ADAPTER_SLOTS - 1);
    if (generation->stop_count > LORA_MAX_STOP_TOKENS)
        return lora_fail(failure, LORA_ERR_ARGUMENT,
                         "generate: %u stop tokens; at most %d expected", generation->stop_count,
                         LORA_MAX_STOP_TOKENS);
    return LORA_OK;
}

static int is_stop(const struct lora_generation *generation, uint32_t token) {
    for (uint32_t i = 0; i < generation->stop_count; i++)
        if (generation->stop_tokens[i] == token) return 1;
    return 0;
}

int lora_cluster_generate(struct lora_cluster *cluster, struct lora_generation *generation,
                          struct lora_failure *failure) {
    struct lora_failure spare;
    failure = lora_failure_begin(failure, &spare);
    int status = check(cluster, generation, failure);
    if (status) return status;
    struct session session = {
        .cluster = cluster, .generation = generation, .token = generation->token};
    uint32_t redone = LORA_NONE; /* row of the last one that a damaged frame has cost */
    generation->emitted = generation->rows = 0;
    while (generation->rows < (session.ended ? generation->emitted : generation->max_tokens)) {
        uint32_t end = session.ended ? generation->emitted : generation->max_tokens;
        uint32_t left = end - generation->rows;
        status = run_once(&session, least(left, LORA_MAX_GENERATE), failure);
        if (lora_is_damage(status) && redone != generation->rows) {
            redone = generation->rows; /* chance: once more, with a new epoch */
            cluster->stats.redone_steps++;
            lora_failure_begin(failure, NULL);
            continue;
        }
        if (status) break;
        if (generation->rows && is_stop(generation, session.token)) break;
        if (lora_is_damaged(cluster)) break; /* the caller looks after it first */
    }
    /* What the caller wanted has been run; a failure behind it shows again with the next step. */
    if (session.ended && status != LORA_ERR_CANCELLED && generation->rows >= generation->emitted)
        status = LORA_OK;
    return status;
}
