/* All-gathers on rings and paths against a plain loop, byte for byte, and what fails on links. */
#include "emu_rows.h"

/* The unit's start, and the links' turn that follows it. */
static void start_gather(struct run *run, uint32_t board, struct lora_gather *gather) {
    emu_unit_start(run->boards[board], LORA_UNIT_ROUTER, (void *)gather, &run->lists[board],
                   &run->state);
    emu_router_pump(run->boards[board]);
}

static void start(struct run *run, uint32_t board) { start_gather(run, board, &run->gather); }

static uint32_t poll(struct run *run, uint32_t board, struct hal_unit_result *result) {
    if (run->boards[board]->links_awake) emu_router_pump(run->boards[board]);
    return emu_unit_poll(run->boards[board], LORA_UNIT_ROUTER, result);
}

/* Polls the boards in an order of its own until all have ended; returns the worst status. */
static uint32_t finish(struct run *run, struct hal_unit_result results[LORA_MAX_BOARDS]) {
    uint32_t ended = 0, worst = LORA_OK, boards = run->cluster.boards;
    for (uint32_t turn = 0; ended != (1u << boards) - 1; turn++) {
        CHECK(turn < 100000);
        uint32_t b = random_word() % boards;
        if (ended & 1u << b) continue;
        uint32_t state = poll(run, b, &results[b]);
        if (state == LORA_UNIT_BUSY) continue;
        ended |= 1u << b;
        if (results[b].status > worst) worst = results[b].status;
    }
    return worst;
}

static void check_one(struct run *run, uint32_t rows, uint32_t selected) {
    static uint8_t full[TEST_ONCHIP];
    struct hal_unit_result results[LORA_MAX_BOARDS];
    run->state.row_count = rows;
    run->state.selected_count = selected;
    uint32_t used = run->gather.flags & LORA_FLAG_SELECTED ? selected : rows;
    scatter(run, full, used);
    for (uint32_t b = 0; b < run->cluster.boards; b++) start(run, b);
    CHECK(finish(run, results) == LORA_OK);
    CHECK(gathered(run, full, used));
    uint32_t sent = 0, received = 0, groups[LORA_SEGMENTS];
    for (uint32_t b = 0; b < run->cluster.boards; b++) {
        emu_hal_bind(run->boards[b]);
        hal_unit_segments(LORA_UNIT_ROUTER, groups);
        for (uint32_t s = 0; s < LORA_SEGMENTS; s++)
            CHECK(groups[s] == (used + LORA_ROW_GROUP - 1) / LORA_ROW_GROUP);
        CHECK(results[b].frames_dropped == 0);
        CHECK(run->boards[b]->ports[0].head == run->boards[b]->ports[0].tail);
        CHECK(run->boards[b]->ports[1].head == run->boards[b]->ports[1].tail);
        sent += results[b].frames_sent;
        received += results[b].frames_received;
    }
    CHECK(sent == received);
    run->gather.collective++;
}

static void check_shapes(uint32_t boards, enum test_shape shape) {
    static const struct {
        uint32_t columns;
        uint16_t share, segment, element;
    } cases[] = {
        {256, 32, 32, 2}, {8, 1, 1, 8},      {8, 1, 1, 4},    {320, 64, 32, 2},  {50, 32, 32, 2},
        {7, 1, 32, 2},    {1000, 96, 32, 2}, {31, 32, 32, 2}, {3000, 32, 32, 2}, {1, 1, 1, 2},
        {256, 32, 32, 1}, {1000, 96, 32, 1}, {50, 32, 32, 1}, {9000, 32, 32, 1}, {1, 1, 1, 1},
    };
    static const uint32_t rows[] = {1, 2, 15, 16, 17, 33, 64};
    struct run run = run_open(boards, shape);
    for (uint32_t c = 0; c < sizeof cases / sizeof cases[0]; c++)
        for (uint32_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
            struct lora_gather *g = &run.gather;
            g->columns = cases[c].columns;
            g->share_unit = cases[c].share;
            g->segment_unit = cases[c].segment;
            g->element_bytes = cases[c].element;
            g->stride = (cases[c].columns * cases[c].element + 63) / 64 * 64;
            g->offset = 4096;
            g->flags = 0;
            check_one(&run, rows[r], 0);
            g->flags = LORA_FLAG_SELECTED;
            check_one(&run, rows[r], rows[r] / 2);
        }
    run_close(&run);
}

static void set_plain(struct run *run, uint32_t rows) {
    run->gather.columns = 256;
    run->gather.share_unit = run->gather.segment_unit = 32;
    run->gather.element_bytes = 2;
    run->gather.stride = 512;
    run->gather.offset = 0;
    run->gather.flags = 0;
    run->state.row_count = rows;
}

static void fault(struct run *run, uint32_t board, uint32_t kind, uint32_t a, uint32_t b,
                  uint32_t c) {
    CHECK(lora_emu_fault(run->cluster.id, board, kind, a, b, c) == LORA_OK);
}

static void check_flip(void) {
    struct run run = run_open(4, TEST_RING);
    struct hal_unit_result result = {0};
    set_plain(&run, 1);
    fault(&run, 0, LORA_FAULT_LINK_FLIP, 1, 0, 1);
    for (uint32_t b = 0; b < 4; b++) start(&run, b);
    for (int i = 0; i < 10; i++)
        if (poll(&run, 1, &result) == LORA_UNIT_FAILED) break;
    CHECK(result.status == LORA_ERR_LINK_CRC && result.port == 0);
    CHECK(test_read(&run.cluster, 1, LORA_BLOCK_LINK0, LORA_LINK_FRAMES_WITH_ERRORS) == 1);
    /* Its firmware poisons both neighbours: 2, which misses the block, ends; 0 and 3 have it. */
    emu_hal_bind(run.boards[1]);
    hal_links_poison(&run.lists[1], &run.state);
    emu_link_requests_run(run.boards[1]);
    CHECK(poll(&run, 2, &result) == LORA_UNIT_FAILED);
    CHECK(result.status == LORA_ERR_LINK_POISON && result.port == 0);
    emu_unit_abort(run.boards[0], LORA_UNIT_ROUTER);
    emu_unit_abort(run.boards[3], LORA_UNIT_ROUTER);
    /* A new epoch: the old frames go, counted, and the same step succeeds. */
    run.state.epoch++;
    uint32_t dropped = 0;
    for (uint32_t b = 0; b < 4; b++) {
        emu_hal_bind(run.boards[b]);
        hal_links_epoch(run.state.epoch);
        emu_link_requests_run(run.boards[b]);
        dropped += run.boards[b]->frames_dropped;
        run.boards[b]->frames_dropped = 0;
    }
    CHECK(dropped > 0);
    check_one(&run, 1, 0);
    run_close(&run);
}

/* Lost or out of place: the gather fails or waits. Sent twice or late: it ends as it must. */
static void check_wire(void) {
    static const struct {
        uint32_t kind, after, state;
    } cases[] = {
        {LORA_FAULT_LINK_DROP, 0, LORA_UNIT_BUSY},
        {LORA_FAULT_LINK_STALE, 0, LORA_UNIT_BUSY},
        {LORA_FAULT_LINK_DUPLICATE, 0, LORA_UNIT_FAILED},
        {LORA_FAULT_LINK_REORDER, 0, LORA_UNIT_DONE}, /* none precedes another */
        {LORA_FAULT_LINK_DELAY, 0, LORA_UNIT_BUSY},
    };
    for (uint32_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct run run = run_open(2, TEST_PATH);
        struct hal_unit_result result = {0};
        set_plain(&run, 8);
        fault(&run, 0, cases[i].kind, 1, cases[i].after, 1);
        for (uint32_t b = 0; b < 2; b++) start(&run, b);
        uint32_t state = LORA_UNIT_BUSY;
        for (int n = 0; n < 10 && state == LORA_UNIT_BUSY; n++) state = poll(&run, 1, &result);
        CHECK(state == cases[i].state);
        if (cases[i].kind == LORA_FAULT_LINK_DELAY) {
            test_sleep(&run.cluster, 10);
            CHECK(poll(&run, 1, &result) == LORA_UNIT_DONE);
        }
        run_close(&run);
    }
    struct run run = run_open(4, TEST_RING);
    for (uint32_t port = 0; port < LORA_PORTS; port++)
        CHECK(run.boards[1]->ports[port].peer->peer == &run.boards[1]->ports[port]);
    const struct emu_port *far = run.boards[1]->ports[0].peer;
    fault(&run, 1, LORA_FAULT_LINK_SWAP, 0, 0, 0);
    CHECK(run.boards[1]->ports[1].peer == far && far->peer == &run.boards[1]->ports[1]);
    fault(&run, 1, LORA_FAULT_NONE, 0, 0, 0);
    CHECK(run.boards[1]->ports[0].peer == far);
    run_close(&run);
}

static void check_down(void) {
    struct run run = run_open(4, TEST_PATH);
    struct hal_unit_result result;
    set_plain(&run, 1);
    fault(&run, 2, LORA_FAULT_LINK_DOWN, 0, 0, 0);
    for (uint32_t b = 0; b < 4; b++) start(&run, b);
    CHECK(poll(&run, 1, &result) == LORA_UNIT_FAILED);
    CHECK(result.status == LORA_ERR_LINK_DOWN && result.port == 1);
    CHECK(poll(&run, 2, &result) == LORA_UNIT_FAILED);
    CHECK(result.status == LORA_ERR_LINK_DOWN && result.port == 0);
    CHECK(test_read(&run.cluster, 1, LORA_BLOCK_LINK1, LORA_LINK_CHANNEL_DOWN) == 1);
    CHECK(test_read(&run.cluster, 1, LORA_BLOCK_LINK1, LORA_LINK_STATUS) != LORA_LINK_HEALTHY);
    CHECK(poll(&run, 0, &result) == LORA_UNIT_BUSY); /* its own cable is well */
    run_close(&run);
}

/* What arrives for a collective that this board has not begun waits in the FIFO. */
static void check_future_frames(void) {
    struct run run = run_open(2, TEST_PATH);
    struct hal_unit_result results[LORA_MAX_BOARDS];
    static uint8_t full[4096];
    set_plain(&run, 1);
    scatter(&run, full, 1);
    struct lora_gather later = run.gather;
    later.collective = 1;
    later.offset = 8192;
    /* Board 1's frame of collective 1 lies in board 0's FIFO before board 0 has begun it. */
    start(&run, 0);
    start(&run, 1);
    CHECK(poll(&run, 1, &results[1]) == LORA_UNIT_DONE);
    start_gather(&run, 1, &later);
    CHECK(run.boards[0]->ports[1].tail - run.boards[0]->ports[1].head == 2);
    CHECK(poll(&run, 0, &results[0]) == LORA_UNIT_DONE);
    CHECK(gathered(&run, full, 1));
    CHECK(run.boards[0]->ports[1].tail - run.boards[0]->ports[1].head == 1);
    start_gather(&run, 0, &later);
    CHECK(finish(&run, results) == LORA_OK);
    CHECK(results[0].frames_received == 1 && results[0].frames_dropped == 0);
    run_close(&run);
}

static void check_hostile_header(void) {
    static const struct {
        size_t at;
        uint8_t value;
    } wrong[] = {
        {offsetof(struct lora_frame, source), 9},     {offsetof(struct lora_frame, source), 0},
        {offsetof(struct lora_frame, segment), 200},  {offsetof(struct lora_frame, segment), 1},
        {offsetof(struct lora_frame, row_group), 77}, {offsetof(struct lora_frame, segments), 3},
        {offsetof(struct lora_frame, part), 1},       {offsetof(struct lora_frame, offset), 64},
        {offsetof(struct lora_frame, length), 8},     {offsetof(struct lora_frame, hop), 3},
        {offsetof(struct lora_frame, length) + 3, 1}, {offsetof(struct lora_frame, kind), 0},
        {offsetof(struct lora_frame, magic), 0},
    };
    for (uint32_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        struct run run = run_open(2, TEST_PATH);
        struct hal_unit_result result = {0};
        set_plain(&run, 1);
        start(&run, 1);
        struct lora_frame *frame = emu_port_head(&run.boards[0]->ports[1]);
        CHECK(frame);
        ((uint8_t *)frame)[wrong[i].at] = wrong[i].value;
        if (frame->length <= LORA_FRAME_PAYLOAD) emu_frame_seal(frame, emu_frame_crc(frame));
        start(&run, 0);
        CHECK(poll(&run, 0, &result) == LORA_UNIT_FAILED && result.status == LORA_ERR_LINK_CRC);
        run_close(&run);
    }
}

static void check_misfile(void) {
    struct run run = run_open(4, TEST_RING);
    struct hal_unit_result results[LORA_MAX_BOARDS];
    static uint8_t full[4096];
    set_plain(&run, 1);
    fault(&run, 2, LORA_FAULT_MISFILE, 0, 0, 0);
    scatter(&run, full, 1);
    for (uint32_t b = 0; b < 4; b++) start(&run, b);
    CHECK(finish(&run, results) == LORA_OK);
    CHECK(!gathered(&run, full, 1));
    run_close(&run);
}

/* Blocks of 4096 bytes that each port of each board sends, in one gather over a ring of four. */
static void check_link_bytes(uint32_t columns, uint32_t previous, uint32_t next) {
    struct run run = run_open(4, TEST_RING);
    set_plain(&run, 16);
    run.gather.columns = columns;
    run.gather.stride = columns * 2;
    check_one(&run, 16, 0);
    for (uint32_t b = 0; b < 4; b++)
        for (uint32_t p = 0; p < 2; p++) {
            uint64_t frames, payload, blocks = p ? next : previous;
            CHECK(lora_emu_link_bytes(run.cluster.id, b, p, &frames, &payload) == LORA_OK);
            CHECK(payload == blocks * 4096 && frames == blocks * (4096 + 36));
        }
    run_close(&run);
}

int main(void) {
    check_shapes(1, TEST_RING);
    check_shapes(2, TEST_PATH);
    check_shapes(2, TEST_RING);
    check_shapes(4, TEST_RING);
    check_shapes(4, TEST_PATH);
    check_shapes(8, TEST_RING);
    check_shapes(8, TEST_PATH);
    check_flip();
    check_wire();
    check_down();
    check_future_frames();
    check_hostile_header();
    check_misfile();
    /* Two segments of a share just fill one frame: one block, two hops to next, one back. With one
     * block a segment, Figure 9: three full-duplex cycles. */
    check_link_bytes(512, 1, 2);
    check_link_bytes(1024, 3, 3);
    puts("emu_gather: ok");
    return 0;
}
