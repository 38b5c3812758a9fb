/* The host library on emulated boards, under the sanitizers: opening all or none, programs, arenas
 * and ranges, links, runs, cancelling, hangs and reset; hostile arguments everywhere. */
#include "emu_board.h"

#include "internal.h"
#include "lora/host.h"

#define CONTROL_BANK TEST_DDR
#define MIB (1u << 20)

struct image {
    struct lora_image_header header;
    uint8_t code[8];
};

struct bench {
    uint32_t id;
    struct lora_cluster *cluster;
    struct image image;
    struct lora_program program;
};

static uint32_t create(uint32_t boards) {
    struct lora_board_info infos[LORA_MAX_BOARDS];
    struct lora_emu_cable cables[LORA_MAX_BOARDS];
    uint32_t count = boards == 1 ? 0 : boards == 2 ? 1 : boards, id;
    struct lora_failure failure;
    for (uint32_t b = 0; b < boards; b++) infos[b] = test_info(b);
    for (uint32_t b = 0; b < count; b++)
        cables[b] = (struct lora_emu_cable){b, 1, (b + 1) % boards, 0};
    const struct lora_emu_config config = {.size = sizeof config,
                                           .boards = boards,
                                           .board_info = infos,
                                           .cable_count = count,
                                           .cables = cables,
                                           .clock_hz = TEST_CLOCK_HZ,
                                           .kernels = &test_kernels,
                                           .link_configuration = TEST_CONFIGURATION};
    CHECK(lora_emu_create(&config, &id, &failure) == LORA_OK);
    return id;
}

static int open_cluster(uint32_t id, uint32_t boards, const char *last,
                        struct lora_cluster **cluster, struct lora_failure *failure) {
    char uris[LORA_MAX_BOARDS][32];
    const char *names[LORA_MAX_BOARDS];
    for (uint32_t b = 0; b < boards; b++) {
        snprintf(uris[b], sizeof uris[b], "emu:%u/%u", id, b);
        names[b] = last && b == boards - 1 ? last : uris[b];
    }
    return lora_cluster_open(names, boards, cluster, failure);
}

static void fill_program(struct bench *bench) {
    memset(&bench->image, 0, sizeof bench->image);
    bench->image.header = (struct lora_image_header){.magic = LORA_IMAGE_MAGIC,
                                                     .size = sizeof bench->image.header,
                                                     .abi = LORA_ABI_NUMBER,
                                                     .board = LORA_BOARD_U280,
                                                     .code_bytes = 8};
    bench->image.header.code_crc = lora_crc32(0, bench->image.code, 8);
    bench->program = (struct lora_program){.size = sizeof bench->program,
                                           .board_kind = LORA_BOARD_U280,
                                           .abi = LORA_ABI_NUMBER,
                                           .onchip_bytes = TEST_ONCHIP,
                                           .image = (const uint8_t *)&bench->image,
                                           .image_bytes = sizeof bench->image};
}

static void program_all(struct bench *bench, uint32_t boards) {
    struct lora_failure failure;
    for (uint32_t b = 0; b < boards; b++) {
        CHECK(lora_cluster_program(bench->cluster, b, &bench->program, CONTROL_BANK, &failure) ==
              LORA_OK);
        CHECK(lora_cluster_reserve(bench->cluster, b, CONTROL_BANK, 0, MIB, &failure) == LORA_OK);
    }
}

static void begin(struct bench *bench, uint32_t boards) {
    bench->id = create(boards);
    CHECK(open_cluster(bench->id, boards, NULL, &bench->cluster, NULL) == LORA_OK);
    fill_program(bench);
    program_all(bench, boards);
}

static void end(struct bench *bench) {
    lora_cluster_close(bench->cluster);
    lora_emu_destroy(bench->id);
}

static void check_message(const struct lora_failure *failure, int code) {
    CHECK(failure->code == (uint32_t)code && failure->size == sizeof *failure);
    CHECK(failure->message[0] && !strchr(failure->message, '\n'));
}

static void check_open(void) {
    struct lora_cluster *cluster;
    struct lora_failure failure;
    uint32_t id = create(3);
    static const struct {
        const char *uri;
        int code;
    } wrong[] = {{"emu:99999/0", LORA_ERR_URI},
                 {"qdma:0", LORA_ERR_URI},
                 {"emu", LORA_ERR_URI},
                 {"", LORA_ERR_URI},
                 {"emux:0/0", LORA_ERR_URI}};
    for (uint32_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        cluster = (void *)1;
        CHECK(open_cluster(id, 3, wrong[i].uri, &cluster, &failure) == wrong[i].code);
        CHECK(cluster == NULL); /* and the sanitizer sees that nothing stays behind */
        check_message(&failure, wrong[i].code);
    }
    char again[32];
    snprintf(again, sizeof again, "emu:%u/0", id);
    CHECK(open_cluster(id, 2, again, &cluster, &failure) == LORA_ERR_URI);
    CHECK(strstr(failure.message, "one board"));
    CHECK(lora_cluster_open(NULL, 1, &cluster, &failure) == LORA_ERR_ARGUMENT);
    const char *none[] = {NULL};
    CHECK(lora_cluster_open(none, 1, &cluster, &failure) == LORA_ERR_URI);
    CHECK(lora_cluster_open(none, 0, &cluster, NULL) == LORA_ERR_ARGUMENT);
    CHECK(lora_cluster_open(none, LORA_MAX_BOARDS + 1, &cluster, NULL) == LORA_ERR_ARGUMENT);
    CHECK(lora_cluster_open(none, 1, NULL, NULL) == LORA_ERR_ARGUMENT);
    lora_cluster_close(NULL);
    lora_emu_destroy(id);
}

static void check_program(void) {
    struct bench bench = {.id = create(1)};
    struct lora_failure failure;
    uint64_t word = 0;
    CHECK(open_cluster(bench.id, 1, NULL, &bench.cluster, NULL) == LORA_OK);
    struct lora_cluster *cluster = bench.cluster;
    CHECK(lora_cluster_reserve(cluster, 0, 0, 0, 64, &failure) == LORA_ERR_ARGUMENT);
    CHECK(strstr(failure.message, "no overlay"));
    CHECK(lora_cluster_read(cluster, 0, 0, 0, &word, 8, NULL) == LORA_ERR_ARGUMENT);
    for (uint32_t i = 0; i < 10; i++) {
        int want = LORA_ERR_OVERLAY;
        uint32_t bank = CONTROL_BANK;
        fill_program(&bench);
        if (i == 0) bench.image.header.magic++;
        if (i == 1) bench.image.header.abi++;
        if (i == 2) bench.image.header.board = LORA_BOARD_V80;
        if (i == 3) bench.image.header.code_bytes = ~0u;
        if (i == 4) bench.image.code[3] ^= 1;
        if (i == 5) bench.program.image_bytes = 31;
        if (i == 6) bench.program.board_kind = LORA_BOARD_V80;
        if (i == 7) bench.program.abi = LORA_ABI_NUMBER + 1;
        if (i == 8) bank = TEST_BANKS;
        if (i == 9) bench.program.size--, want = LORA_ERR_ARGUMENT;
        CHECK(lora_cluster_program(cluster, 0, &bench.program, bank, &failure) == want);
        check_message(&failure, want);
        CHECK(i == 9 || failure.found != failure.expected);
    }
    CHECK(lora_cluster_program(cluster, 0, NULL, 0, NULL) == LORA_ERR_ARGUMENT);
    fill_program(&bench);
    CHECK(lora_cluster_program(cluster, 1, &bench.program, 0, NULL) == LORA_ERR_ARGUMENT);
    program_all(&bench, 1);
    CHECK(lora_cluster_program(cluster, 0, &bench.program, CONTROL_BANK, &failure) ==
          LORA_ERR_ARGUMENT);
    end(&bench);
}

static void check_memory(void) {
    struct bench bench;
    struct lora_failure failure;
    uint8_t data[256], back[256];
    uint32_t crc;
    begin(&bench, 1);
    struct lora_cluster *cluster = bench.cluster;
    for (uint32_t i = 0; i < sizeof data; i++) data[i] = (uint8_t)(i * 7);
    CHECK(lora_cluster_reserve(cluster, 0, 2, 4096, 4096, NULL) == LORA_OK);
    CHECK(lora_cluster_write(cluster, 0, 2, 8192 - 256, data, 256, NULL) == LORA_OK);
    CHECK(lora_cluster_read(cluster, 0, 2, 8192 - 256, back, 256, NULL) == LORA_OK);
    CHECK(!memcmp(data, back, 256));
    static const uint64_t outside[][2] = {{4095, 1},  {8192 - 255, 256}, {8193, 0},
                                          {~0ull, 2}, {4096, ~0ull},     {0, 64}};
    for (uint32_t i = 0; i < sizeof outside / sizeof outside[0]; i++) {
        CHECK(lora_cluster_read(cluster, 0, 2, outside[i][0], back, outside[i][1], &failure) ==
              LORA_ERR_RANGE);
        check_message(&failure, LORA_ERR_RANGE);
        CHECK(failure.bank == 2 && failure.offset == outside[i][0]);
        CHECK(lora_cluster_write(cluster, 0, 2, outside[i][0], data, outside[i][1], NULL) ==
              LORA_ERR_RANGE);
        CHECK(lora_cluster_checksum(cluster, 0, 2, outside[i][0], outside[i][1], &crc, NULL) ==
              LORA_ERR_RANGE);
    }
    CHECK(lora_cluster_read(cluster, 0, 99, 0, back, 1, NULL) == LORA_ERR_RANGE);
    CHECK(lora_cluster_read(cluster, 0, 2, 4096, NULL, 8, NULL) == LORA_ERR_ARGUMENT);
    CHECK(lora_cluster_write(cluster, 0, 2, 4096, NULL, 8, NULL) == LORA_ERR_ARGUMENT);
    CHECK(lora_cluster_checksum(cluster, 0, 2, 8192 - 256, 256, &crc, NULL) == LORA_OK);
    CHECK(crc == lora_crc32(0, data, 256));
    CHECK(lora_cluster_checksum(cluster, 0, 2, 4096, 64, NULL, NULL) == LORA_ERR_ARGUMENT);
    CHECK(lora_cluster_reserve(cluster, 0, 2, ~0ull - 63, 128, NULL) == LORA_ERR_BANK_FULL);
    CHECK(lora_cluster_register_read(cluster, 0, LORA_BLOCK_CONTROL, LORA_REG_ARENA_COUNT, &crc,
                                     NULL) == LORA_OK);
    CHECK(crc == 2);
    CHECK(lora_cluster_register_read(cluster, 0, 3, 0, &crc, NULL) == LORA_ERR_ARGUMENT);
    CHECK(lora_cluster_register_read(cluster, 0, 0, 2, &crc, NULL) == LORA_ERR_ARGUMENT);
    /* As many arenas as the records hold, each a line, then one more. */
    int status = LORA_OK;
    for (uint32_t i = 0; i < LORA_MAX_ARENAS && !status; i++)
        status = lora_cluster_reserve(cluster, 0, i % 32, 65536 + 64 * i, 64, &failure);
    CHECK(status == LORA_ERR_BANK_FULL);
    end(&bench);
}

static void check_runs(void) {
    struct bench bench;
    struct lora_failure failure;
    struct lora_step block = {.size = sizeof block, .abi = LORA_ABI_NUMBER, .bytes = sizeof block};
    uint32_t crc;
    begin(&bench, 2);
    struct lora_cluster *cluster = bench.cluster;
    const struct lora_cable cable = {0, 1, 1, 0};
    CHECK(lora_cluster_links_up(cluster, &cable, 1, TEST_CONFIGURATION, ~0u, &failure) == LORA_OK);
    CHECK(lora_cluster_links_up(cluster, &cable, 1, 0x3 | 32 << 2, 0x7fe, &failure) ==
          LORA_ERR_LINK_CONFIG);
    CHECK(failure.peer_board >= 0 && failure.peer_port >= 0);
    CHECK(lora_cluster_links_up(cluster, NULL, 1, 0, 0, NULL) == LORA_ERR_ARGUMENT);
    CHECK(lora_cluster_links_up(cluster, NULL, 0, 0, 0, NULL) == LORA_OK);
    CHECK(lora_cluster_step(cluster, &block, sizeof block, 0x2000, NULL, &failure) ==
          LORA_ERR_LIST);
    check_message(&failure, LORA_ERR_LIST);
    CHECK(lora_cluster_step(cluster, &block, sizeof block, 0x800, NULL, NULL) == LORA_ERR_ARGUMENT);
    CHECK(lora_cluster_step(cluster, &block, sizeof block, MIB - 32, NULL, NULL) == LORA_ERR_RANGE);
    CHECK(lora_cluster_step(cluster, &block, 8, 0x2000, NULL, NULL) == LORA_ERR_ARGUMENT);
    CHECK(lora_cluster_step(cluster, NULL, 64, 0x2000, NULL, NULL) == LORA_ERR_ARGUMENT);
    CHECK(lora_cluster_register_list(cluster, 1, 0, 0x3000, &failure) != LORA_OK);
    CHECK(failure.board == 1 && lora_cluster_report(cluster)[0]);
    CHECK(lora_cluster_register_list(cluster, 1, LORA_MAX_LISTS, 0x3000, NULL) ==
          LORA_ERR_ARGUMENT);
    CHECK(lora_cluster_register_list(cluster, 1, 0, MIB - 64, NULL) == LORA_ERR_RANGE);
    lora_cluster_cancel(cluster);
    CHECK(lora_emu_fault(bench.id, 0, LORA_FAULT_FIRMWARE_DEAD, 0, 0, 0) == LORA_OK);
    CHECK(lora_cluster_checksum(cluster, 0, CONTROL_BANK, 0, 64, &crc, &failure) ==
          LORA_ERR_CANCELLED);
    CHECK(lora_emu_fault(bench.id, 0, LORA_FAULT_NONE, 0, 0, 0) == LORA_OK);
    /* The cancelled run is waited for, not overtaken. */
    CHECK(lora_cluster_checksum(cluster, 0, CONTROL_BANK, 0, 64, &crc, &failure) == LORA_OK);
    end(&bench);
}

/* A board that has left the bus fails every call at once; a reset ends faults that last until one.
 */
static void check_loss(struct bench *bench) {
    struct lora_failure failure;
    uint32_t crc;
    CHECK(lora_emu_fault(bench->id, 0, LORA_FAULT_DONE_LOST | LORA_FAULT_UNTIL_RESET, 0, 0, 0) ==
          LORA_OK);
    CHECK(lora_cluster_checksum(bench->cluster, 0, CONTROL_BANK, 0, 64, &crc, NULL) ==
          LORA_ERR_TIMEOUT);
    CHECK(lora_cluster_reset(bench->cluster, NULL) == LORA_OK);
    for (uint32_t b = 0; b < 2; b++)
        CHECK(lora_cluster_program(bench->cluster, b, &bench->program, CONTROL_BANK, NULL) ==
              LORA_OK);
    CHECK(lora_cluster_checksum(bench->cluster, 0, CONTROL_BANK, 0, 64, &crc, NULL) == LORA_OK);
    CHECK(lora_emu_fault(bench->id, 1, LORA_FAULT_BOARD_LOST, 0, 0, 0) == LORA_OK);
    CHECK(lora_cluster_checksum(bench->cluster, 1, CONTROL_BANK, 0, 64, &crc, &failure) ==
          LORA_ERR_TRANSPORT);
    CHECK(failure.board == 1 && strstr(failure.message, "board 1"));
    CHECK(lora_cluster_checksum(bench->cluster, 0, CONTROL_BANK, 0, 64, &crc, NULL) == LORA_OK);
    CHECK(lora_cluster_reset(bench->cluster, &failure) == LORA_ERR_TRANSPORT && failure.board == 1);
}

static struct lora_transport emulated;

static int read_of_stopped(void *handle, uint32_t block, uint32_t offset, uint32_t *value,
                           struct lora_failure *failure) {
    int status = emulated.register_read(handle, block, offset, value, failure);
    if (block == LORA_BLOCK_CONTROL && offset == LORA_REG_FIRMWARE_STATE) *value = LORA_FW_STOPPED;
    if (block == LORA_BLOCK_CONTROL && offset == LORA_REG_STOP_CAUSE) *value = 5;
    if (block == LORA_BLOCK_CONTROL && offset == LORA_REG_STOP_PC) *value = 0x1234;
    return status;
}

/* As a card's registers say it; emulated boards have no core that could stop. */
static void check_report_of_stopped_core(void) {
    struct bench bench;
    begin(&bench, 2);
    const struct lora_transport *own = bench.cluster->boards[1].transport;
    emulated = *own;
    struct lora_transport stopped = emulated;
    stopped.register_read = read_of_stopped;
    bench.cluster->boards[1].transport = &stopped;
    lora_report_capture(bench.cluster, "board 1 hangs");
    const char *second = strstr(lora_cluster_report(bench.cluster), "board 1 emu");
    const char *line = "lora_ctrl: its core stands at 0x1234, cause 5 (load from where nothing "
                       "answers)";
    CHECK(second && strstr(second, "firmware stopped") && strstr(second, line));
    CHECK(strstr(lora_cluster_report(bench.cluster), line) > second);
    bench.cluster->boards[1].transport = own;
    end(&bench);
}

static void check_hang(void) {
    struct bench bench;
    struct lora_failure failure;
    struct lora_timeouts timeouts;
    uint32_t crc;
    uint8_t kept[64] = {7, 8, 9}, back[64] = {0};
    begin(&bench, 2);
    lora_timeouts_default(&timeouts);
    timeouts.checksum_us = 1000;
    CHECK(lora_cluster_set_timeouts(bench.cluster, &timeouts) == LORA_OK);
    timeouts.poll_us = 0;
    CHECK(lora_cluster_set_timeouts(bench.cluster, &timeouts) == LORA_ERR_ARGUMENT);
    CHECK(lora_cluster_set_timeouts(bench.cluster, NULL) == LORA_ERR_ARGUMENT);
    CHECK(lora_cluster_write(bench.cluster, 1, CONTROL_BANK, MIB - 64, kept, 64, NULL) == LORA_OK);
    CHECK(lora_emu_fault(bench.id, 1, LORA_FAULT_DONE_LOST, 0, 0, 0) == LORA_OK);
    CHECK(lora_cluster_checksum(bench.cluster, 1, CONTROL_BANK, 0, 64, &crc, &failure) ==
          LORA_ERR_TIMEOUT);
    check_message(&failure, LORA_ERR_TIMEOUT);
    CHECK(strstr(lora_cluster_report(bench.cluster), "unit ROUTER"));
    CHECK(lora_cluster_checksum(bench.cluster, 0, CONTROL_BANK, 0, 64, &crc, &failure) ==
          LORA_ERR_TIMEOUT);
    CHECK(failure.board == 1);
    CHECK(lora_emu_fault(bench.id, 1, LORA_FAULT_NONE, 0, 0, 0) == LORA_OK);
    CHECK(lora_cluster_reset(bench.cluster, &failure) == LORA_OK);
    CHECK(lora_cluster_checksum(bench.cluster, 0, CONTROL_BANK, 0, 64, &crc, NULL) ==
          LORA_ERR_ARGUMENT);
    /* Loading the overlay restores the arenas with their bytes; there is one board memory. */
    for (uint32_t b = 0; b < 2; b++)
        CHECK(lora_cluster_program(bench.cluster, b, &bench.program, CONTROL_BANK, NULL) ==
              LORA_OK);
    CHECK(lora_cluster_checksum(bench.cluster, 1, CONTROL_BANK, 0, 64, &crc, NULL) == LORA_OK);
    CHECK(lora_cluster_read(bench.cluster, 1, CONTROL_BANK, MIB - 64, back, 64, NULL) == LORA_OK);
    CHECK(!memcmp(back, kept, sizeof kept));
    CHECK(lora_cluster_reserve(bench.cluster, 1, CONTROL_BANK, 0, MIB, NULL) == LORA_ERR_ARGUMENT);
    check_loss(&bench);
    end(&bench);
}

int main(void) {
    check_open();
    check_program();
    check_memory();
    check_runs();
    check_hang();
    check_report_of_stopped_core();
    return 0;
}
