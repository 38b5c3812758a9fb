/* Boards that go from one gather without frames to the next, beside boards whose frames all move:
 * the same rows, board time and counters. The host sees what it waits for at once, and threads that
 * come late change nothing. Each board's control is a chain of gathers. */
#include <time.h>

#include "emu_rows.h"

#define GATHERS 200
#define EVENT 100 /* gathers until something happens that ends a series */

enum event {
    NOTHING,
    NEWS,    /* the first board has a token for the host */
    REQUEST, /* it asks something of the links */
    DEATH,   /* its firmware stops */
};

struct chain { /* a board's control */
    struct run *run;
    uint32_t board, done, late; /* late: it takes milliseconds after so many gathers */
    enum event event;
    bool started;
    struct lora_gather gather;
    uint64_t clock[GATHERS + 1];
};

static struct lora_gather gather_of(uint32_t number) {
    uint16_t columns = number % 3 ? 256 : 64;
    return (struct lora_gather){.opcode = LORA_CMD_GATHER,
                                .unit = LORA_UNIT_ROUTER,
                                .collective = (uint16_t)number,
                                .columns = columns,
                                .stride = columns,
                                .share_unit = 1,
                                .segment_unit = 8,
                                .element_bytes = 1};
}

static uint8_t value_of(uint32_t gather, uint32_t board) {
    return (uint8_t)(gather * 11 + board * 29 + 1);
}

static uint8_t *onchip(const struct chain *chain) {
    return chain->run->boards[chain->board]->memory.base[LORA_BANK_ONCHIP];
}

static void fill_own(const struct chain *chain) {
    uint32_t boards = chain->run->cluster.boards, own = chain->board;
    uint32_t first = share_start(&chain->gather, boards, own);
    memset(onchip(chain), 0xee, chain->gather.columns);
    memset(onchip(chain) + first, value_of(chain->done, own),
           share_start(&chain->gather, boards, own + 1) - first);
}

static void check_row(const struct chain *chain) {
    uint32_t boards = chain->run->cluster.boards;
    for (uint32_t b = 0; b < boards; b++)
        for (uint32_t i = share_start(&chain->gather, boards, b);
             i < share_start(&chain->gather, boards, b + 1); i++)
            CHECK(onchip(chain)[i] == value_of(chain->done, b));
}

static void happen(const struct chain *chain) {
    struct emu_board *board = chain->run->boards[chain->board];
    if (chain->done != EVENT) return;
    if (chain->event == NEWS) board->control[LORA_REG_TOKEN / 4] = 1;
    if (chain->event == REQUEST) board->link_requests.drop = true;
    if (chain->event == DEATH) board->firmware_dead = true;
}

static void be_late(void) {
    const struct timespec some = {.tv_nsec = 2000000};
    nanosleep(&some, NULL);
}

static uint32_t poll_chain(void *core) {
    struct chain *chain = core;
    struct emu_board *board = emu_hal_board();
    struct hal_unit_result result;
    if (chain->started) {
        uint32_t state = emu_unit_poll(board, LORA_UNIT_ROUTER, &result);
        if (state == LORA_UNIT_BUSY) return LORA_FW_WAITING;
        CHECK(state == LORA_UNIT_DONE);
        check_row(chain);
        chain->done++;
        chain->clock[chain->done] = board->clock;
        happen(chain);
    }
    if (chain->late && chain->done % chain->late == 0) be_late();
    chain->started = chain->done < GATHERS;
    if (!chain->started) return LORA_FW_WAITING;
    chain->gather = gather_of(chain->done);
    fill_own(chain);
    emu_unit_start(board, LORA_UNIT_ROUTER, (void *)&chain->gather,
                   &chain->run->lists[chain->board], &chain->run->state);
    return LORA_FW_WAITING;
}

static const struct lora_control chain_control = {
    .size = sizeof chain_control, .slice_cycles = 100, .most_slices = 1000, .poll = poll_chain};

static struct chain chains[LORA_MAX_BOARDS];

static void open_chains(struct run *run, uint32_t threads) {
    struct emu_cluster *cluster = run->boards[0]->cluster;
    run->state.row_count = 1;
    cluster->control = &chain_control;
    cluster->pool = lora_pool_create(threads);
    for (uint32_t b = 0; b < run->cluster.boards; b++) {
        chains[b] = (struct chain){.run = run, .board = b};
        run->boards[b]->programmed = true;
        run->boards[b]->core = &chains[b];
        emu_wake(run->boards[b]);
    }
}

static void close_chains(struct run *run, void *const *cores) {
    struct emu_cluster *cluster = run->boards[0]->cluster;
    lora_pool_free(cluster->pool);
    cluster->pool = NULL;
    cluster->control = &emu_firmware_control;
    for (uint32_t b = 0; b < run->cluster.boards; b++) run->boards[b]->core = cores[b];
    run_close(run);
}

struct outcome {
    uint32_t calls; /* of the host */
    uint64_t now, clock[LORA_MAX_BOARDS][GATHERS + 1];
    struct emu_port_counters counters[LORA_MAX_BOARDS][LORA_PORTS];
};

struct conditions {
    uint32_t boards, threads, late;
    enum test_shape shape;
    enum event event;
    bool framed;
};

static void advance_to(struct run *run, uint32_t gathers, uint32_t *calls) {
    uint32_t moved = 1;
    for (; chains[0].done < gathers && moved; ++*calls)
        CHECK(lora_emu_advance(run->cluster.id, 0, &moved) == LORA_OK);
}

static void check_done(const struct run *run, uint32_t first, uint32_t others) {
    for (uint32_t b = 0; b < run->cluster.boards; b++)
        CHECK(chains[b].done == (b == 0 ? first : others));
}

/* No board goes further, but for those that see the gather that a dead one has begun. */
static void pass_event(struct run *run, uint32_t *calls) {
    uint32_t moved = 1;
    advance_to(run, EVENT, calls);
    if (chains[0].event != DEATH) check_done(run, EVENT, EVENT);
    CHECK(!run->boards[0]->link_requests.drop);
    if (chains[0].event == DEATH) {
        while (moved) CHECK(lora_emu_advance(run->cluster.id, 0, &moved) == LORA_OK);
        check_done(run, EVENT, EVENT + 1);
        run->boards[0]->firmware_dead = false;
        run->boards[0]->awake = true;
    }
    run->boards[0]->token_seen = run->boards[0]->control[LORA_REG_TOKEN / 4];
}

static struct outcome outcome_of(const struct conditions *conditions) {
    static struct outcome outcome;
    struct run run = run_open(conditions->boards, conditions->shape);
    void *cores[LORA_MAX_BOARDS];
    for (uint32_t b = 0; b < conditions->boards; b++) cores[b] = run.boards[b]->core;
    memset(&outcome, 0, sizeof outcome);
    open_chains(&run, conditions->threads);
    chains[conditions->boards - 1].late = conditions->late;
    chains[0].event = conditions->event;
    run.boards[0]->followed = true;
    if (conditions->framed)
        run.boards[0]->router.misfile = (struct emu_frame_fault){
            .on = true, .after = 1 << 30, .count = 1};
    if (conditions->event != NOTHING) pass_event(&run, &outcome.calls);
    advance_to(&run, GATHERS, &outcome.calls);
    outcome.now = run.boards[0]->cluster->now;
    for (uint32_t b = 0; b < conditions->boards; b++) {
        CHECK(chains[b].done == GATHERS);
        memcpy(outcome.clock[b], chains[b].clock, sizeof outcome.clock[b]);
        for (uint32_t p = 0; p < LORA_PORTS; p++)
            outcome.counters[b][p] = run.boards[b]->ports[p].counters;
    }
    close_chains(&run, cores);
    return outcome;
}

static void check_rounds(struct conditions conditions) {
    struct outcome direct = outcome_of(&conditions);
    conditions.late = 0;
    conditions.framed = true;
    struct outcome framed = outcome_of(&conditions);
    CHECK(framed.calls >= GATHERS && direct.calls < framed.calls);
    if (conditions.threads == 1)
        CHECK(direct.calls < GATHERS / 10); /* nobody waits, so none leaves */
    CHECK(direct.now == framed.now);
    for (uint32_t i = 1; i < GATHERS; i++) /* a slice and what the board took within it */
        CHECK(direct.clock[0][i + 1] > direct.clock[0][i] + chain_control.slice_cycles);
    CHECK(memcmp(direct.clock, framed.clock, sizeof direct.clock) == 0);
    CHECK(memcmp(direct.counters, framed.counters, sizeof direct.counters) == 0);
}

int main(void) {
    check_rounds((struct conditions){.boards = 4, .threads = 2, .shape = TEST_RING});
    check_rounds((struct conditions){.boards = 2, .threads = 2, .shape = TEST_PATH});
    check_rounds((struct conditions){.boards = 4, .threads = 1, .shape = TEST_RING});
    check_rounds((struct conditions){.boards = 8, .threads = 3, .shape = TEST_PATH});
    check_rounds((struct conditions){.boards = 2, .threads = 8, .shape = TEST_RING});
    check_rounds((struct conditions){.boards = 40, .threads = 2, .shape = TEST_RING});
    check_rounds((struct conditions){.boards = 4, .threads = 2, .event = NEWS});
    check_rounds((struct conditions){.boards = 4, .threads = 2, .event = REQUEST});
    check_rounds((struct conditions){.boards = 4, .threads = 2, .event = DEATH});
    check_rounds((struct conditions){.boards = 4, .threads = 2, .late = 37});
    check_rounds((struct conditions){.boards = 8, .threads = 4, .late = 20});
    puts("emu_rounds: ok");
    return 0;
}
