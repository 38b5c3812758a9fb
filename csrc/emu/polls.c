/* Polls the firmware of the boards that are awake. Between two gathers boards have nothing in
 * common but the columns that they keep for each other (gather_direct.c), so several threads poll
 * at once. What a board asks of the links is done afterwards, board by board. Each board has a
 * thread that it returns to, because its state is in that core's cache; other threads steal the
 * boards of a late one.
 *
 * A round polls every board once. Where all boards then begin a gather that needs no frames, the
 * next round follows at once: the thread that was the last to finish opens it, and nobody waits for
 * the caller. */
#include "board.h"

#include <stdatomic.h>

#define NO_ROUND 0
#define MOST_ROUNDS 64        /* of a series: the cluster's lock is held meanwhile */
#define SPINS_BEFORE_STEAL 64 /* some us */
#define MOST_SPINS 4096       /* some 100 us: then another thread has lost its CPU */

struct polled { /* a board; a line for taking it, one for what the end of a round reads */
    _Alignas(LORA_LINE_BYTES) struct emu_board *board;
    _Atomic uint32_t taken;                   /* the last round in which a thread took it */
    _Alignas(LORA_LINE_BYTES) uint64_t clock; /* board time when it was polled */
    uint64_t ticks;                           /* that this took, while the profiler is on */
    uint32_t thread;                          /* that polled it */
    struct gather_offer offer;
};

struct polls {
    struct emu_cluster *cluster;
    uint32_t count, threads;
    atomic_uint arrived; /* threads */
    atomic_bool broken;  /* a thread has left before the end: no round follows */
    _Alignas(LORA_LINE_BYTES) atomic_uint left; /* boards of the round, not polled yet */
    struct polled boards[LORA_MAX_BOARDS];
};

/* A read that ECC cannot correct gets no answer: the core stops in it. */
static uint32_t poll_firmware(struct emu_board *board) {
    if (emu_ecc_any(&board->ecc) && setjmp(*emu_hal_stop()) != 0) return LORA_FW_WAITING;
    return board->cluster->control->poll(board->core);
}

static void poll(struct emu_board *board) {
    board->awake = false;
    struct emu_control_faults *faults = &board->control_faults;
    if (!board->programmed || board->firmware_dead || board->lost || board->core_stopped) return;
    if (board->clock < faults->stalled_until) return;
    emu_hal_bind(board);
    if (faults->firmware_resets && faults->polls_to_reset-- == 0) {
        faults->firmware_resets = false;
        board->cluster->control->begin(board->core);
    }
    if (faults->clock_jumps && faults->polls_to_jump-- == 0) {
        faults->clock_jumps = false;
        faults->clock_ahead += faults->jump_cycles;
    }
    if (poll_firmware(board) == LORA_FW_RUNNING) board->awake = true;
    emu_hal_bind(NULL);
}

static bool take(struct polled *polled, uint32_t round) {
    uint32_t before = round - 1;
    return atomic_load_explicit(&polled->taken, memory_order_relaxed) == before &&
           atomic_compare_exchange_strong(&polled->taken, &before, round);
}

/* It asks nothing of the links, and the host waits for nothing of it. */
static bool is_quiet(const struct emu_board *board) {
    const struct emu_link_requests *wanted = &board->link_requests;
    bool followed = board->followed && emu_has_news(board);
    return !wanted->drop && !wanted->poison && !wanted->link_test && !emu_is_done(board) &&
           !followed;
}

static void poll_one(struct polled *polled, uint32_t thread) {
    struct emu_board *board = polled->board;
    struct emu_cluster *cluster = board->cluster;
    uint64_t began = emu_profiler_begin(&cluster->profiler);
    bool direct = cluster->direct;
    board->clock = cluster->now;
    if (direct) emu_gather_file(board);
    poll(board);
    polled->clock = board->clock;
    polled->thread = thread;
    polled->offer = (struct gather_offer){0};
    if (direct && is_quiet(board)) polled->offer = emu_gather_offer(board);
    polled->ticks = emu_profiler_begin(&cluster->profiler) - began;
}

/* The boards that a thread returns to lie beside each other: shares of columns are rounded down
 * from their sums over the boards before, so those of neighbours differ least from an even part. */
static uint32_t first_board(const struct polls *polls, uint32_t thread) {
    return polls->count * thread / polls->threads;
}

/* Returns how many of these boards were left for this thread. */
static uint32_t poll_boards(struct polls *polls, uint32_t first, uint32_t end, uint32_t round,
                            uint32_t thread) {
    uint32_t polled = 0;
    for (uint32_t at = first; at < end; at++) {
        if (!take(&polls->boards[at], round)) continue;
        poll_one(&polls->boards[at], thread);
        polled++;
    }
    return polled;
}

/* Wall time is the busiest thread's: what its boards' units did counts, the others' was beside
 * it. */
static void count_busiest(struct polls *polls) {
    uint64_t busy[LORA_POOL_THREADS] = {0};
    uint32_t busiest = 0;
    for (uint32_t i = 0; i < polls->count; i++)
        busy[polls->boards[i].thread] += polls->boards[i].ticks;
    for (uint32_t t = 1; t < LORA_POOL_THREADS; t++)
        if (busy[t] > busy[busiest]) busiest = t;
    for (uint32_t i = 0; i < polls->count; i++) {
        struct emu_board *board = polls->boards[i].board;
        if (polls->boards[i].thread == busiest)
            emu_tally_add(&polls->cluster->profiler.tally, &board->tally);
        board->tally = (struct emu_tally){0};
    }
}

static void settle(struct emu_board *board) {
    if (board->link_requests.link_test) board->awake = true;
    emu_link_requests_run(board);
}

/* Frames of simulated cards. Each sees what was sent before this, whatever its place. */
static void exchange(const struct polls *polls, void (*move)(void *core)) {
    for (uint32_t i = 0; move && i < polls->count; i++) {
        struct emu_board *board = polls->boards[i].board;
        if (!board->programmed) continue;
        emu_hal_bind(board);
        move(board->core);
    }
    if (move) emu_hal_bind(NULL);
}

/* A link test sends and receives frames while it is polled. */
static bool reaches_others(const struct emu_board *board) {
    return board->link_test.active || board->link_requests.link_test;
}

static void gather_awake(struct polls *polls) {
    struct emu_cluster *cluster = polls->cluster;
    polls->threads = lora_pool_threads(cluster->pool);
    polls->count = 0;
    for (uint32_t b = 0; b < cluster->boards; b++) {
        struct emu_board *board = &cluster->board[b];
        if (!board->awake) continue;
        if (reaches_others(board)) polls->threads = 1;
        polls->boards[polls->count++].board = board;
    }
    if (polls->threads > polls->count) polls->threads = polls->count;
}

/* One gather without frames follows another, in which all boards take part. */
static bool goes_on(const struct polls *polls, uint32_t round) {
    const struct gather_offer *offers[LORA_MAX_BOARDS];
    if (!polls->cluster->direct || round == MOST_ROUNDS || atomic_load(&polls->broken))
        return false;
    for (uint32_t i = 0; i < polls->count; i++) offers[i] = &polls->boards[i].offer;
    return emu_gather_follows(offers, polls->count);
}

/* All boards of the round are polled, and no thread touches one: a slice ends, and the next one may
 * begin. */
static void end_round(struct polls *polls, uint32_t round) {
    struct emu_cluster *cluster = polls->cluster;
    if (cluster->profiler.on) count_busiest(polls);
    for (uint32_t i = 0; i < polls->count; i++)
        if (polls->boards[i].clock > cluster->now) cluster->now = polls->boards[i].clock;
    cluster->direct = goes_on(polls, round);
    if (cluster->direct) cluster->now += cluster->control->slice_cycles;
    atomic_store_explicit(&polls->left, polls->count, memory_order_relaxed);
    atomic_store_explicit(&cluster->round, cluster->direct ? round + 1 : NO_ROUND,
                          memory_order_release);
}

static void finish(struct polls *polls, uint32_t round, uint32_t polled) {
    if (polled && atomic_fetch_sub(&polls->left, polled) == polled) end_round(polls, round);
}

/* A thread steals boards that others have not begun: after some spins, and at once where others
 * have not come, where it had to steal before in this series, or where it has no board of its own.
 */
static bool may_steal(const struct polls *polls, uint32_t spins, bool at_once) {
    if (spins > 0) return spins == SPINS_BEFORE_STEAL;
    return at_once || atomic_load_explicit(&polls->arrived, memory_order_relaxed) < polls->threads;
}

/* The round after this one. A thread leaves where another keeps a board for long. */
static uint32_t await_next(struct polls *polls, uint32_t round, uint32_t thread, bool *at_once) {
    struct emu_cluster *cluster = polls->cluster;
    for (uint32_t spins = 0; spins < MOST_SPINS; spins++) {
        uint32_t next = atomic_load_explicit(&cluster->round, memory_order_acquire), stolen = 0;
        if (next != round) return next;
        if (may_steal(polls, spins, *at_once))
            stolen = poll_boards(polls, 0, polls->count, round, thread);
        if (stolen) *at_once = true;
        if (stolen) finish(polls, round, stolen);
        else lora_pool_pass_time(cluster->pool, thread);
    }
    atomic_store(&polls->broken, true);
    return NO_ROUND;
}

/* An item is a thread's part in all rounds. */
static void poll_item(void *context, uint32_t item, uint32_t thread) {
    struct polls *polls = context;
    uint32_t place = thread % polls->threads;
    uint32_t first = first_board(polls, place), end = first_board(polls, place + 1);
    uint32_t round = atomic_load_explicit(&polls->cluster->round, memory_order_acquire);
    bool at_once = false;
    (void)item;
    if (atomic_load(&polls->broken)) return; /* the thread that keeps a board ends the round */
    atomic_fetch_add_explicit(&polls->arrived, 1, memory_order_relaxed);
    while (round != NO_ROUND) {
        uint32_t polled = poll_boards(polls, first, end, round, thread);
        if (polled == 0) at_once = true;
        finish(polls, round, polled);
        round = await_next(polls, round, thread, &at_once);
    }
}

static void set_concurrent(const struct polls *polls, bool on) {
    bool all = polls->threads == lora_pool_threads(polls->cluster->pool);
    for (uint32_t i = 0; i < polls->count; i++) {
        polls->boards[i].board->concurrent = on;
        polls->boards[i].board->local_kernels = on && all;
    }
}

bool emu_boards_poll(struct emu_cluster *cluster) {
    struct polls polls; /* of `count` boards: the rest is not read */
    polls.cluster = cluster;
    gather_awake(&polls);
    if (polls.count == 0) return false;
    for (uint32_t i = 0; i < polls.count; i++) {
        polls.boards[i].board->link_requests.link_test = false;
        atomic_init(&polls.boards[i].taken, NO_ROUND);
    }
    atomic_init(&polls.arrived, 0);
    atomic_init(&polls.broken, false);
    atomic_init(&polls.left, polls.count);
    atomic_store_explicit(&cluster->round, NO_ROUND + 1, memory_order_relaxed);
    set_concurrent(&polls, polls.threads > 1);
    lora_pool_run(cluster->pool, polls.threads, poll_item, &polls);
    set_concurrent(&polls, false);
    for (uint32_t i = 0; i < polls.count; i++) settle(polls.boards[i].board);
    exchange(&polls, cluster->control->send);
    exchange(&polls, cluster->control->take);
    return true;
}
