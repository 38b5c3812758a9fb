/* Whole steps on a ring of boards with native kernels: matmuls and gathers in turn, boards polled
 * on one thread and on several. The same bytes on every board and with any number of threads, and
 * for the thread sanitizer: boards that run at once have nothing in common but their links, and
 * another thread writes K and V, which no step reads, to the weights' bank meanwhile. The last step
 * fails on a link first, and poison ends it on all boards. */
#include <pthread.h>
#include <stdatomic.h>

#include "emu_board.h"

#include "lora/native.h"

enum {
    BOARDS = 4,
    LAYERS = 12,
    SHARE = 32,
    COLUMNS = BOARDS * SHARE,
    ROWS = 3,
    COMMANDS = 2 * LAYERS + 3,
    STRIDE = COLUMNS * 2,
    BUFFER = ROWS * STRIDE, /* on-chip: two of them take turns */
    COUNTERS = LAYERS * (1 + LORA_SEGMENTS) + 1,
    STEP_AT = 0x1000,
    LIST_AT = 0x3000,
    RESULTS_AT = 0x8000,
    TABLE_AT = 0x10000,
    CONTROL_BYTES = 1 << 18,
    PAGES_BYTES = 1 << 17, /* behind the weights */
    STEPS = 20
};

struct list {
    struct lora_list header;
    struct lora_command commands[COMMANDS];
};

_Static_assert(sizeof(struct lora_command) == 64, "commands lie side by side");

static uint16_t random_half(void) {
    static uint32_t state = 99;
    state = state * 1664525u + 1013904223u;
    return (uint16_t)((state >> 16 & 0x83ff) | 0x2c00); /* 1/16 .. 1/8, either sign */
}

static void put(struct list *list, uint32_t at, const void *command, uint32_t signal) {
    memcpy(&list->commands[at], command, sizeof list->commands[at]);
    list->commands[at].signal_counter = (uint16_t)signal;
}

static void add_layer(struct list *list, uint32_t layer) {
    uint32_t own = 1 + layer * (1 + LORA_SEGMENTS); /* counter of the matmul, then the gather's */
    uint32_t from = layer % 2 * BUFFER, to = BUFFER - from;
    const uint16_t whole = LORA_FLAG_WAIT_SEGMENTS | LORA_FLAG_WAIT_GROUPS;
    struct lora_matrix matmul = {.opcode = LORA_CMD_MATRIX,
                                 .unit = LORA_UNIT_MPU,
                                 .flags = layer ? whole : 0,
                                 .wait_counter = (uint16_t)(layer ? own - LORA_SEGMENTS : 0),
                                 .wait_value = 1,
                                 .layer = (uint16_t)layer,
                                 .bank_count = 1,
                                 .merge = 1,
                                 .weight_type = LORA_WEIGHT_FP16,
                                 .weight_line = layer * (LORA_BLOCK_K * LORA_BLOCK_N / 32),
                                 .x_bank = LORA_BANK_ONCHIP,
                                 .y_bank = LORA_BANK_ONCHIP,
                                 .k = COLUMNS,
                                 .n = SHARE,
                                 .x_offset = from,
                                 .x_stride = STRIDE,
                                 .y_offset = to + list->header.rank * SHARE * 2,
                                 .y_stride = STRIDE,
                                 .bias_bank = LORA_NO_BANK,
                                 .y_type = LORA_FP16};
    struct lora_gather gather = {.opcode = LORA_CMD_GATHER,
                                 .unit = LORA_UNIT_ROUTER,
                                 .flags = LORA_FLAG_SIGNAL_SEGMENTS,
                                 .wait_counter = (uint16_t)own,
                                 .wait_value = 1,
                                 .layer = (uint16_t)layer,
                                 .offset = to,
                                 .stride = STRIDE,
                                 .columns = COLUMNS,
                                 .share_unit = SHARE,
                                 .segment_unit = SHARE,
                                 .element_bytes = 2,
                                 .collective = (uint16_t)layer};
    put(list, 1 + 2 * layer, &matmul, own);
    put(list, 2 + 2 * layer, &gather, own + 1);
}

/* Rows come from the results and, the layers done, go there. */
static void add_moves(struct list *list) {
    struct lora_move_rows in = {.opcode = LORA_CMD_MOVE_ROWS,
                                .unit = LORA_UNIT_DMA,
                                .wait_counter = LORA_NO_COUNTER,
                                .x_bank = TEST_DDR,
                                .x_offset = RESULTS_AT,
                                .x_stride = STRIDE,
                                .y_bank = LORA_BANK_ONCHIP,
                                .y_stride = STRIDE,
                                .bytes = STRIDE};
    struct lora_move_rows out = {.opcode = LORA_CMD_MOVE_ROWS,
                                 .unit = LORA_UNIT_DMA,
                                 .flags = LORA_FLAG_WAIT_SEGMENTS | LORA_FLAG_WAIT_GROUPS,
                                 .wait_counter = COUNTERS - LORA_SEGMENTS,
                                 .wait_value = 1,
                                 .x_bank = LORA_BANK_ONCHIP,
                                 .x_offset = LAYERS % 2 * BUFFER,
                                 .x_stride = STRIDE,
                                 .y_bank = TEST_DDR,
                                 .y_offset = RESULTS_AT,
                                 .y_stride = STRIDE,
                                 .bytes = STRIDE};
    struct lora_command end = {
        .opcode = LORA_CMD_END, .unit = LORA_UNIT_CONTROL, .wait_counter = LORA_NO_COUNTER};
    put(list, 0, &in, 0);
    list->commands[1].wait_counter = 0;
    put(list, COMMANDS - 2, &out, LORA_NO_COUNTER);
    put(list, COMMANDS - 1, &end, LORA_NO_COUNTER);
}

static struct list make_list(uint32_t rank) {
    struct list list = {.header = {.size = sizeof list.header,
                                   .abi = LORA_ABI_NUMBER,
                                   .command_count = COMMANDS,
                                   .counter_count = COUNTERS,
                                   .rank = (uint8_t)rank,
                                   .boards = BOARDS,
                                   .ring = 1,
                                   .port_next = 1,
                                   .port_previous = 0,
                                   .control_bank = TEST_DDR,
                                   .table_bank = TEST_DDR,
                                   .max_rows = ROWS,
                                   .max_scratch = 32,
                                   .max_sequences = 1,
                                   .max_tiles = 2,
                                   .page_count = 2,
                                   .vocabulary = 10,
                                   .positions = 64,
                                   .onchip_bytes = TEST_ONCHIP,
                                   .head_dim = 16,
                                   .table_line = TABLE_AT / LORA_LINE_BYTES,
                                   .results_offset = RESULTS_AT,
                                   .results_bytes = BUFFER}};
    for (uint32_t layer = 0; layer < LAYERS; layer++) add_layer(&list, layer);
    add_moves(&list);
    list.header.crc = lora_crc32(0, &list, sizeof list);
    return list;
}

/* All boards at once, as the host runs a step; returns how many failed. */
static uint32_t operate(struct test_cluster *cluster, uint32_t operation, uint32_t block,
                        uint32_t step, uint32_t epoch) {
    uint32_t arguments[11] = {operation, 0, block, step, epoch}, failed = 0;
    test_arguments(arguments, TEST_DDR);
    for (uint32_t b = 0; b < BOARDS; b++)
        CHECK(transport->submit(cluster->handle[b], arguments, NULL) == LORA_OK);
    for (uint32_t b = 0; b < BOARDS; b++) {
        struct lora_completion record;
        uint32_t state = LORA_RUN_BUSY;
        while (state == LORA_RUN_BUSY)
            CHECK(transport->poll(cluster->handle[b], &state, NULL) == LORA_OK);
        CHECK(transport->memory_read(cluster->handle[b], TEST_DDR, LORA_COMPLETION_OFFSET, &record,
                                     sizeof record, NULL) == LORA_OK);
        CHECK(record.operation == operation);
        failed += record.status != LORA_OK;
    }
    return failed;
}

static void write(struct test_cluster *cluster, uint32_t board, uint32_t bank, uint64_t offset,
                  const void *data, uint64_t bytes) {
    CHECK(transport->memory_write(cluster->handle[board], bank, offset, data, bytes, NULL) ==
          LORA_OK);
}

static uint32_t run_step(struct test_cluster *cluster, uint32_t number, uint32_t epoch) {
    struct {
        struct lora_step header;
        struct lora_row rows[ROWS];
        struct lora_kv_op drop; /* the rows of the step before */
    } block = {.header = {.size = sizeof block.header,
                          .abi = LORA_ABI_NUMBER,
                          .bytes = sizeof block,
                          .step = number,
                          .epoch = epoch,
                          .row_count = ROWS,
                          .rows_offset = sizeof block.header,
                          .kv_op_count = 1,
                          .kv_ops_offset = sizeof block.header + sizeof block.rows},
               .drop = {.kind = LORA_KV_LENGTH}};
    block.header.path_offset = block.header.kv_ops_offset;
    for (int32_t r = 0; r < ROWS; r++)
        block.rows[r] = (struct lora_row){.token = 1, .adapter = -1, .parent = -1, .slot = r};
    for (uint32_t b = 0; b < BOARDS; b++)
        write(cluster, b, TEST_DDR, STEP_AT, &block, sizeof block);
    return operate(cluster, LORA_OP_STEP, STEP_AT, number, epoch);
}

static void prepare(struct test_cluster *cluster, const uint16_t *weights, uint64_t bytes) {
    test_links_up(cluster);
    for (uint32_t b = 0; b < BOARDS; b++) {
        struct list list = make_list(b);
        test_reserve(cluster, b, TEST_DDR, 0, CONTROL_BYTES);
        test_reserve(cluster, b, 0, 0, bytes + PAGES_BYTES);
        test_arena(cluster, b, 0, TEST_DDR, 0, CONTROL_BYTES);
        test_arena(cluster, b, 1, 0, 0, bytes + PAGES_BYTES);
        write(cluster, b, TEST_DDR, LIST_AT, &list, sizeof list);
        write(cluster, b, 0, 0, weights + b * bytes / 2, bytes);
    }
    CHECK(operate(cluster, LORA_OP_REGISTER, LIST_AT, 0, 0) == 0);
}

/* A damaged frame ends the step on every board that misses its block; the same step under the next
 * epoch runs, with what it began with still in its place. */
static void fail_and_repeat(struct test_cluster *cluster, uint32_t number) {
    CHECK(lora_emu_fault(cluster->id, 1, LORA_FAULT_LINK_FLIP, 1, LAYERS / 2, 1) == LORA_OK);
    CHECK(run_step(cluster, number, 1) == BOARDS);
    CHECK(lora_emu_fault(cluster->id, 1, LORA_FAULT_NONE, 0, 0, 0) == LORA_OK);
    CHECK(run_step(cluster, number, 2) == 0);
}

struct beside { /* a thread that writes while steps run */
    struct test_cluster *cluster;
    uint64_t offset;
    atomic_bool ends;
    uint8_t last; /* what it wrote last, everywhere */
};

static void *write_beside(void *argument) {
    struct beside *own = argument;
    static uint8_t data[PAGES_BYTES];
    do {
        memset(data, ++own->last, sizeof data);
        for (uint32_t b = 0; b < BOARDS; b++) {
            write(own->cluster, b, 0, own->offset, data, 4096);
            write(own->cluster, b, 0, own->offset + 4096, data, PAGES_BYTES - 4096);
        }
    } while (!atomic_load(&own->ends));
    return NULL;
}

static void check_beside(const struct beside *own) {
    static uint8_t found[PAGES_BYTES];
    for (uint32_t b = 0; b < BOARDS; b++) {
        CHECK(transport->memory_read(own->cluster->handle[b], 0, own->offset, found, sizeof found,
                                     NULL) == LORA_OK);
        for (uint32_t i = 0; i < PAGES_BYTES; i++) CHECK(found[i] == own->last);
    }
}

/* The rows after each step, which begins with those of the one before. */
static void run(uint32_t threads, const uint16_t *weights, uint64_t bytes, const uint8_t *first,
                uint8_t found[STEPS][BUFFER]) {
    struct test_cluster cluster = test_open_with(BOARDS, TEST_RING, 0, &lora_kernels_native,
                                                 threads);
    prepare(&cluster, weights, bytes);
    for (uint32_t b = 0; b < BOARDS; b++) write(&cluster, b, TEST_DDR, RESULTS_AT, first, BUFFER);
    struct beside beside = {.cluster = &cluster, .offset = bytes};
    pthread_t writer;
    CHECK(pthread_create(&writer, NULL, write_beside, &beside) == 0);
    for (uint32_t step = 0; step < STEPS; step++) {
        if (step + 1 == STEPS) fail_and_repeat(&cluster, step + 1);
        else CHECK(run_step(&cluster, step + 1, 1) == 0);
        for (uint32_t b = 0; b < BOARDS; b++) {
            uint8_t rows[BUFFER];
            CHECK(transport->memory_read(cluster.handle[b], TEST_DDR, RESULTS_AT, rows, BUFFER,
                                         NULL) == LORA_OK);
            if (b == 0) memcpy(found[step], rows, BUFFER);
            CHECK(memcmp(found[step], rows, BUFFER) == 0);
        }
    }
    atomic_store(&beside.ends, true);
    CHECK(pthread_join(writer, NULL) == 0);
    check_beside(&beside);
    test_close(&cluster);
}

int main(void) {
    static uint8_t alone[STEPS][BUFFER], together[STEPS][BUFFER];
    uint64_t bytes = (uint64_t)LAYERS * LORA_BLOCK_K * LORA_BLOCK_N * 2;
    uint16_t *weights = malloc(BOARDS * bytes);
    uint16_t first[BUFFER / 2];
    CHECK(weights && COLUMNS == LORA_BLOCK_K);
    for (uint64_t i = 0; i < BOARDS * bytes / 2; i++) weights[i] = random_half();
    for (uint32_t i = 0; i < BUFFER / 2; i++) first[i] = random_half();
    run(1, weights, bytes, (const uint8_t *)first, alone);
    CHECK(memcmp(alone[0], first, BUFFER) && memcmp(alone[0], alone[1], BUFFER));
    for (uint32_t threads = 2; threads <= 4; threads++) {
        run(threads, weights, bytes, (const uint8_t *)first, together);
        CHECK(memcmp(alone, together, sizeof alone) == 0);
    }
    free(weights);
    puts("emu_steps: ok");
    return 0;
}
