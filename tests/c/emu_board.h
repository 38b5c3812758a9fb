/* Emulated clusters for the C tests: created, programmed and linked as the host would. */
#ifndef TEST_EMU_BOARD_H
#define TEST_EMU_BOARD_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "board.h"
#include "lora/host.h"

#define TEST_BANKS 34
#define TEST_DDR 32
#define TEST_CLOCK_HZ 250000000
#define TEST_ONCHIP (1u << 20)
#define TEST_CONFIGURATION (LORA_LINK_TKEEP | LORA_LINK_FRAMING | 64u << 2)

enum test_shape { TEST_RING, TEST_PATH };

struct test_cluster {
    uint32_t id, boards;
    void *handle[LORA_MAX_BOARDS];
};

static const struct lora_transport *const transport = &lora_transport_emu;

static inline int test_kernel(void *context, struct lora_unit_call *call) {
    (void)context;
    call->nonfinite_count = 0;
    return LORA_OK;
}

static const struct lora_kernels test_kernels = {.size = sizeof(struct lora_kernels),
                                                 .name = "test",
                                                 .matrix = test_kernel,
                                                 .vector = test_kernel,
                                                 .attention = test_kernel};

static inline struct lora_board_info test_info(uint32_t index) {
    struct lora_board_info info = {.size = sizeof info,
                                   .board_kind = LORA_BOARD_U280,
                                   .serial = 0x1000 + index,
                                   .bank_count = TEST_BANKS,
                                   .name = "u280"};
    for (uint32_t b = 0; b < TEST_BANKS; b++)
        info.bank_bytes[b] = b < TEST_DDR ? 256ull << 20 : 16ull << 30;
    return info;
}

static inline void test_program(struct test_cluster *cluster, uint32_t board) {
    uint8_t image[sizeof(struct lora_image_header) + 8] = {0};
    struct lora_image_header header = {.magic = LORA_IMAGE_MAGIC,
                                       .size = sizeof header,
                                       .abi = LORA_ABI_NUMBER,
                                       .board = LORA_BOARD_U280,
                                       .code_bytes = 8,
                                       .code_crc = lora_crc32(0, image + sizeof header, 8)};
    memcpy(image, &header, sizeof header);
    struct lora_program program = {.size = sizeof program,
                                   .board_kind = LORA_BOARD_U280,
                                   .abi = LORA_ABI_NUMBER,
                                   .onchip_bytes = TEST_ONCHIP,
                                   .image = image,
                                   .image_bytes = sizeof image};
    struct lora_failure failure;
    CHECK(transport->program(cluster->handle[board], &program, &failure) == LORA_OK);
}

static inline struct test_cluster test_open_with(uint32_t boards, enum test_shape shape,
                                                 uint32_t trace_capacity,
                                                 const struct lora_kernels *kernels,
                                                 uint32_t threads) {
    struct lora_board_info infos[LORA_MAX_BOARDS];
    struct lora_emu_cable cables[LORA_MAX_BOARDS];
    struct test_cluster cluster = {.boards = boards};
    struct lora_failure failure;
    for (uint32_t i = 0; i < boards; i++) {
        infos[i] = test_info(i);
        cables[i] = (struct lora_emu_cable){i, 1, (i + 1) % boards, 0};
    }
    struct lora_emu_config config = {.size = sizeof config,
                                     .boards = boards,
                                     .board_info = infos,
                                     .cable_count = shape == TEST_RING ? boards : boards - 1,
                                     .clock_hz = TEST_CLOCK_HZ,
                                     .cables = cables,
                                     .kernels = kernels,
                                     .threads = threads,
                                     .link_configuration = TEST_CONFIGURATION,
                                     .trace_capacity = trace_capacity};
    if (boards == 1) config.cable_count = 0;
    CHECK(lora_emu_create(&config, &cluster.id, &failure) == LORA_OK);
    for (uint32_t i = 0; i < boards; i++) {
        char address[32];
        snprintf(address, sizeof address, "%u/%u", cluster.id, i);
        CHECK(transport->open(address, &cluster.handle[i], &failure) == LORA_OK);
        test_program(&cluster, i);
    }
    return cluster;
}

static inline struct test_cluster test_open(uint32_t boards, enum test_shape shape,
                                            uint32_t trace_capacity) {
    return test_open_with(boards, shape, trace_capacity, &test_kernels, 0);
}

static inline void test_close(struct test_cluster *cluster) {
    for (uint32_t i = 0; i < cluster->boards; i++) transport->close(cluster->handle[i]);
    lora_emu_destroy(cluster->id);
}

static inline uint32_t test_read(struct test_cluster *cluster, uint32_t board, uint32_t block,
                                 uint32_t offset) {
    uint32_t value = 0;
    CHECK(transport->register_read(cluster->handle[board], block, offset, &value, NULL) == 0);
    return value;
}

static inline void test_write(struct test_cluster *cluster, uint32_t board, uint32_t block,
                              uint32_t offset, uint32_t value) {
    CHECK(transport->register_write(cluster->handle[board], block, offset, value, NULL) == 0);
}

static inline void test_sleep(struct test_cluster *cluster, uint32_t microseconds) {
    CHECK(transport->sleep(cluster->handle[0], microseconds, NULL) == LORA_OK);
}

static inline void test_core_reset(struct test_cluster *cluster, uint32_t value) {
    for (uint32_t b = 0; b < cluster->boards; b++)
        for (uint32_t p = 0; p < LORA_PORTS; p++)
            test_write(cluster, b, LORA_BLOCK_LINK0 + p, LORA_LINK_CORE_RESET, value);
}

static inline void test_links_up(struct test_cluster *cluster) {
    test_core_reset(cluster, 1);
    test_sleep(cluster, 1000000);
    test_core_reset(cluster, 0);
    test_sleep(cluster, 10000);
}

/* The board's inside, for tests that drive units without firmware. */
static inline struct emu_board *test_inside(struct test_cluster *cluster, uint32_t board) {
    struct emu_cluster *inside = emu_cluster_acquire(cluster->id);
    CHECK(inside);
    struct emu_board *found = &inside->board[board];
    emu_cluster_release(inside);
    return found;
}

static inline void test_reserve(struct test_cluster *cluster, uint32_t board, uint32_t bank,
                                uint64_t offset, uint64_t bytes) {
    uint64_t base;
    CHECK(transport->reserve(cluster->handle[board], bank, offset, bytes, &base, NULL) == 0);
}

/* Record `index` of the arena registers, as the host writes it. */
static inline void test_arena(struct test_cluster *cluster, uint32_t board, uint32_t index,
                              uint32_t bank, uint64_t offset, uint64_t bytes) {
    struct lora_arena_record record = {.offset = offset, .bytes = bytes, .bank = bank, .valid = 1};
    uint32_t words[sizeof record / 4];
    memcpy(words, &record, sizeof record);
    for (uint32_t i = 0; i < sizeof record / 4; i++)
        test_write(cluster, board, LORA_BLOCK_CONTROL,
                   LORA_REG_ARENAS + index * (uint32_t)sizeof record + 4 * i, words[i]);
    test_write(cluster, board, LORA_BLOCK_CONTROL, LORA_REG_ARENA_COUNT, index + 1);
}

/* The last of submit's arguments; ARENA_COUNT is a register of its own. */
static inline void test_arguments(uint32_t arguments[11], uint32_t control_bank) {
    arguments[(LORA_REG_CONTROL_BANK - LORA_REG_OPERATION) / 4] = control_bank;
}

#endif
