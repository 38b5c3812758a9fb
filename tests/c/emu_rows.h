/* A gather on emulated boards: rows of which each board has its own share, and what all must have
 * afterwards. */
#ifndef TEST_EMU_ROWS_H
#define TEST_EMU_ROWS_H

#include "emu_board.h"

struct run {
    struct test_cluster cluster;
    enum test_shape shape;
    struct emu_board *boards[LORA_MAX_BOARDS];
    struct lora_list lists[LORA_MAX_BOARDS];
    struct lora_step_state state;
    struct lora_gather gather;
};

static inline uint32_t random_word(void) {
    static uint32_t state = 12345;
    state = state * 1664525u + 1013904223u;
    return state >> 8;
}

static inline struct run run_open(uint32_t boards, enum test_shape shape) {
    struct run run = {.cluster = test_open(boards, shape, 0), .shape = shape};
    test_links_up(&run.cluster);
    for (uint32_t b = 0; b < boards; b++) {
        run.boards[b] = test_inside(&run.cluster, b);
        run.lists[b] = (struct lora_list){.rank = (uint8_t)b,
                                          .boards = (uint8_t)boards,
                                          .ring = shape == TEST_RING,
                                          .port_next = 1,
                                          .port_previous = 0};
    }
    run.state = (struct lora_step_state){.size = sizeof run.state, .step = 7, .epoch = 3};
    run.gather = (struct lora_gather){.opcode = LORA_CMD_GATHER, .unit = LORA_UNIT_ROUTER};
    return run;
}

static inline void run_close(struct run *run) { test_close(&run->cluster); }

static inline uint32_t share_start(const struct lora_gather *gather, uint32_t boards, uint32_t b) {
    uint32_t units = (gather->columns + gather->share_unit - 1) / gather->share_unit;
    uint32_t start = b * units / boards * gather->share_unit;
    return start < gather->columns ? start : gather->columns;
}

/* Fills every board's buffer with rubbish but for its own share of the rows. */
static inline void scatter(struct run *run, uint8_t *full, uint32_t rows) {
    const struct lora_gather *g = &run->gather;
    uint32_t width = g->columns * g->element_bytes;
    for (uint32_t i = 0; i < rows * width; i++) full[i] = (uint8_t)random_word();
    for (uint32_t b = 0; b < run->cluster.boards; b++) {
        uint8_t *onchip = run->boards[b]->memory.base[LORA_BANK_ONCHIP];
        uint32_t first = share_start(g, run->cluster.boards, b) * g->element_bytes;
        uint32_t last = share_start(g, run->cluster.boards, b + 1) * g->element_bytes;
        memset(onchip, 0xee, TEST_ONCHIP);
        for (uint32_t r = 0; r < rows; r++)
            memcpy(onchip + g->offset + r * g->stride + first, full + r * width + first,
                   last - first);
    }
}

static inline bool gathered(struct run *run, const uint8_t *full, uint32_t rows) {
    const struct lora_gather *g = &run->gather;
    uint32_t width = g->columns * g->element_bytes;
    for (uint32_t b = 0; b < run->cluster.boards; b++) {
        const uint8_t *onchip = run->boards[b]->memory.base[LORA_BANK_ONCHIP];
        for (uint32_t r = 0; r < rows; r++) {
            const uint8_t *row = onchip + g->offset + r * g->stride;
            if (memcmp(row, full + r * width, width)) return false;
            if (g->stride > width && row[width] != 0xee) return false;
        }
    }
    return true;
}

#endif
