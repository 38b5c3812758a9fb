/* One emulated board through the transport: address, banks, program, registers, runs and faults. */
#include "emu_board.h"
#include "lora/crc32.h"

#define CONTROL_BYTES (1u << 20)

static void check_open(void) {
    static const char *const wrong[] = {"",     "1",       "x/0",   "1/0 ",        "1/-1",
                                        "1//0", "99999/0", "1/0/0", "4294967297/0"};
    struct test_cluster cluster = test_open(2, TEST_PATH, 0);
    struct lora_failure failure;
    void *handle;
    for (uint32_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        CHECK(transport->open(wrong[i], &handle, &failure) == LORA_ERR_URI);
        CHECK(failure.code == LORA_ERR_URI && failure.message[0] && failure.board == -1);
    }
    char beyond[32];
    snprintf(beyond, sizeof beyond, "%u/2", cluster.id);
    CHECK(transport->open(beyond, &handle, NULL) == LORA_ERR_URI);
    struct lora_board_info info;
    CHECK(transport->info(cluster.handle[1], &info, NULL) == LORA_OK && info.serial == 0x1001);
    lora_emu_destroy(cluster.id); /* open handles keep the boards alive, the name is gone */
    CHECK(transport->info(cluster.handle[0], &info, NULL) == LORA_OK);
    CHECK(lora_emu_fault(cluster.id, 0, LORA_FAULT_NONE, 0, 0, 0) == LORA_ERR_ARGUMENT);
    for (uint32_t b = 0; b < 2; b++) transport->close(cluster.handle[b]);
}

static int reserve(struct test_cluster *cluster, uint32_t bank, uint64_t offset, uint64_t bytes,
                   struct lora_failure *failure) {
    uint64_t base;
    return transport->reserve(cluster->handle[0], bank, offset, bytes, &base, failure);
}

static void check_banks(void) {
    struct test_cluster cluster = test_open(1, TEST_PATH, 0);
    struct lora_failure failure;
    uint64_t base, mib = 1 << 20;
    CHECK(transport->reserve(cluster.handle[0], 1, 4096, mib, &base, NULL) == LORA_OK);
    CHECK(base == 256 * mib + 4096);
    CHECK(reserve(&cluster, 1, 4096 + mib - 64, 64, &failure) == LORA_ERR_BANK_FULL);
    CHECK(failure.bank == 1 && failure.requested == 64 && failure.capacity == 256 * mib);
    CHECK(failure.available == 255 * mib);
    CHECK(reserve(&cluster, 1, 255 * mib, mib + 64, NULL) == LORA_ERR_BANK_FULL);
    CHECK(reserve(&cluster, 1, ~0ull - 63, 64, NULL) == LORA_ERR_BANK_FULL);
    CHECK(reserve(&cluster, TEST_BANKS, 0, 64, NULL) == LORA_ERR_ARGUMENT);
    CHECK(reserve(&cluster, LORA_BANK_ONCHIP, 0, 64, NULL) == LORA_ERR_ARGUMENT);
    CHECK(reserve(&cluster, 1, 10, 64, NULL) == LORA_ERR_ARGUMENT);
    CHECK(reserve(&cluster, 1, 0, 0, NULL) == LORA_ERR_ARGUMENT);
    /* Sixteen GiB of DDR cost nothing until written; a second arena follows the first. */
    CHECK(reserve(&cluster, 32, 0, 15ull << 30, NULL) == LORA_OK);
    CHECK(reserve(&cluster, 32, 15ull << 30, 1ull << 30, NULL) == LORA_OK);
    uint64_t value = 0x1122334455667788ull, back = 0;
    void *handle = cluster.handle[0];
    CHECK(transport->memory_write(handle, 32, (16ull << 30) - 8, &value, 8, NULL) == LORA_OK);
    CHECK(transport->memory_read(handle, 32, (16ull << 30) - 8, &back, 8, NULL) == LORA_OK);
    CHECK(back == value);
    const struct emu_board *inside = test_inside(&cluster, 0);
    CHECK((uintptr_t)inside->memory.base[32] % (2 << 20) == 0);
    CHECK(inside->memory.bytes[32] == 16ull << 30);
    /* Nothing crosses an arena, and what was never reserved is not there. */
    CHECK(transport->memory_write(handle, 32, (15ull << 30) - 4, &value, 8, &failure) ==
          LORA_ERR_RANGE);
    CHECK(failure.bank == 32 && failure.requested == 8);
    CHECK(transport->memory_read(handle, 1, 0, &back, 8, NULL) == LORA_ERR_RANGE);
    CHECK(transport->memory_read(handle, 1, 4096, &back, ~0ull, NULL) == LORA_ERR_RANGE);
    CHECK(transport->memory_read(handle, LORA_BANK_ONCHIP, 0, &back, 8, NULL) == LORA_ERR_RANGE);
    CHECK(transport->release(handle, 32, 15ull << 30, NULL) == LORA_OK);
    CHECK(transport->release(handle, 32, 15ull << 30, NULL) == LORA_ERR_RANGE);
    CHECK(reserve(&cluster, 32, 15ull << 30, 1ull << 30, NULL) == LORA_OK);
    CHECK(transport->memory_read(handle, 32, (16ull << 30) - 8, &back, 8, NULL) == LORA_OK);
    CHECK(back == 0);
    test_close(&cluster);
}

static int load(struct test_cluster *cluster, struct lora_program program, size_t damage,
                struct lora_failure *failure) {
    uint8_t image[40] = {0};
    struct lora_image_header header = {.magic = LORA_IMAGE_MAGIC,
                                       .size = sizeof header,
                                       .abi = LORA_ABI_NUMBER,
                                       .board = LORA_BOARD_U280,
                                       .code_bytes = 8,
                                       .code_crc = lora_crc32(0, image + sizeof header, 8)};
    memcpy(image, &header, sizeof header);
    if (damage < sizeof image) image[damage] ^= 0x80;
    program.image = image;
    if (program.image_bytes == 0) program.image_bytes = sizeof image;
    return transport->program(cluster->handle[0], &program, failure);
}

static void check_program(void) {
    struct test_cluster cluster = test_open(1, TEST_PATH, 0);
    struct lora_program good = {.size = sizeof good,
                                .board_kind = LORA_BOARD_U280,
                                .abi = LORA_ABI_NUMBER,
                                .onchip_bytes = 4096};
    struct lora_failure failure;
    CHECK(load(&cluster, good, ~0u, NULL) == LORA_OK);
    /* Every byte of header and code matters but for `reserved`. */
    for (size_t at = 0; at < 40; at++) {
        if (at >= offsetof(struct lora_image_header, reserved) && at < 32) continue;
        CHECK(load(&cluster, good, at, &failure) == LORA_ERR_OVERLAY);
        CHECK(failure.found != failure.expected && strstr(failure.message, "expected"));
    }
    struct lora_program wrong = good;
    wrong.board_kind = LORA_BOARD_V80;
    CHECK(load(&cluster, wrong, ~0u, NULL) == LORA_ERR_OVERLAY);
    wrong = good;
    wrong.abi++;
    CHECK(load(&cluster, wrong, ~0u, NULL) == LORA_ERR_OVERLAY);
    wrong = good;
    wrong.onchip_bytes = 0;
    CHECK(load(&cluster, wrong, ~0u, NULL) == LORA_ERR_OVERLAY);
    wrong = good;
    wrong.image_bytes = 39;
    CHECK(load(&cluster, wrong, ~0u, NULL) == LORA_ERR_OVERLAY);
    CHECK(test_read(&cluster, 0, LORA_BLOCK_CONTROL, LORA_REG_IDENTITY_ABI) == LORA_ABI_NUMBER);
    test_write(&cluster, 0, LORA_BLOCK_CONTROL, LORA_REG_IDENTITY_SERIAL, 5);
    CHECK(test_read(&cluster, 0, LORA_BLOCK_CONTROL, LORA_REG_IDENTITY_SERIAL) == 0x1000);
    CHECK(test_read(&cluster, 0, LORA_BLOCK_CONTROL, LORA_REG_IDENTITY_BOARD) == 0x280);
    uint8_t zeros[8] = {0};
    CHECK(test_read(&cluster, 0, LORA_BLOCK_CONTROL, LORA_REG_FIRMWARE_CRC) ==
          lora_crc32(0, zeros, 8));
    uint32_t value;
    void *handle = cluster.handle[0];
    CHECK(transport->register_read(handle, 0, EMU_CONTROL_BYTES, &value, NULL) ==
          LORA_ERR_ARGUMENT);
    CHECK(transport->register_read(handle, 0, 2, &value, NULL) == LORA_ERR_ARGUMENT);
    CHECK(transport->register_read(handle, 3, 0, &value, NULL) == LORA_ERR_ARGUMENT);
    CHECK(transport->reset(handle, NULL) == LORA_OK);
    CHECK(transport->register_read(handle, 0, 0, &value, NULL) == LORA_ERR_TRANSPORT);
    test_close(&cluster);
}

static struct test_cluster running_board(void) {
    struct test_cluster cluster = test_open(1, TEST_PATH, 4);
    test_reserve(&cluster, 0, TEST_DDR, 0, CONTROL_BYTES);
    test_arena(&cluster, 0, 0, TEST_DDR, 0, CONTROL_BYTES);
    return cluster;
}

static struct lora_completion completion(struct test_cluster *cluster) {
    struct lora_completion record;
    CHECK(transport->memory_read(cluster->handle[0], TEST_DDR, LORA_COMPLETION_OFFSET, &record,
                                 sizeof record, NULL) == LORA_OK);
    return record;
}

static void check_runs(void) {
    struct test_cluster cluster = running_board();
    uint32_t state, identify[11] = {LORA_OP_IDENTIFY, 77};
    test_arguments(identify, TEST_DDR);
    CHECK(transport->submit(cluster.handle[0], identify, NULL) == LORA_OK);
    CHECK(transport->submit(cluster.handle[0], identify, NULL) == LORA_ERR_TRANSPORT);
    CHECK(transport->poll(cluster.handle[0], &state, NULL) == LORA_OK && state == LORA_RUN_DONE);
    CHECK(transport->poll(cluster.handle[0], &state, NULL) == LORA_OK && state == LORA_RUN_BUSY);
    CHECK(completion(&cluster).list_id == 77 && completion(&cluster).operation == LORA_OP_IDENTIFY);
    /* AP_CTRL by hand: start, then done, which clears when it is read. */
    test_write(&cluster, 0, LORA_BLOCK_CONTROL, LORA_REG_AP_CTRL, LORA_AP_START);
    CHECK(test_read(&cluster, 0, LORA_BLOCK_CONTROL, LORA_REG_AP_CTRL) & LORA_AP_START);
    test_sleep(&cluster, 10);
    CHECK(test_read(&cluster, 0, LORA_BLOCK_CONTROL, LORA_REG_AP_CTRL) & LORA_AP_DONE);
    CHECK(!(test_read(&cluster, 0, LORA_BLOCK_CONTROL, LORA_REG_AP_CTRL) & LORA_AP_DONE));
    CHECK(test_read(&cluster, 0, LORA_BLOCK_CONTROL, LORA_REG_AP_CTRL) & LORA_AP_IDLE);
    test_close(&cluster);
}

static uint32_t run_under(struct test_cluster *cluster, uint32_t kind, uint32_t mark) {
    uint32_t state, identify[11] = {LORA_OP_IDENTIFY, mark};
    test_arguments(identify, TEST_DDR);
    CHECK(lora_emu_fault(cluster->id, 0, kind, 0, 0, 0) == LORA_OK);
    CHECK(transport->submit(cluster->handle[0], identify, NULL) == LORA_OK);
    CHECK(transport->poll(cluster->handle[0], &state, NULL) == LORA_OK);
    return state;
}

static void check_faults(void) {
    static const struct {
        uint32_t kind, state;
        bool recorded;
    } cases[] = {
        {LORA_FAULT_NONE, LORA_RUN_DONE, true},
        {LORA_FAULT_COMPLETION_LOST, LORA_RUN_DONE, false},
        {LORA_FAULT_DONE_LOST, LORA_RUN_BUSY, false},
        {LORA_FAULT_FIRMWARE_DEAD, LORA_RUN_BUSY, false},
        {LORA_FAULT_RECORD_STEP, LORA_RUN_DONE, true},
        {LORA_FAULT_RECORD_EPOCH, LORA_RUN_DONE, true},
        {LORA_FAULT_DONE_EARLY, LORA_RUN_DONE, false},
        {LORA_FAULT_REGISTERS_ONES, LORA_RUN_DONE, false},
        {LORA_FAULT_FIRMWARE_RESET, LORA_RUN_DONE, true},
    };
    for (uint32_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct test_cluster cluster = running_board();
        CHECK(run_under(&cluster, cases[i].kind, 40 + i) == cases[i].state);
        CHECK((completion(&cluster).list_id == 40 + i) == cases[i].recorded);
        test_close(&cluster);
    }
    struct test_cluster cluster = running_board();
    CHECK(lora_emu_fault(cluster.id, 1, LORA_FAULT_NONE, 0, 0, 0) == LORA_ERR_ARGUMENT);
    CHECK(lora_emu_fault(cluster.id, 0, 99, 0, 0, 0) == LORA_ERR_ARGUMENT);
    CHECK(lora_emu_fault(cluster.id, 0, LORA_FAULT_UNIT_STUCK, 9, 0, 0) == LORA_ERR_ARGUMENT);
    CHECK(lora_emu_fault(cluster.id, 0, LORA_FAULT_LINK_DOWN, 2, 0, 0) == LORA_ERR_ARGUMENT);
    test_close(&cluster);
}

static uint64_t word_at(struct test_cluster *cluster, uint64_t offset) {
    uint64_t found = 0;
    CHECK(transport->memory_read(cluster->handle[0], 5, offset, &found, 8, NULL) == LORA_OK);
    return found;
}

static void write_words(struct test_cluster *cluster, uint64_t offset, uint64_t value) {
    uint64_t words[2] = {value, value};
    CHECK(transport->memory_write(cluster->handle[0], 5, offset, words, 16, NULL) == LORA_OK);
}

/* The second transfer after each fault is struck, others are not. */
static void check_transfers(void) {
    struct test_cluster cluster = running_board();
    test_reserve(&cluster, 0, 5, 0, 4096);
    for (uint32_t kind = LORA_FAULT_WRITE_LOST; kind <= LORA_FAULT_WRITE_TWICE; kind++) {
        for (uint64_t at = 0; at < 4096; at += 16) write_words(&cluster, at, 1);
        CHECK(lora_emu_fault(cluster.id, 0, kind, 1, 1024, 0) == LORA_OK);
        write_words(&cluster, 0, 2);
        write_words(&cluster, 64, 3);
        uint64_t struck = kind == LORA_FAULT_WRITE_SHORT || kind == LORA_FAULT_WRITE_TWICE ? 3 : 1;
        CHECK(word_at(&cluster, 0) == 2 && word_at(&cluster, 64) == struck);
        CHECK(word_at(&cluster, 72) == (kind == LORA_FAULT_WRITE_TWICE ? 3 : 1));
        CHECK(word_at(&cluster, 64 + 1024) == (kind == LORA_FAULT_WRITE_MISPLACED ? 3 : 1));
        write_words(&cluster, 64, 4);
        CHECK(word_at(&cluster, 64) == (kind == LORA_FAULT_WRITE_TWICE ? 3 : 4));
        write_words(&cluster, 64, 5);
        CHECK(word_at(&cluster, 64) == 5);
    }
    /* What would be misplaced outside the arena is lost. */
    CHECK(lora_emu_fault(cluster.id, 0, LORA_FAULT_WRITE_MISPLACED, 0, 4096, 0) == LORA_OK);
    write_words(&cluster, 64, 6);
    CHECK(word_at(&cluster, 64) == 5);
    test_close(&cluster);
}

/* A checksum of 3 MiB goes through firmware and DMA unit; a stuck DMA meets the watchdog. */
static void check_checksum(void) {
    struct test_cluster cluster = running_board();
    uint32_t bytes = 3u << 20, state;
    uint8_t *data = malloc(bytes);
    CHECK(data);
    for (uint32_t i = 0; i < bytes; i++) data[i] = (uint8_t)(i * 2654435761u >> 24);
    test_reserve(&cluster, 0, 5, 64, bytes);
    test_arena(&cluster, 0, 1, 5, 64, bytes);
    CHECK(transport->memory_write(cluster.handle[0], 5, 64, data, bytes, NULL) == LORA_OK);
    uint32_t arguments[11] = {LORA_OP_CHECKSUM, 0, 0, 1, 0, 5, 64, 0, bytes, 0, 0};
    test_arguments(arguments, TEST_DDR);
    CHECK(transport->submit(cluster.handle[0], arguments, NULL) == LORA_OK);
    CHECK(transport->poll(cluster.handle[0], &state, NULL) == LORA_OK && state == LORA_RUN_DONE);
    CHECK(completion(&cluster).status == LORA_OK);
    CHECK(completion(&cluster).checksum == lora_crc32(0, data, bytes));
    free(data);
    struct lora_trace_record records[8];
    uint32_t dropped;
    CHECK(lora_emu_trace(cluster.id, 0, records, 8, &dropped) == 3 && dropped == 0);
    CHECK(records[0].opcode == LORA_CMD_CHECKSUM && records[0].begin < records[0].end);
    CHECK(records[0].end < records[1].end);
    CHECK(lora_emu_trace(cluster.id, 0, records, 8, &dropped) == 0 && dropped == 0);

    test_write(&cluster, 0, LORA_BLOCK_CONTROL, LORA_REG_WATCHDOG_MS, 5);
    CHECK(lora_emu_fault(cluster.id, 0, LORA_FAULT_UNIT_STUCK, LORA_UNIT_DMA, 0, 0) == LORA_OK);
    CHECK(transport->submit(cluster.handle[0], arguments, NULL) == LORA_OK);
    CHECK(transport->poll(cluster.handle[0], &state, NULL) == LORA_OK && state == LORA_RUN_BUSY);
    test_sleep(&cluster, 1000);
    CHECK(transport->poll(cluster.handle[0], &state, NULL) == LORA_OK && state == LORA_RUN_BUSY);
    test_sleep(&cluster, 10000);
    CHECK(transport->poll(cluster.handle[0], &state, NULL) == LORA_OK && state == LORA_RUN_DONE);
    CHECK(completion(&cluster).status == LORA_ERR_WATCHDOG);
    test_close(&cluster);
}

static uint32_t crc_by_bits(const uint8_t *bytes, uint32_t count) {
    uint32_t crc = ~0u;
    for (uint32_t i = 0; i < count * 8; i++) {
        uint32_t bit = (crc ^ bytes[i / 8] >> i % 8) & 1;
        crc = crc >> 1 ^ (bit ? 0xedb88320u : 0);
    }
    return ~crc;
}

static void check_crc(void) {
    uint8_t bytes[300];
    CHECK(lora_crc32(0, "123456789", 9) == 0xcbf43926u && lora_crc32(0, "", 0) == 0);
    for (uint32_t i = 0; i < sizeof bytes; i++) bytes[i] = (uint8_t)(i * 37);
    for (uint32_t cut = 0; cut <= sizeof bytes; cut++)
        CHECK(lora_crc32(0, bytes, cut) == crc_by_bits(bytes, cut));
    for (uint32_t cut = 0; cut <= sizeof bytes; cut++)
        CHECK(lora_crc32(lora_crc32(0, bytes, cut), bytes + cut, sizeof bytes - cut) ==
              lora_crc32(0, bytes, sizeof bytes));
}

static void check_crc_without(void) {
    uint8_t bytes[700];
    for (uint32_t i = 0; i < sizeof bytes; i++) bytes[i] = (uint8_t)(i * 37 + 1);
    for (uint32_t cut = 32; cut <= sizeof bytes; cut++)
        for (uint32_t at = 16; at < 32; at++) {
            uint8_t kept = bytes[at];
            uint32_t found = lora_crc32_without(bytes, cut, at);
            bytes[at] = 0;
            CHECK(found == crc_by_bits(bytes, cut));
            bytes[at] = kept;
        }
}

int main(void) {
    check_crc();
    check_crc_without();
    check_open();
    check_banks();
    check_program();
    check_runs();
    check_faults();
    check_transfers();
    check_checksum();
    puts("emu_board: ok");
    return 0;
}
