/* The DMA unit against the KV layout as abi.h spells it: stores, commits over tiles, page copies,
 * packed rows, and ranges that are not there. */
#include "emu_board.h"

#define LAYERS 3
#define HEADS 2
#define HEAD_DIM 16
#define PAGES 7
#define BANKS 3
#define FIRST_BANK 4
#define KV_LINE 128
#define SPILL_PAGE 5 /* this page and the next one lie in DDR */
#define SPILL_LINE 2048
#define STRIDE 256
#define OPS_OFFSET 0x2000
#define PATH_OFFSET 0x3000
#define TABLE_LINE 256

struct fixture {
    struct test_cluster cluster;
    struct emu_board *board;
    struct lora_list list;
    struct lora_step_state state;
};

static uint16_t kv_type; /* of the fixtures that follow */

static struct fixture open_fixture(void) {
    struct fixture f = {.cluster = test_open(1, TEST_PATH, 0)};
    f.board = test_inside(&f.cluster, 0);
    for (uint32_t b = 0; b < BANKS; b++)
        test_reserve(&f.cluster, 0, FIRST_BANK + b, KV_LINE * 64, 1u << 20);
    test_reserve(&f.cluster, 0, TEST_DDR, 0, 1u << 20);
    f.list = (struct lora_list){.max_scratch = 40,
                                .max_sequences = 3,
                                .max_tiles = 40,
                                .page_count = PAGES,
                                .control_bank = TEST_DDR,
                                .table_bank = TEST_DDR,
                                .table_line = TABLE_LINE,
                                .kv_bank_first = FIRST_BANK,
                                .kv_bank_count = BANKS,
                                .kv_layers = LAYERS,
                                .kv_heads = HEADS,
                                .head_dim = HEAD_DIM,
                                .kv_line = KV_LINE,
                                .kv_spill_page = SPILL_PAGE,
                                .kv_spill_line = SPILL_LINE,
                                .kv_spill_bank_first = TEST_DDR,
                                .kv_spill_bank_count = 1,
                                .kv_type = kv_type};
    f.state = (struct lora_step_state){
        .size = sizeof f.state, .kv_ops_offset = OPS_OFFSET, .path_offset = PATH_OFFSET};
    return f;
}

static uint8_t *block(struct fixture *f, uint32_t page, uint32_t layer, uint32_t head, uint32_t v) {
    static const uint32_t lines[] = {HEAD_DIM, HEAD_DIM / 2, HEAD_DIM / 2 + 1};
    uint32_t page_stride = (LAYERS * HEADS * 2) | 1;
    uint32_t spilled = page >= SPILL_PAGE, banks = spilled ? 1 : BANKS;
    uint32_t j = (page - spilled * SPILL_PAGE) * page_stride + (layer * HEADS + head) * 2 + v;
    uint64_t line = (spilled ? SPILL_LINE : KV_LINE) + (uint64_t)(j / banks) * lines[kv_type];
    return f->board->memory.base[(spilled ? TEST_DDR : FIRST_BANK) + j % banks] + line * 64;
}

static uint32_t halves(void) { return kv_type == LORA_KV_FP16; }

/* A value, or where d is HEAD_DIM the position's scale. */
static uint16_t cell(struct fixture *f, uint32_t page, uint32_t layer, uint32_t head, uint32_t v,
                     uint32_t lane, uint32_t d) {
    uint8_t *bytes = block(f, page, layer, head, v);
    uint32_t at = v ? lane * HEAD_DIM + d : d * 32 + lane;
    uint16_t half;
    if (d == HEAD_DIM) memcpy(&half, bytes + 32 * HEAD_DIM + lane * 2, 2);
    else if (halves()) memcpy(&half, bytes + at * 2, 2);
    else half = bytes[at];
    return half;
}

static uint16_t value_of(uint32_t tag, uint32_t layer, uint32_t head, uint32_t v, uint32_t d) {
    uint32_t value = tag * 251 + layer * 1009 + head * 211 + v * 97 + d * 7 + 1;
    return (uint16_t)(halves() || d == HEAD_DIM ? value : value & 0xff);
}

static uint32_t unit(struct fixture *f, const void *command) {
    struct hal_unit_result result;
    emu_unit_start(f->board, LORA_UNIT_DMA, command, &f->list, &f->state);
    uint32_t state = emu_unit_poll(f->board, LORA_UNIT_DMA, &result);
    CHECK((state == LORA_UNIT_DONE) == (result.status == LORA_OK));
    return result.status;
}

/* One value of row i where KV_STORE reads it, or its head's scale. */
static void place(struct fixture *f, uint32_t i, uint32_t v, uint32_t h, uint32_t d,
                  uint16_t value) {
    uint8_t *onchip = f->board->memory.base[LORA_BANK_ONCHIP];
    uint8_t *row = onchip + 512 + i * STRIDE + v * 128;
    if (d == HEAD_DIM) memcpy(onchip + 16384 + v * 256 + i * 6 + h * 2, &value, 2);
    else if (halves()) memcpy(row + (h * HEAD_DIM + d) * 2, &value, 2);
    else row[h * HEAD_DIM + d] = (uint8_t)value;
}

/* Rows with the given slots, K and V of every layer; the tag of a row is tag + its index. */
static void store_rows(struct fixture *f, const int32_t *slots, uint32_t rows, uint32_t tag) {
    f->state.row_count = rows;
    for (uint32_t layer = 0; layer < LAYERS; layer++) {
        for (uint32_t i = 0; i < rows; i++) {
            f->state.rows[i].slot = slots[i];
            for (uint32_t v = 0; v < 2; v++)
                for (uint32_t h = 0; h < HEADS; h++)
                    for (uint32_t d = 0; d <= HEAD_DIM; d++)
                        place(f, i, v, h, d, value_of(tag + i, layer, h, v, d));
        }
        struct lora_kv_store store = {.opcode = LORA_CMD_KV_STORE,
                                      .unit = LORA_UNIT_DMA,
                                      .head_dim = HEAD_DIM,
                                      .kv_layer = (uint16_t)layer,
                                      .kv_heads = HEADS,
                                      .k_offset = 512,
                                      .v_offset = 512 + 128,
                                      .stride = STRIDE,
                                      .k_scales = 16384,
                                      .v_scales = 16384 + 256,
                                      .scale_stride = 6};
        CHECK(unit(f, &store) == LORA_OK);
    }
}

static bool holds(struct fixture *f, uint32_t page, uint32_t lane, uint32_t tag) {
    for (uint32_t layer = 0; layer < LAYERS; layer++)
        for (uint32_t h = 0; h < HEADS; h++)
            for (uint32_t v = 0; v < 2; v++)
                for (uint32_t d = 0; d < HEAD_DIM + (kv_type == LORA_KV_INT8_HEADS); d++)
                    if (cell(f, page, layer, h, v, lane, d) != value_of(tag, layer, h, v, d))
                        return false;
    return true;
}

static void set_table(struct fixture *f, uint32_t sequence, uint32_t tile, uint16_t page) {
    uint64_t row_bytes = 128; /* 40 tiles of 2 bytes, in whole lines */
    uint64_t offset = TABLE_LINE * 64 + sequence * row_bytes + tile * 2;
    CHECK(transport->memory_write(f->cluster.handle[0], TEST_DDR, offset, &page, 2, NULL) == 0);
}

static uint32_t commit_body; /* layers of a KV_COMMIT */

static uint32_t commit(struct fixture *f, const struct lora_kv_op *ops, uint32_t count,
                       const uint16_t *path, uint32_t path_count) {
    void *handle = f->cluster.handle[0];
    struct lora_command command = {
        .opcode = LORA_CMD_KV_COMMIT, .unit = LORA_UNIT_DMA, .body = {commit_body}};
    CHECK(transport->memory_write(handle, TEST_DDR, OPS_OFFSET, ops, count * sizeof *ops, NULL) ==
          0);
    if (path_count)
        CHECK(transport->memory_write(handle, TEST_DDR, PATH_OFFSET, path, path_count * 2, NULL) ==
              0);
    f->state.kv_op_count = count;
    f->state.path_count = path_count;
    return unit(f, &command);
}

static void check_moves(void) {
    struct fixture f = open_fixture();
    static const int32_t slots[] = {0, 31, 32, 39, 7};
    static const uint16_t path[] = {9, 31, 39, 0, 7};
    store_rows(&f, slots, 5, 100);
    CHECK(holds(&f, 0, 0, 100) && holds(&f, 0, 31, 101) && holds(&f, 1, 0, 102));
    CHECK(holds(&f, 1, 7, 103) && holds(&f, 0, 7, 104) && !holds(&f, 0, 1, 100));
    /* Sequence 2 from length 30: over the end of tile 0 (page 5) into tile 1 (page 3). */
    set_table(&f, 2, 0, 5);
    set_table(&f, 2, 1, 3);
    struct lora_kv_op op = {.kind = LORA_KV_COMMIT, .sequence = 2, .a = 30, .b = 1, .c = 4};
    for (int again = 0; again < 2; again++) { /* commits are idempotent */
        CHECK(commit(&f, &op, 1, path, 5) == LORA_OK);
        CHECK(holds(&f, 5, 30, 101) && holds(&f, 5, 31, 103));
        CHECK(holds(&f, 3, 0, 100) && holds(&f, 3, 1, 104) && !holds(&f, 3, 2, 104));
    }
    /* A fork's copy, then a commit into it, in order. */
    struct lora_kv_op fork[] = {{.kind = LORA_KV_COPY, .a = 3, .b = 6, .c = 2},
                                {.kind = LORA_KV_LENGTH, .sequence = 1, .a = 34},
                                {.kind = LORA_KV_COMMIT, .sequence = 1, .a = 33, .b = 1, .c = 1}};
    set_table(&f, 1, 1, 6);
    CHECK(commit(&f, fork, 3, path, 5) == LORA_OK);
    CHECK(holds(&f, 6, 0, 100) && holds(&f, 6, 1, 101) && holds(&f, 3, 1, 104));
    test_close(&f.cluster);
}

/* A commit of some layers moves theirs alone; one beyond the last layer is refused. */
static void check_layers(void) {
    struct fixture f = open_fixture();
    static const int32_t slots[] = {9};
    static const uint16_t path[] = {9};
    struct lora_kv_op op = {.kind = LORA_KV_COMMIT, .sequence = 2, .a = 30, .c = 1};
    store_rows(&f, slots, 1, 100);
    set_table(&f, 2, 0, 5);
    for (uint32_t layer = 0; layer < LAYERS; layer++) {
        commit_body = layer | 1u << 16;
        CHECK(!holds(&f, 5, 30, 100));
        CHECK(commit(&f, &op, 1, path, 1) == LORA_OK);
    }
    CHECK(holds(&f, 5, 30, 100));
    op.a = 31;
    commit_body = LAYERS - 1; /* the last one, as the rest */
    CHECK(commit(&f, &op, 1, path, 1) == LORA_OK && !holds(&f, 5, 31, 100));
    commit_body = LAYERS | 1u << 16;
    CHECK(commit(&f, &op, 1, path, 1) == LORA_ERR_SIZE);
    commit_body = 0;
    test_close(&f.cluster);
}

/* Rows of a whole page: so many that two threads share their heads. */
static void check_shared_store(void) {
    struct fixture f = open_fixture();
    int32_t slots[LORA_TILE_POSITIONS];
    f.board->cluster->pool = lora_pool_create(2); /* closed with the cluster */
    CHECK(f.board->cluster->pool);
    for (uint32_t i = 0; i < LORA_TILE_POSITIONS; i++) slots[i] = (int32_t)i;
    for (uint32_t tag = 1; tag < 100; tag++) {
        store_rows(&f, slots, LORA_TILE_POSITIONS, tag);
        for (uint32_t i = 0; i < LORA_TILE_POSITIONS; i++) CHECK(holds(&f, 0, i, tag + i));
    }
    test_close(&f.cluster);
}

static void check_hostile_moves(void) {
    struct fixture f = open_fixture();
    static const uint16_t path[] = {9, 40};
    static const struct lora_kv_op wrong[] = {
        {.kind = LORA_KV_COMMIT, .sequence = 2, .a = 0, .b = 1, .c = 1}, /* slot 40 of 40 */
        {.kind = LORA_KV_COMMIT, .sequence = 2, .a = 0, .b = 1, .c = 2}, /* beyond the path */
        {.kind = LORA_KV_COMMIT, .sequence = 2, .a = 0, .b = ~0u, .c = 2},
        {.kind = LORA_KV_COMMIT, .sequence = 3, .a = 0, .b = 0, .c = 1},
        {.kind = LORA_KV_COMMIT, .sequence = 2, .a = 40 * 32, .b = 0, .c = 1},
        {.kind = LORA_KV_COMMIT, .sequence = 2, .a = 32, .b = 0, .c = 1}, /* page 7 of 7 */
        {.kind = LORA_KV_COPY, .a = 7, .b = 0, .c = 1},
        {.kind = LORA_KV_COPY, .a = 0, .b = 7, .c = 1},
        {.kind = LORA_KV_COPY, .a = 0, .b = 1, .c = 33},
    };
    set_table(&f, 2, 0, 5);
    set_table(&f, 2, 1, 7);
    for (uint32_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        CHECK(commit(&f, &wrong[i], 1, path, 2) == LORA_ERR_KV);
    f.list.kv_line = 1u << 20; /* blocks outside the arenas */
    CHECK(commit(&f, &(struct lora_kv_op){.kind = LORA_KV_COPY, .c = 1}, 1, path, 2) ==
          LORA_ERR_ADDRESS);
    test_close(&f.cluster);
}

static void check_hostile_types(void) {
    static const int32_t slots[] = {3};
    struct lora_kv_store store = {.opcode = LORA_CMD_KV_STORE,
                                  .unit = LORA_UNIT_DMA,
                                  .head_dim = HEAD_DIM,
                                  .kv_heads = HEADS,
                                  .stride = STRIDE};
    kv_type = LORA_KV_INT8_HEADS;
    struct fixture f = open_fixture();
    store_rows(&f, slots, 1, 5);
    store.v_scales = TEST_ONCHIP - 2;
    CHECK(unit(&f, &store) == LORA_ERR_ADDRESS);
    f.list.kv_type = LORA_KV_INT8_HEADS + 1;
    CHECK(unit(&f, &store) == LORA_ERR_SIZE);
    f.list.kv_type = LORA_KV_INT8;
    store.head_dim = f.list.head_dim = HEAD_DIM - 1;
    CHECK(unit(&f, &store) == LORA_ERR_SIZE);
    test_close(&f.cluster);
}

static void check_rows(void) {
    struct fixture f = open_fixture();
    uint8_t *onchip = f.board->memory.base[LORA_BANK_ONCHIP];
    for (uint32_t i = 0; i < 64 * 10; i++) onchip[i] = (uint8_t)(i / 64);
    f.state.row_count = 10;
    f.state.selected_count = 3;
    f.state.selected[0] = 1;
    f.state.selected[1] = 4;
    f.state.selected[2] = 9;
    struct lora_move_rows move = {.opcode = LORA_CMD_MOVE_ROWS,
                                  .unit = LORA_UNIT_DMA,
                                  .flags = LORA_FLAG_PACK,
                                  .x_bank = LORA_BANK_ONCHIP,
                                  .y_bank = TEST_DDR,
                                  .x_stride = 64,
                                  .y_offset = 0x4000,
                                  .y_stride = 128,
                                  .bytes = 60};
    const uint8_t *target = f.board->memory.base[TEST_DDR] + 0x4000;
    CHECK(unit(&f, &move) == LORA_OK);
    CHECK(target[0] == 1 && target[128] == 4 && target[256 + 59] == 9);
    CHECK(target[60] == 0 && target[384] == 0);
    move.flags = LORA_FLAG_SELECTED;
    CHECK(unit(&f, &move) == LORA_OK);
    CHECK(target[0] == 0 && target[128] == 1 && target[256] == 2 && target[384] == 0);
    move.flags = 0;
    CHECK(unit(&f, &move) == LORA_OK && target[9 * 128] == 9);
    f.state.selected[2] = 10;
    move.flags = LORA_FLAG_PACK;
    CHECK(unit(&f, &move) == LORA_ERR_ROW);
    f.state.selected[2] = 9;
    move.x_offset = TEST_ONCHIP - 64;
    CHECK(unit(&f, &move) == LORA_ERR_ADDRESS);
    test_close(&f.cluster);
}

int main(void) {
    for (kv_type = LORA_KV_FP16; kv_type <= LORA_KV_INT8_HEADS; kv_type++) {
        check_moves();
        check_layers();
        check_shared_store();
        check_hostile_moves();
    }
    check_hostile_types();
    check_rows();
    puts("emu_dma: ok");
    return 0;
}
