/* Registration: what is wrong with a list is found before anything of it runs. */
#include "fw_spoilt.h"

static void test_good(void) {
    struct test_list list = list_new();
    board_open();
    CHECK_EQUAL(operate(LORA_OP_IDENTIFY), LORA_OK);
    CHECK_EQUAL(completion().abi, LORA_ABI_NUMBER);
    CHECK_EQUAL(list_register(&list), LORA_OK);
    CHECK_EQUAL(error_record().code, LORA_OK);
    CHECK_EQUAL(board.log_count, 0); /* a dry run starts no unit */
    board_close();
}

static void test_spoilt(void) {
    for (uint32_t i = 0; i < sizeof spoilt / sizeof spoilt[0]; i++) {
        struct test_list list = list_new();
        uint32_t code;
        board_open();
        spoilt[i].spoil(&list);
        code = list_register(&list);
        if (code != spoilt[i].code || error_record().index != spoilt[i].index) {
            fprintf(stderr, "%s: status %u at %d, expected %u at %d\n", spoilt[i].what, code,
                    (int)error_record().index, spoilt[i].code, (int)spoilt[i].index);
            exit(1);
        }
        board_close();
    }
}

/* Sums of whole segments, the last one short, or of one among empty ones: of 40
 * columns, segment 3 has 32 and segment 7 has 8. */
static void test_sums(void) {
    static const struct {
        uint32_t first, columns, width;
    } good[] = {{0, 32, 256}, {32, 64, 256}, {224, 26, 250}, {0, 40, 40}, {0, 32, 40}, {32, 8, 40}};
    for (uint32_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        struct test_list list = list_new();
        board_open();
        sums_over(list.commands, good[i].first, good[i].columns, LORA_VEC_LN_SUMS);
        list.commands[ROPE_AT].vector.extra = good[i].width;
        CHECK_EQUAL(list_register(&list), LORA_OK);
        board_close();
    }
}

/* A changed bit anywhere in header or commands: the CRC says so, unless the header is refused. */
static void test_seal(void) {
    struct test_list list = list_new();
    board_open();
    for (uint32_t byte = 0; byte < sizeof list.header + COMMANDS * 64; byte += 37) {
        list_store(&list);
        board.banks[CONTROL][LIST_AT + byte] ^= 0x10;
        CHECK(operate(LORA_OP_REGISTER) != LORA_OK);
        if (byte >= sizeof list.header) CHECK_EQUAL(error_record().code, LORA_ERR_CRC);
    }
    board_close();
}

static void test_indices(void) {
    struct test_list list = list_new();
    board_open();
    list_store(&list);
    board.registers[LORA_REG_LIST_ID / 4] = LORA_MAX_LISTS;
    CHECK_EQUAL(operate(LORA_OP_REGISTER), LORA_ERR_LIST);
    board.registers[LORA_REG_LIST_ID / 4] = 0;
    board.registers[LORA_REG_BLOCK_OFFSET / 4] = BANK_BYTES - 64;
    CHECK_EQUAL(operate(LORA_OP_REGISTER), LORA_ERR_ADDRESS);
    CHECK_EQUAL(error_record().offset, BANK_BYTES - 64);
    CHECK_EQUAL(error_record().found, sizeof list.header);
    CHECK_EQUAL(error_record().expected, 64);
    CHECK_EQUAL(operate(77), LORA_ERR_OPERATION);
    board_close();
}

/* Highest line of each bank that any block of a matrix touches, block by block (abi.h). */
static void matrix_lines(const struct lora_matrix *m, uint32_t low[4], uint32_t high[4]) {
    uint32_t blocks = (m->k + 127) / 128 * ((m->n + 31) / 32);
    for (uint32_t b = 0; b < 4; b++) low[b] = 0xffffffff, high[b] = 0;
    for (uint32_t j = 0; j < blocks; j++) {
        uint32_t r = j / m->merge, bank = m->bank_first + (m->first + r) % m->bank_count;
        uint32_t line = m->weight_line +
                        ((m->first + r) / m->bank_count * m->merge + j % m->merge) * 128;
        if (line < low[bank]) low[bank] = line;
        if (line + 128 > high[bank]) high[bank] = line + 128;
    }
}

static uint32_t next_random(void) {
    static uint32_t state = 1;
    state = state * 1664525u + 1013904223u;
    return state >> 8;
}

/* With arenas exactly as large as the blocks need, a matrix is taken; a line less on either end of
 * any bank, and it is not. */
static void test_matrix_extent(void) {
    for (uint32_t round = 0; round < control_rounds(60); round++) {
        struct test_list list = list_new();
        struct lora_matrix *m = &list.commands[MATRIX_AT].matrix;
        uint32_t low[4], high[4], code;
        m->k = 1 + next_random() % 500;
        m->n = 1 + next_random() % 96;
        m->x_stride = m->k * 2;
        m->bank_count = (uint8_t)(1 + next_random() % 4);
        m->bank_first = (uint8_t)(next_random() % (5 - m->bank_count));
        m->merge = (uint8_t)(1 + next_random() % 3);
        m->first = (uint16_t)(next_random() % 7);
        m->weight_line = next_random() % 100;
        m->bias_bank = LORA_NO_BANK;
        m->y_offset = 50000, m->y_stride = 192;
        list.commands[ROPE_AT].vector.a_bank = list.commands[EMBED_AT].vector.a_bank = CONTROL;
        list.commands[HEAD_AT].matrix.n = 0;
        list.header.kv_bank_first = CONTROL;
        list.header.kv_bank_count = 1;
        list.header.page_count = 10;
        list.header.kv_line = 0x14000 / 64;
        matrix_lines(m, low, high);
        for (uint32_t cut = 0; cut < 9; cut++) {
            uint32_t bank = (cut - 1) / 2, first;
            if (cut > 0 && low[bank] > high[bank]) continue;
            board_open();
            for (uint32_t b = 0; b < 4; b++) {
                first = low[b] > high[b] ? 0 : low[b];
                set_arena(b, b, first * 64ull, (uint64_t)(high[b] - first) * 64);
            }
            if (cut > 0)
                set_arena(bank, bank, (low[bank] + (cut % 2)) * 64ull,
                          (uint64_t)(high[bank] - low[bank] - 1) * 64);
            code = list_register(&list);
            CHECK_EQUAL(code, cut == 0 ? LORA_OK : LORA_ERR_ADDRESS);
            if (cut > 0) CHECK_EQUAL(error_record().bank, bank);
            board_close();
        }
    }
}

static uint32_t high_banks(const uint32_t high[2]) { return high[1] > 0 ? 2 : 1; }

/* The same for the KV pool; `spilled`: for the pages of other banks, in bank 4 and 5. */
static void check_pool_extent(uint32_t spilled) {
    for (uint32_t round = 0; round < control_rounds(40); round++) {
        struct test_list list = list_new();
        struct lora_list *h = &list.header;
        uint32_t stride, blocks, high[2] = {0, 0}, first = 2 + 2 * spilled;
        h->page_count = 3 + next_random() % 10;
        h->kv_bank_first = 2;
        h->kv_bank_count = (uint8_t)(1 + next_random() % 2);
        h->kv_line = 100;
        blocks = h->kv_layers * h->kv_heads * 2u;
        stride = blocks | 1;
        for (uint32_t page = 0; page < h->page_count; page++)
            for (uint32_t b = 0; b < blocks; b++) {
                uint32_t j = page * stride + b, bank = j % h->kv_bank_count;
                uint32_t end = h->kv_line + j / h->kv_bank_count * 16u + 16;
                if (end > high[bank]) high[bank] = end;
            }
        if (spilled) {
            h->kv_spill_bank_first = 4;
            h->kv_spill_bank_count = h->kv_bank_count;
            h->kv_spill_line = h->kv_line;
            h->kv_spill_page = 5;
            h->page_count += 5;
            h->kv_line = KV_LINE;
        }
        for (uint32_t cut = 0; cut <= high_banks(high); cut++) {
            board_open();
            for (uint32_t b = 0; b < high_banks(high); b++)
                set_arena(first + spilled + b, first + b, 6400,
                          (high[b] - 100 - (cut == b + 1)) * 64ull);
            CHECK_EQUAL(list_register(&list), cut == 0 ? LORA_OK : LORA_ERR_ADDRESS);
            board_close();
        }
    }
}

static void test_pool_extent(void) {
    check_pool_extent(0);
    check_pool_extent(1);
}

/* The first command waits for the one `distance` behind it, alone. */
static uint32_t register_far(uint32_t distance) {
    static union record far[2 * LORA_WINDOW_CHUNKS * LORA_CHUNK_COMMANDS];
    struct test_list list = list_new();
    uint32_t count = distance + 2, at = 0x20000;
    board_open();
    far[0] = list.commands[ROPE_AT];
    far[0].command.wait_counter = 0;
    for (uint32_t i = 1; i <= distance; i++) {
        far[i] = list.commands[PACK_AT];
        far[i].command.wait_counter = LORA_NO_COUNTER;
        far[i].command.signal_counter = i == distance ? 0 : LORA_NO_COUNTER;
    }
    far[count - 1] = list.commands[END_AT];
    list.header.command_count = count;
    list.header.crc = 0;
    list.header.crc = lora_crc32(lora_crc32(0, &list.header, sizeof list.header), far, count * 64);
    memcpy(board.banks[CONTROL] + at, &list.header, sizeof list.header);
    memcpy(board.banks[CONTROL] + at + sizeof list.header, far, count * 64);
    board.registers[LORA_REG_BLOCK_OFFSET / 4] = at;
    return operate(LORA_OP_REGISTER);
}

/* The card's sequencer would never reach what lies beyond its window. */
static void test_window(void) {
    const uint32_t last = LORA_WINDOW_CHUNKS * LORA_CHUNK_COMMANDS - 1;
    CHECK_EQUAL(register_far(last), LORA_OK);
    board_close();
    CHECK_EQUAL(register_far(last + 1), LORA_ERR_COUNTER);
    CHECK_EQUAL(error_record().index, 0);
    CHECK_EQUAL(error_record().unit, LORA_UNIT_VFU);
    CHECK_EQUAL(error_record().counter, 0);
    CHECK_EQUAL(error_record().found, 0);
    CHECK_EQUAL(error_record().expected, 1);
    board_close();
}

/* Resealed rubbish in one word of a command or header: never an access outside of an arena (the
 * board ends the test), always an end. */
static void test_rubbish(void) {
    for (uint32_t round = 0; round < control_rounds(3000); round++) {
        struct test_list list = list_new();
        uint32_t words = (uint32_t)(sizeof list.header / 4) + COMMANDS * 16;
        uint32_t word = next_random() % words, value = next_random() << (next_random() % 16);
        board_open();
        memcpy((uint8_t *)&list + word * 4, &value, 4);
        (void)list_register(&list);
        board_close();
    }
}

static const struct test_case cases[] = {
    CASE(good),          CASE(spoilt),      CASE(sums),   CASE(seal),    CASE(indices),
    CASE(matrix_extent), CASE(pool_extent), CASE(window), CASE(rubbish),
};

int main(int argc, char **argv) { return RUN_CASES(cases, argc, argv); }
