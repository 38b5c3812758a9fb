/* All-gathers without frames beside those with frames: the same rows, results and counters. And
 * what is left to frames. */
#include "emu_rows.h"

static struct emu_cluster *cluster_of(const struct run *run) { return run->boards[0]->cluster; }

static void start_all(struct run *run, uint8_t *full) {
    scatter(run, full, run->state.row_count);
    run->gather.collective++;
    for (uint32_t b = 0; b < run->cluster.boards; b++)
        emu_unit_start(run->boards[b], LORA_UNIT_ROUTER, (void *)&run->gather, &run->lists[b],
                       &run->state);
}

/* What boards and ports have counted. */
struct totals {
    struct hal_unit_result results[LORA_MAX_BOARDS];
    uint32_t out_of[LORA_MAX_BOARDS][LORA_PORTS], in_by[LORA_MAX_BOARDS][LORA_PORTS];
    struct emu_port_counters counters[LORA_MAX_BOARDS][LORA_PORTS];
    uint64_t bytes[LORA_MAX_BOARDS][LORA_PORTS], payload[LORA_MAX_BOARDS][LORA_PORTS];
    uint32_t progress[LORA_MAX_BOARDS]; /* a sum of the Router's own state */
};

static uint32_t sum_of(const struct emu_router *router) {
    const struct gather_plan *plan = router->plan;
    uint64_t blocks = plan->shape.boards * plan->max_blocks;
    uint32_t sum = lora_crc32(0, router->received, blocks * sizeof router->received[0]);
    sum = lora_crc32(sum, router->missing, sizeof router->missing[0] * plan->groups);
    sum = lora_crc32(sum, &router->missing_total, sizeof router->missing_total);
    return lora_crc32(sum, router->cursor, sizeof router->cursor);
}

static void clear_port(struct emu_port *port) {
    memset(&port->counters, 0, sizeof port->counters);
    port->frame_bytes = port->payload_bytes = 0;
}

/* Of a gather that is over; ports begin at 0 again. */
static struct totals take_totals(struct run *run) {
    struct totals totals;
    memset(&totals, 0, sizeof totals);
    for (uint32_t b = 0; b < run->cluster.boards; b++) {
        struct emu_board *board = run->boards[b];
        uint32_t groups[LORA_SEGMENTS];
        emu_hal_bind(board);
        hal_unit_segments(LORA_UNIT_ROUTER, groups);
        for (uint32_t s = 0; s < LORA_SEGMENTS; s++)
            CHECK(groups[s] == (run->state.row_count + LORA_ROW_GROUP - 1) / LORA_ROW_GROUP);
        totals.progress[b] = sum_of(&board->router);
        CHECK(board->awake && !board->links_awake);
        CHECK(emu_unit_poll(board, LORA_UNIT_ROUTER, &totals.results[b]) == LORA_UNIT_DONE);
        memcpy(totals.out_of[b], board->router.out_of, sizeof totals.out_of[b]);
        memcpy(totals.in_by[b], board->router.in_by, sizeof totals.in_by[b]);
        for (uint32_t p = 0; p < LORA_PORTS; p++) {
            struct emu_port *port = &board->ports[p];
            CHECK(port->head == port->tail);
            totals.counters[b][p] = port->counters;
            totals.bytes[b][p] = port->frame_bytes;
            totals.payload[b][p] = port->payload_bytes;
            clear_port(port);
        }
    }
    return totals;
}

/* The values that each gather has of its own. */
static void leave_sums_out(struct totals *totals) {
    for (uint32_t b = 0; b < LORA_MAX_BOARDS; b++) totals->results[b].value = 0;
}

/* Each board changes its columns as soon as it has filed, and keeps those of its next gather: its
 * firmware may come so far. */
static void file_all(struct run *run) {
    static uint8_t filed[LORA_MAX_BOARDS][TEST_ONCHIP];
    const struct lora_gather *g = &run->gather;
    uint32_t boards = run->cluster.boards;
    CHECK(cluster_of(run)->direct);
    for (uint32_t b = 0; b < boards; b++) {
        uint8_t *onchip = run->boards[b]->memory.base[LORA_BANK_ONCHIP];
        emu_gather_file(run->boards[b]);
        memcpy(filed[b], onchip, TEST_ONCHIP);
        memset(onchip + g->offset, 0x77, run->state.row_count * g->stride);
        emu_router_keep(&run->boards[b]->router);
    }
    for (uint32_t b = 0; b < boards; b++)
        memcpy(run->boards[b]->memory.base[LORA_BANK_ONCHIP], filed[b], TEST_ONCHIP);
    cluster_of(run)->direct = false;
}

/* Whether every board has columns, and no more than it keeps. */
static bool fits(const struct run *run) {
    const struct lora_gather *g = &run->gather;
    for (uint32_t b = 0; b < run->cluster.boards; b++) {
        uint32_t columns = share_start(g, run->cluster.boards, b + 1) -
                           share_start(g, run->cluster.boards, b);
        uint32_t bytes = columns * g->element_bytes * run->state.row_count;
        if (bytes == 0 || bytes > EMU_KEPT_BYTES) return false;
    }
    return true;
}

/* Makes the plan, counts, then needs no frames. */
static void check_turns(struct run *run) {
    static uint8_t full[TEST_ONCHIP];
    struct totals framed = {0};
    for (uint32_t turn = 0; turn < 5; turn++) {
        start_all(run, full);
        bool direct = fits(run) && turn > 1;
        CHECK(emu_gather_direct(cluster_of(run)) == (fits(run) && turn > 0));
        CHECK(cluster_of(run)->direct == direct);
        if (direct) file_all(run);
        else emu_router_settle(cluster_of(run));
        CHECK(gathered(run, full, run->state.row_count));
        struct totals totals = take_totals(run);
        leave_sums_out(&totals);
        if (turn == 0) framed = totals;
        CHECK(memcmp(&totals, &framed, sizeof totals) == 0);
        CHECK(totals.results[0].frames_sent + totals.results[1].frames_sent > 0);
    }
}

static void check_direct(uint32_t boards, enum test_shape shape) {
    static const struct {
        uint32_t columns;
        uint16_t share, segment, element;
    } cases[] = {
        {256, 32, 32, 2}, {8, 1, 1, 8}, {1000, 96, 32, 2}, {3000, 32, 32, 1}, {31, 32, 32, 2}};
    static const uint32_t rows[] = {1, 3, 20, 64};
    struct run run = run_open(boards, shape);
    for (uint32_t i = 0; i < boards * LORA_PORTS; i++)
        clear_port(&run.boards[i / LORA_PORTS]->ports[i % LORA_PORTS]);
    for (uint32_t c = 0; c < sizeof cases / sizeof cases[0]; c++)
        for (uint32_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
            uint32_t width = cases[c].columns * cases[c].element;
            run.gather.columns = cases[c].columns;
            run.gather.share_unit = cases[c].share;
            run.gather.segment_unit = cases[c].segment;
            run.gather.element_bytes = cases[c].element;
            run.gather.offset = 128;
            run.gather.stride = (width + 127) / 64 * 64;
            run.state.row_count = rows[r];
            check_turns(&run);
        }
    run_close(&run);
}

static void refused(struct run *run, const uint8_t *full) {
    CHECK(!emu_gather_direct(cluster_of(run)));
    CHECK(!cluster_of(run)->direct);
    emu_router_settle(cluster_of(run));
    CHECK(gathered(run, full, run->state.row_count));
    (void)take_totals(run);
}

/* Whatever may change a frame, or when it arrives, is left to frames. */
static void check_frames(void) {
    static uint8_t full[TEST_ONCHIP];
    struct run run = run_open(4, TEST_RING);
    struct emu_port *port = &run.boards[2]->ports[1];
    run.state.row_count = 3;
    run.gather.columns = 256;
    run.gather.share_unit = run.gather.segment_unit = 32;
    run.gather.element_bytes = 2;
    run.gather.stride = 512;
    for (uint32_t turn = 0; turn < 2; turn++) { /* the plan, then its counts */
        start_all(&run, full);
        if (turn == 0) emu_router_settle(cluster_of(&run));
        else CHECK(emu_gather_direct(cluster_of(&run)));
        (void)take_totals(&run);
    }
    struct emu_frame_fault *faults[] = {&port->faults.garble,  &port->faults.flip,
                                        &port->faults.drop,    &port->faults.duplicate,
                                        &port->faults.reorder, &port->faults.stale,
                                        &port->faults.delay,   &run.boards[1]->router.misfile};
    for (uint32_t i = 0; i < sizeof faults / sizeof faults[0]; i++) {
        *faults[i] = (struct emu_frame_fault){.on = true, .after = 1000, .count = 1};
        start_all(&run, full);
        refused(&run, full);
        faults[i]->on = false;
    }
    run.boards[3]->router.stuck = true;
    run.boards[3]->router.stuck_after = 1000;
    start_all(&run, full);
    refused(&run, full);
    run.boards[3]->router.stuck = false;

    struct lora_frame *frame = emu_port_claim(port, 0); /* an old frame has not been taken */
    *frame = (struct lora_frame){.magic = LORA_FRAME_MAGIC, .epoch = 2, .kind = LORA_FRAME_DATA};
    emu_frame_seal(frame, emu_frame_crc(frame));
    emu_port_commit(port);
    start_all(&run, full);
    refused(&run, full);

    start_all(&run, full); /* one board was first: its frames are on their way */
    emu_router_pump(run.boards[1]);
    refused(&run, full);

    start_all(&run, full);
    run.boards[0]->links_awake = false; /* or has not begun */
    CHECK(!emu_gather_direct(cluster_of(&run)));
    run.boards[0]->links_awake = true;
    cluster_of(&run)->has_far = true;
    CHECK(!emu_gather_direct(cluster_of(&run)));
    cluster_of(&run)->has_far = false;
    run.boards[2]->link_test.active = true;
    CHECK(!emu_gather_direct(cluster_of(&run)));
    run.boards[2]->link_test.active = false;
    port->up = false;
    CHECK(!emu_gather_direct(cluster_of(&run)));
    port->up = true;
    port->peer->held = true;
    CHECK(!emu_gather_direct(cluster_of(&run)));
    port->peer->held = false;
    CHECK(emu_gather_direct(cluster_of(&run)));
    file_all(&run);
    CHECK(gathered(&run, full, run.state.row_count));
    run_close(&run);
}

/* Boards that do not agree get no rows of each other. */
static void check_disagreement(void) {
    static uint8_t full[TEST_ONCHIP];
    struct run run = run_open(2, TEST_RING);
    run.state.row_count = 3;
    run.gather.columns = 64;
    run.gather.share_unit = run.gather.segment_unit = 32;
    run.gather.element_bytes = 2;
    run.gather.stride = 128;
    for (uint32_t turn = 0; turn < 2; turn++) {
        start_all(&run, full);
        if (turn == 0) emu_router_settle(cluster_of(&run));
        else CHECK(emu_gather_direct(cluster_of(&run)));
        (void)take_totals(&run);
    }
    start_all(&run, full);
    run.boards[1]->router.collective++;
    CHECK(!emu_gather_direct(cluster_of(&run)));
    run.boards[1]->router.collective--;
    run.boards[1]->router.rank = 0;
    CHECK(!emu_gather_direct(cluster_of(&run)));
    run.boards[1]->router.rank = 1;
    run.boards[1]->router.epoch++;
    CHECK(!emu_gather_direct(cluster_of(&run)));
    run.boards[1]->router.epoch--;
    run.boards[1]->router.step++;
    CHECK(!emu_gather_direct(cluster_of(&run)));
    run.boards[1]->router.step--;
    run.boards[1]->router.in[EMU_NEXT] = &run.boards[1]->ports[1]; /* cables are crossed */
    CHECK(!emu_gather_direct(cluster_of(&run)));
    run_close(&run);
}

/* A slice of the emulator takes the same way, with two threads. */
static void check_slices(void) {
    static uint8_t full[TEST_ONCHIP];
    struct run run = run_open(4, TEST_RING);
    struct hal_unit_result result;
    uint32_t moved;
    run.state.row_count = 2;
    run.gather.columns = 256;
    run.gather.share_unit = run.gather.segment_unit = 32;
    run.gather.element_bytes = 2;
    run.gather.stride = 512;
    cluster_of(&run)->pool = lora_pool_create(2);
    for (uint32_t turn = 0; turn < 200; turn++) {
        uint32_t place = run.boards[1]->router.kept_place;
        start_all(&run, full);
        CHECK(lora_emu_advance(run.cluster.id, 0, &moved) == LORA_OK && moved);
        CHECK(gathered(&run, full, 2));
        for (uint32_t b = 0; b < 4; b++)
            CHECK(emu_unit_poll(run.boards[b], LORA_UNIT_ROUTER, &result) == LORA_UNIT_DONE);
        CHECK((run.boards[1]->router.kept_place != place) == (turn > 1));
    }
    lora_pool_free(cluster_of(&run)->pool);
    cluster_of(&run)->pool = NULL;
    run_close(&run);
}

int main(void) {
    check_direct(2, TEST_PATH);
    check_direct(2, TEST_RING);
    check_direct(4, TEST_RING);
    check_direct(4, TEST_PATH);
    check_direct(8, TEST_RING);
    check_direct(8, TEST_PATH);
    check_frames();
    check_disagreement();
    check_slices();
    puts("emu_direct: ok");
    return 0;
}
