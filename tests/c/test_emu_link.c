/* Aurora bring-up by registers; the link test through the firmware, with each fault of a cable. */
#include "emu_board.h"

#define BLOCK_OFFSET 0x2000
#define CONTROL_BYTES (1u << 16)
#define FRAMES 100

static struct test_cluster pair(void) {
    struct test_cluster cluster = test_open(2, TEST_PATH, 0);
    for (uint32_t b = 0; b < 2; b++) {
        test_reserve(&cluster, b, TEST_DDR, 0, CONTROL_BYTES);
        test_arena(&cluster, b, 0, TEST_DDR, 0, CONTROL_BYTES);
    }
    return cluster;
}

static uint32_t status(struct test_cluster *cluster, uint32_t board) {
    return test_read(cluster, board, board ? LORA_BLOCK_LINK0 : LORA_BLOCK_LINK1, LORA_LINK_STATUS);
}

static void check_bring_up(void) {
    struct test_cluster cluster = pair();
    CHECK(status(&cluster, 0) != LORA_LINK_HEALTHY);
    test_core_reset(&cluster, 1);
    CHECK(!(status(&cluster, 0) & 0x1100));
    test_sleep(&cluster, 999000); /* too short: the core does not train */
    test_core_reset(&cluster, 0);
    test_sleep(&cluster, 3000000);
    CHECK(status(&cluster, 0) != LORA_LINK_HEALTHY);
    test_core_reset(&cluster, 1);
    test_sleep(&cluster, 1000000);
    test_write(&cluster, 0, LORA_BLOCK_LINK1, LORA_LINK_CORE_RESET, 0);
    test_sleep(&cluster, 20000); /* the far end is still held */
    CHECK(status(&cluster, 0) == 0x10f);
    test_write(&cluster, 1, LORA_BLOCK_LINK0, LORA_LINK_CORE_RESET, 0);
    CHECK(status(&cluster, 0) == 0x10f);
    test_sleep(&cluster, 20000);
    CHECK(status(&cluster, 0) == LORA_LINK_HEALTHY && status(&cluster, 1) == LORA_LINK_HEALTHY);
    /* No cable, no channel. */
    CHECK(test_read(&cluster, 0, LORA_BLOCK_LINK0, LORA_LINK_STATUS) != LORA_LINK_HEALTHY);
    CHECK(test_read(&cluster, 0, LORA_BLOCK_LINK1, LORA_LINK_NOT_OK_CYCLES) > 0);
    test_write(&cluster, 0, LORA_BLOCK_LINK1, LORA_LINK_COUNTER_RESET, 1);
    CHECK(test_read(&cluster, 0, LORA_BLOCK_LINK1, LORA_LINK_NOT_OK_CYCLES) == 0);
    CHECK(test_read(&cluster, 0, LORA_BLOCK_LINK1, LORA_LINK_CONFIGURATION) == TEST_CONFIGURATION);
    CHECK(lora_emu_fault(cluster.id, 0, LORA_FAULT_LINK_CONFIG, 1, 0x81, 0) == LORA_OK);
    CHECK(test_read(&cluster, 0, LORA_BLOCK_LINK1, LORA_LINK_CONFIGURATION) == 0x81);
    /* A board that loses its program takes the far end's channel with it. */
    CHECK(transport->reset(cluster.handle[0], NULL) == LORA_OK);
    CHECK(status(&cluster, 1) != LORA_LINK_HEALTHY);
    CHECK(test_read(&cluster, 1, LORA_BLOCK_LINK0, LORA_LINK_CHANNEL_DOWN) == 1);
    test_close(&cluster);
}

static void put_test(struct test_cluster *cluster, uint32_t board, uint32_t seed) {
    struct lora_link_test test = {
        .size = sizeof test, .frames = FRAMES, .payload = 999, .seed = seed};
    test.ports[board ? 0 : 1].enabled = 1;
    CHECK(transport->memory_write(cluster->handle[board], TEST_DDR, BLOCK_OFFSET, &test,
                                  sizeof test, NULL) == LORA_OK);
}

/* Runs the test on both boards; fills each one's result for its port of the cable. */
static void run_test(struct test_cluster *cluster, uint32_t seed,
                     struct lora_link_test_port results[2], uint32_t codes[2]) {
    uint32_t arguments[11] = {LORA_OP_LINK_TEST, 0, BLOCK_OFFSET, 1};
    test_arguments(arguments, TEST_DDR);
    for (uint32_t b = 0; b < 2; b++) {
        put_test(cluster, b, seed);
        CHECK(transport->submit(cluster->handle[b], arguments, NULL) == LORA_OK);
    }
    for (uint32_t b = 0; b < 2; b++) {
        uint32_t state = LORA_RUN_BUSY;
        for (uint32_t turn = 0; turn < 100 && state == LORA_RUN_BUSY; turn++) {
            CHECK(transport->poll(cluster->handle[b], &state, NULL) == LORA_OK);
            if (state == LORA_RUN_BUSY) test_sleep(cluster, 1000000);
        }
        CHECK(state == LORA_RUN_DONE);
        struct lora_link_test test;
        struct lora_completion record;
        CHECK(transport->memory_read(cluster->handle[b], TEST_DDR, BLOCK_OFFSET, &test, sizeof test,
                                     NULL) == LORA_OK);
        CHECK(transport->memory_read(cluster->handle[b], TEST_DDR, 0, &record, sizeof record,
                                     NULL) == LORA_OK);
        results[b] = test.ports[b ? 0 : 1];
        codes[b] = record.status;
    }
}

static void check_link_test(void) {
    struct test_cluster cluster = pair();
    struct lora_link_test_port ports[2];
    uint32_t codes[2];
    test_links_up(&cluster);
    test_write(&cluster, 0, LORA_BLOCK_LINK1, LORA_LINK_COUNTER_RESET, 1);
    run_test(&cluster, 11, ports, codes);
    for (uint32_t b = 0; b < 2; b++) {
        CHECK(codes[b] == LORA_OK);
        CHECK(ports[b].sent == FRAMES && ports[b].received == FRAMES && ports[b].bad == 0);
        CHECK(ports[b].peer_serial == 0x1001 - b && ports[b].peer_port == b);
    }
    CHECK(test_read(&cluster, 0, LORA_BLOCK_LINK1, LORA_LINK_FRAMES_RECEIVED) == FRAMES);
    CHECK(test_read(&cluster, 0, LORA_BLOCK_LINK1, LORA_LINK_TX_COUNT) == FRAMES * 17);
    CHECK(test_read(&cluster, 0, LORA_BLOCK_LINK1, LORA_LINK_RX_COUNT) == FRAMES * 17);

    CHECK(lora_emu_fault(cluster.id, 0, LORA_FAULT_LINK_FLIP, 1, 7, 2) == LORA_OK);
    run_test(&cluster, 12, ports, codes);
    CHECK(ports[1].bad == 2 && ports[1].first_bad == 7 && ports[0].bad == 0);
    CHECK(test_read(&cluster, 1, LORA_BLOCK_LINK0, LORA_LINK_FRAMES_WITH_ERRORS) == 2);

    /* Wrong bytes under a right CRC: no counter of the core moves, the pattern tells. */
    CHECK(lora_emu_fault(cluster.id, 1, LORA_FAULT_LINK_GARBLE, 0, 0, 0) == LORA_OK);
    run_test(&cluster, 13, ports, codes);
    CHECK(ports[0].bad == FRAMES && ports[0].first_bad == 0 && ports[0].peer_serial == ~0u);
    CHECK(ports[1].bad == 0);
    CHECK(test_read(&cluster, 0, LORA_BLOCK_LINK1, LORA_LINK_FRAMES_WITH_ERRORS) == 0);
    CHECK(status(&cluster, 0) == LORA_LINK_HEALTHY);

    CHECK(lora_emu_fault(cluster.id, 1, LORA_FAULT_NONE, 0, 0, 0) == LORA_OK);
    CHECK(lora_emu_fault(cluster.id, 0, LORA_FAULT_LINK_DOWN, 1, 0, 0) == LORA_OK);
    run_test(&cluster, 14, ports, codes);
    CHECK(codes[0] == LORA_ERR_LINK_DOWN && codes[1] == LORA_ERR_LINK_DOWN);
    CHECK(lora_emu_fault(cluster.id, 0, LORA_FAULT_NONE, 0, 0, 0) == LORA_OK);
    test_sleep(&cluster, 20000);
    run_test(&cluster, 15, ports, codes);
    CHECK(codes[0] == LORA_OK && ports[0].bad == 0 && ports[0].received == FRAMES);
    test_close(&cluster);
}

int main(void) {
    check_bring_up();
    check_link_test();
    puts("emu_link: ok");
    return 0;
}
