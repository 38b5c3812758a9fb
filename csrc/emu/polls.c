/* Polls the firmware of the boards that are awake. Between two gathers boards have nothing in
 * common but the columns that they keep for each other (gather_direct.c), so several threads poll
 * at once. What a board asks of the links is done afterwards, board by board. Each board has a
 * thread that it returns to, because its state is in that core's cache; other threads take the
 * boards of a late one. */
#include "board.h"

#include <stdatomic.h>

struct polled { /* a board, on a cache line of its own */
    _Alignas(LORA_LINE_BYTES) struct emu_board *board;
    atomic_bool taken;
    uint32_t thread; /* that polled it */
    uint64_t ticks;  /* that it took, while the profiler is on */
};

struct polls {
    struct emu_cluster *cluster;
    uint32_t count, threads;
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

static bool take(struct polled *polled) {
    return !atomic_load_explicit(&polled->taken, memory_order_relaxed) &&
           !atomic_exchange(&polled->taken, true);
}

static void poll_one(struct polled *polled, uint32_t thread) {
    struct emu_board *board = polled->board;
    const struct emu_profiler *profiler = &board->cluster->profiler;
    uint64_t began = emu_profiler_begin(profiler);
    if (board->router.direct) emu_gather_file(board);
    poll(board);
    polled->thread = thread;
    polled->ticks = emu_profiler_begin(profiler) - began;
}

/* The boards that a thread returns to lie beside each other: shares of columns are rounded down from
 * their sums over the boards before, so those of neighbours differ least from an even part. */
static uint32_t first_board(const struct polls *polls, uint32_t thread) {
    return polls->count * thread / polls->threads;
}

static void poll_boards(struct polls *polls, uint32_t first, uint32_t end, uint32_t thread) {
    for (uint32_t at = first; at < end; at++)
        if (take(&polls->boards[at])) poll_one(&polls->boards[at], thread);
}

/* An item is a thread's boards, then what others have left. */
static void poll_item(void *context, uint32_t item, uint32_t thread) {
    struct polls *polls = context;
    uint32_t place = thread % polls->threads;
    (void)item;
    poll_boards(polls, first_board(polls, place), first_board(polls, place + 1), thread);
    poll_boards(polls, 0, polls->count, thread);
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

static void settle(struct emu_cluster *cluster, struct emu_board *board) {
    board->concurrent = board->local_kernels = false;
    if (board->clock > cluster->now) cluster->now = board->clock;
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

static void begin_board(struct polls *polls, uint32_t at) {
    struct emu_board *board = polls->boards[at].board;
    board->clock = polls->cluster->now;
    board->concurrent = polls->threads > 1;
    board->local_kernels = board->concurrent &&
                           polls->threads == lora_pool_threads(polls->cluster->pool);
    board->link_requests.link_test = false;
    atomic_init(&polls->boards[at].taken, false);
}

bool emu_boards_poll(struct emu_cluster *cluster) {
    struct polls polls; /* of `count` boards: the rest is not read */
    polls.cluster = cluster;
    gather_awake(&polls);
    if (polls.count == 0) return false;
    for (uint32_t i = 0; i < polls.count; i++) begin_board(&polls, i);
    lora_pool_run(cluster->pool, polls.threads, poll_item, &polls);
    if (cluster->profiler.on) count_busiest(&polls);
    for (uint32_t i = 0; i < polls.count; i++) settle(cluster, polls.boards[i].board);
    exchange(&polls, cluster->control->send);
    exchange(&polls, cluster->control->take);
    return true;
}
