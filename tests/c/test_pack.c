/* Packing and placing under the sanitizers: odd shapes, sources of any alignment in memory of
 * exactly their size, many threads, hostile tasks, and readers of memory. */
#include "emu_board.h"

#include "crc32_fold.h"
#include "lora/bench.h"
#include "lora/host.h"
#include "lora/pack.h"
#include "stream_copy.h"

#define K 300u
#define N 200u
#define BANKS 3u
#define TILES ((N + 31) / 32)
#define BLOCKS (3 * TILES)
#define BANK_BYTES (4u << 20)
#define SCRATCH (256u << 10)

static uint8_t scratch[8 * SCRATCH] __attribute__((aligned(64)));

/* Element [k][n] of the matrix, exact as FP16 and as BF16: a multiple of 1/8 below 16. */
static float value_of(uint64_t k, uint64_t n) { return (float)((k * 7 + n * 13) % 127) / 8 - 4; }

static uint16_t half_of(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if (!(bits << 1)) return 0;
    return (uint16_t)((bits >> 16 & 0x8000) | ((bits >> 23 & 0xff) - 112) << 10 |
                      (bits >> 13 & 0x3ff));
}

static void store(uint8_t *at, float value, uint32_t element) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    uint16_t half = element == LORA_SOURCE_BF16 ? (uint16_t)(bits >> 16) : half_of(value);
    if (element == LORA_SOURCE_F32) memcpy(at, &bits, 4);
    else memcpy(at, &half, 2);
}

/* Columns first .. first+count-1 of the matrix; `memory` is to be freed. One byte off every
 * alignment, and nothing behind the last element. */
static struct lora_pack_part make_part(uint64_t first, uint64_t count, uint32_t element,
                                       uint32_t axes, void **memory) {
    uint64_t size = element == LORA_SOURCE_F32 ? 4 : 2, bytes = K * count * size;
    uint8_t *data = (uint8_t *)(*memory = malloc(bytes + 1)) + 1;
    for (uint64_t k = 0; k < K; k++)
        for (uint64_t n = 0; n < count; n++)
            store(data + size * (axes == LORA_AXES_OI ? n * K + k : k * count + n),
                  value_of(k, first + n), element);
    int oi = axes == LORA_AXES_OI;
    return (struct lora_pack_part){"w",   data,    bytes, oi ? count : K, oi ? K : count, 0,
                                   count, element, axes};
}

static uint16_t expected(uint64_t k, uint64_t n) {
    return k < K && n < N ? half_of(value_of(k, n)) : 0;
}

static void check_blocks(const uint16_t *blocks) {
    for (uint64_t tile = 0; tile < TILES; tile++)
        for (uint64_t k = 0; k < 384; k++)
            for (uint64_t n = 0; n < 32; n++) {
                uint64_t block = tile * 3 + k / 128;
                CHECK(blocks[block * 4096 + k % 128 * 32 + n] == expected(k, tile * 32 + n));
            }
}

static void check_packing(void) {
    struct lora_failure failure;
    for (uint32_t axes = 0; axes < 2; axes++)
        for (uint32_t element = 0; element < 3; element++) {
            void *memory[2], *blocks = malloc(BLOCKS * 8192);
            struct lora_pack_part parts[2] = {make_part(0, 77, element, axes, &memory[0]),
                                              make_part(77, N - 77, 2 - element, axes, &memory[1])};
            CHECK(lora_pack_blocks(parts, 2, K, N, blocks, BLOCKS * 8192, &failure) == LORA_OK);
            check_blocks(blocks);
            CHECK(lora_pack_blocks(parts, 2, K, N, blocks, BLOCKS * 8192 - 1, &failure));
            CHECK(lora_pack_blocks(parts, 1, K, N, blocks, BLOCKS * 8192, NULL));
            free(blocks);
            free(memory[0]);
            free(memory[1]);
        }
}

/* Infinity or NaN is noticed in every element of a tile; the max number is none. */
static void check_bad(uint32_t axes) {
    static const uint16_t values[] = {0x7c00, 0xfc00, 0x7e01, 0xffff, 0x7bff, 0xfbff};
    void *memory, *blocks = malloc(BLOCKS * 8192);
    struct lora_pack_part part = make_part(0, N, LORA_SOURCE_F16, axes, &memory);
    for (uint64_t at = 0; at < 256; at++) {
        uint64_t k = at * 7 % K, n = at % 40;
        uint8_t *target = (uint8_t *)memory + 1 +
                          2 * (axes == LORA_AXES_OI ? n * K + k : k * N + n);
        memcpy(target, values + at % 6, 2);
        int status = lora_pack_blocks(&part, 1, K, N, blocks, BLOCKS * 8192, NULL);
        CHECK(status == (at % 6 < 4 ? LORA_ERR_NAN : LORA_OK));
        store(target, value_of(k, n), LORA_SOURCE_F16);
    }
    free(blocks);
    free(memory);
}

static struct lora_cluster *open_board(uint32_t *id) {
    static struct {
        struct lora_image_header header;
        uint8_t code[8];
    } image;
    struct lora_board_info info = test_info(0);
    struct lora_cluster *cluster;
    struct lora_failure failure;
    const struct lora_emu_config config = {.size = sizeof config,
                                           .boards = 1,
                                           .board_info = &info,
                                           .clock_hz = TEST_CLOCK_HZ,
                                           .kernels = &test_kernels,
                                           .link_configuration = TEST_CONFIGURATION};
    char uri[32];
    const char *uris[1] = {uri};
    image.header = (struct lora_image_header){.magic = LORA_IMAGE_MAGIC,
                                              .size = sizeof image.header,
                                              .abi = LORA_ABI_NUMBER,
                                              .board = LORA_BOARD_U280,
                                              .code_bytes = 8};
    image.header.code_crc = lora_crc32(0, image.code, 8);
    const struct lora_program program = {.size = sizeof program,
                                         .board_kind = LORA_BOARD_U280,
                                         .abi = LORA_ABI_NUMBER,
                                         .onchip_bytes = TEST_ONCHIP,
                                         .image = (const uint8_t *)&image,
                                         .image_bytes = sizeof image};
    CHECK(lora_emu_create(&config, id, &failure) == LORA_OK);
    snprintf(uri, sizeof uri, "emu:%u/0", *id);
    CHECK(lora_cluster_open(uris, 1, &cluster, &failure) == LORA_OK);
    CHECK(lora_cluster_program(cluster, 0, &program, TEST_DDR, &failure) == LORA_OK);
    for (uint32_t bank = 0; bank < BANKS; bank++)
        CHECK(lora_cluster_reserve(cluster, 0, bank, 0, BANK_BYTES, &failure) == LORA_OK);
    return cluster;
}

/* Block j in bank (first + j) mod BANKS: read back and compared. */
static void check_placed(struct lora_cluster *cluster, const struct lora_pack_task *task) {
    static uint16_t blocks[BLOCKS * 4096];
    for (uint64_t j = 0; j < BLOCKS; j++) {
        uint64_t request = task->request_first + j;
        CHECK(lora_cluster_read(cluster, 0, (uint32_t)(request % BANKS),
                                task->offset + request / BANKS * 8192, blocks + j * 4096, 8192,
                                NULL) == LORA_OK);
    }
    check_blocks(blocks);
}

static struct lora_placing placing_of(const struct lora_pack_part *parts,
                                      const struct lora_pack_task *tasks, uint32_t count,
                                      struct lora_range *ranges, uint32_t threads) {
    return (struct lora_placing){.size = sizeof(struct lora_placing),
                                 .threads = threads,
                                 .parts = parts,
                                 .tasks = tasks,
                                 .part_count = 1,
                                 .task_count = count,
                                 .ranges = ranges,
                                 .range_capacity = 8 * BANKS,
                                 .scratch = scratch,
                                 .scratch_bytes = (uint64_t)threads * SCRATCH};
}

static void check_hostile(struct lora_cluster *cluster, const struct lora_placing *good) {
    struct lora_pack_task wrong[10];
    struct lora_failure failure;
    for (uint32_t i = 0; i < 10; i++) wrong[i] = good->tasks[0];
    wrong[0].board = 1;
    wrong[1].part_first = ~0u;
    wrong[2].k = 1ull << 40;
    wrong[3].count = ~0ull;
    wrong[4].bank_count = 64;
    wrong[5].merge = 0;
    wrong[6].offset = ~0ull << 6;
    wrong[7].kind = 7;
    wrong[8].kind = LORA_PACK_TABLE;
    wrong[9].offset = BANK_BYTES - 8192;
    for (uint32_t i = 0; i < 10; i++) {
        struct lora_placing placing = *good;
        placing.tasks = wrong + i;
        placing.task_count = 1;
        CHECK(lora_cluster_place(cluster, &placing, &failure) != LORA_OK);
        CHECK(failure.message[0] && placing.range_count == 0);
    }
    struct lora_placing placing = *good;
    placing.scratch_bytes = 8192;
    CHECK(lora_cluster_place(cluster, &placing, &failure) == LORA_ERR_ARGUMENT);
    placing.threads = 0;
    CHECK(lora_cluster_place(cluster, &placing, NULL) == LORA_ERR_ARGUMENT);
    CHECK(lora_cluster_place(cluster, NULL, NULL) == LORA_ERR_ARGUMENT);
    CHECK(lora_cluster_place(NULL, &placing, NULL) == LORA_ERR_ARGUMENT);
}

static void check_placing(uint32_t threads) {
    uint32_t id;
    struct lora_cluster *cluster = open_board(&id);
    struct lora_range ranges[8 * BANKS];
    struct lora_pack_task tasks[8];
    void *memory;
    struct lora_pack_part part = make_part(0, N, LORA_SOURCE_F16, threads % 2, &memory);
    for (uint32_t i = 0; i < 8; i++)
        tasks[i] = (struct lora_pack_task){.part_count = 1,
                                           .k = K,
                                           .n = N,
                                           .count = TILES,
                                           .bank_count = BANKS,
                                           .merge = 1,
                                           .request_first = i,
                                           .offset = i * (BANK_BYTES / 8)};
    struct lora_placing placing = placing_of(&part, tasks, 8, ranges, threads);
    CHECK(lora_cluster_place(cluster, &placing, NULL) == LORA_OK);
    for (uint32_t i = 0; i < 8; i++) check_placed(cluster, tasks + i);
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < placing.range_count; i++) {
        static uint8_t data[BANK_BYTES];
        CHECK(lora_cluster_read(cluster, 0, ranges[i].bank, ranges[i].offset, data, ranges[i].bytes,
                                NULL) == LORA_OK);
        CHECK(lora_crc32(0, data, ranges[i].bytes) == ranges[i].crc);
        bytes += ranges[i].bytes;
    }
    CHECK(bytes == 8ull * BLOCKS * 8192);
    check_hostile(cluster, &placing);
    lora_cluster_close(cluster);
    lora_emu_destroy(id);
    free(memory);
}

static void check_memory(void) {
    uint64_t bytes = (3u << 20) + 4096;
    uint8_t *buffer = lora_bench_buffer(bytes);
    CHECK(buffer && (uintptr_t)buffer % (2u << 20) == 0);
    for (uint32_t i = 0; lora_bench_reader(i); i++)
        CHECK(!lora_bench_reader_supported(i) || lora_bench_read(buffer, bytes, 3, 2, i));
    CHECK(!lora_bench_reader_supported(99) && !lora_bench_read(buffer, bytes, 65, 1, 0));
    CHECK(lora_bench_copy(buffer, bytes, 3) && !lora_bench_copy(buffer, 0, 3));
    lora_bench_free(buffer, bytes);
}

/* CRC-32 bit by bit. */
static uint32_t slow_crc(const uint8_t *at, uint64_t bytes) {
    uint32_t crc = ~0u;
    for (uint64_t i = 0; i < bytes; i++) {
        crc ^= at[i];
        for (int bit = 0; bit < 8; bit++) crc = (crc >> 1) ^ (0xedb88320u & (0u - (crc & 1)));
    }
    return ~crc;
}

/* Every length around the turns of every loop, in memory of exactly that size. */
static void check_crc(void) {
    for (uint64_t bytes = 1; bytes < 1100; bytes++) {
        uint8_t *data = (uint8_t *)malloc(bytes + 1) + 1;
        for (uint64_t i = 0; i < bytes; i++) data[i] = (uint8_t)(i * i * 31 + bytes);
        uint32_t crc = slow_crc(data, bytes);
        CHECK(lora_crc32(0, data, bytes) == crc);
        CHECK(lora_crc32(lora_crc32(0, data, bytes / 2), data + bytes / 2, bytes - bytes / 2) ==
              crc);
#if defined(__x86_64__)
        for (uint32_t i = 0; bytes % 16 == 0 && bytes >= CRC_WIDE_MIN && crc32_wide(i); i++)
            CHECK(~crc32_wide(i)(~0u, data, bytes) == crc);
        CHECK(!crc32_wide(99));
#endif
        free(data - 1);
    }
}

/* Heads and tails of a copy past the caches: all of it, and nothing else. */
static void check_stream(void) {
    static uint8_t from[STREAM_MIN + 300], to[STREAM_MIN + 300];
    for (uint64_t i = 0; i < sizeof from; i++) from[i] = (uint8_t)(i * 7 % 251 + 1);
    for (uint64_t start = 0; start < 70; start += 3)
        for (uint64_t more = 0; more < 130; more += 13) {
            uint64_t bytes = STREAM_MIN - 1 + more;
            memset(to, 0, sizeof to);
            stream_copy(to + start, from + 5, bytes);
            CHECK(!memcmp(to + start, from + 5, bytes));
            for (uint64_t i = 0; i < sizeof to; i++)
                CHECK((i >= start && i < start + bytes) == (to[i] != 0));
        }
}

int main(void) {
    check_crc();
    check_stream();
    check_packing();
    for (uint32_t threads = 1; threads <= 8; threads += threads < 4 ? 1 : 4) check_placing(threads);
    for (uint32_t axes = 0; axes < 2; axes++) check_bad(axes);
    CHECK(lora_pack_force("plain") == 0 && lora_pack_force("none") == -1);
    check_packing();
    for (uint32_t axes = 0; axes < 2; axes++) check_bad(axes);
    CHECK(lora_pack_force(NULL) == 0);
    check_memory();
    return 0;
}
