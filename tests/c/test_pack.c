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
    return (struct lora_pack_part){.name = "w",
                                   .data = data,
                                   .bytes = bytes,
                                   .rows = oi ? count : K,
                                   .columns = oi ? K : count,
                                   .count = count,
                                   .element = element,
                                   .axes = axes};
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
            CHECK(lora_pack_blocks(parts, 2, K, N, LORA_WEIGHT_FP16, blocks, BLOCKS * 8192,
                                   &failure) == LORA_OK);
            check_blocks(blocks);
            CHECK(lora_pack_blocks(parts, 2, K, N, LORA_WEIGHT_FP16, blocks, BLOCKS * 8192 - 1,
                                   &failure));
            CHECK(lora_pack_blocks(parts, 1, K, N, LORA_WEIGHT_FP16, blocks, BLOCKS * 8192, NULL));
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
        int status = lora_pack_blocks(&part, 1, K, N, LORA_WEIGHT_FP16, blocks, BLOCKS * 8192,
                                      NULL);
        CHECK(status == (at % 6 < 4 ? LORA_ERR_NAN : LORA_OK));
        store(target, value_of(k, n), LORA_SOURCE_F16);
    }
    free(blocks);
    free(memory);
}

/* INT8 and 4-bit matrices: from every layout, in memory of exactly its size, against the formulas
 * of abi.h. */
#define INPUTS 352u /* not whole blocks, whole groups of 32 */
#define GROUPS (INPUTS / 32)
#define OUTPUTS 104u
#define DEEP ((INPUTS + 127) / 128)
#define WIDE ((OUTPUTS + 31) / 32)

static uint8_t integer_at(uint64_t k, uint64_t n) { return (uint8_t)(k * 31 + n * 17 + k * n % 7); }
static uint32_t order_at(uint64_t k) { return (uint32_t)((k * 5 + 3) % INPUTS); }

static void set_nibble(uint8_t *data, uint64_t word, uint64_t place, uint8_t value) {
    data[word * 4 + place / 2] |= (uint8_t)((value & 15) << place % 2 * 4);
}

struct integer_source {
    uint32_t element, axes;
    int ordered;
};

/* Value [k][n] of the file, for outputs first .. first+count-1. */
static uint8_t *integer_data(const struct integer_source *from, uint64_t first, uint64_t count,
                             uint64_t *bytes) {
    int wide = from->element == LORA_SOURCE_I8 || from->element == LORA_SOURCE_NIBBLES;
    *bytes = INPUTS * count / (wide ? 1 : 2);
    uint8_t *data = (uint8_t *)calloc(*bytes + 1, 1) + 1;
    for (uint64_t k = 0; k < INPUTS; k++)
        for (uint64_t n = 0; n < count; n++) {
            static const uint8_t awq[] = {0, 4, 1, 5, 2, 6, 3, 7};
            uint8_t value = integer_at(k, first + n);
            if (from->element == LORA_SOURCE_I8) data[n * INPUTS + k] = value;
            else if (from->element == LORA_SOURCE_NIBBLES) data[n * INPUTS + k] = value & 15;
            else if (from->element == LORA_SOURCE_AWQ)
                set_nibble(data, k * (count / 8) + n / 8, awq[n % 8], value);
            else if (from->axes == LORA_AXES_OI)
                set_nibble(data, n * (INPUTS / 8) + k / 8, k % 8, value);
            else set_nibble(data, k / 8 * count + n, k % 8, value);
        }
    return data;
}

static struct lora_pack_part integer_part(const struct integer_source *from, uint64_t first,
                                          uint64_t count) {
    struct lora_pack_part part = {
        .name = "w", .count = count, .element = from->element, .axes = from->axes};
    int wide = from->element == LORA_SOURCE_I8 || from->element == LORA_SOURCE_NIBBLES;
    int oi = from->axes == LORA_AXES_OI, awq = from->element == LORA_SOURCE_AWQ;
    uint64_t inputs = wide || awq ? INPUTS : INPUTS / 8, outputs = awq ? count / 8 : count;
    part.data = integer_data(from, first, count, &part.bytes);
    part.rows = oi ? outputs : inputs;
    part.columns = oi ? inputs : outputs;
    if (from->element == LORA_SOURCE_I8) return part;
    uint16_t *scales = malloc(part.scale_bytes = count * GROUPS * 2);
    uint8_t *zeros = malloc(part.zero_bytes = count * GROUPS);
    for (uint64_t n = 0; n < count; n++)
        for (uint64_t g = 0; g < GROUPS; g++) {
            scales[n * GROUPS + g] = (uint16_t)((first + n) * 97 + g * 13);
            zeros[n * GROUPS + g] = (uint8_t)((first + n + g * 3) % 16);
        }
    part.scales = scales;
    part.zeros = zeros;
    if (!from->ordered) return part;
    uint32_t *order = malloc(part.order_bytes = INPUTS * sizeof *order);
    for (uint64_t k = 0; k < INPUTS; k++) order[k] = order_at(k);
    part.order = order;
    return part;
}

static void free_part(const struct lora_pack_part *part) {
    free((uint8_t *)(uintptr_t)part->data - 1);
    free((void *)(uintptr_t)part->scales);
    free((void *)(uintptr_t)part->zeros);
    free((void *)(uintptr_t)part->order);
}

static void check_int8_block(const uint8_t *block, uint64_t deep, uint64_t tile) {
    for (uint64_t i = 0; i < 128; i++)
        for (uint64_t n = 0; n < 32; n++) {
            uint64_t k = deep * 128 + i, column = tile * 32 + n;
            uint8_t value = k < INPUTS && column < OUTPUTS ? integer_at(k, column) : 0;
            CHECK(block[i / 4 * 128 + n * 4 + i % 4] == value);
        }
}

static void check_int4_block(const uint8_t *block, uint64_t deep, uint64_t tile, int ordered) {
    for (uint64_t i = 0; i < 128; i++)
        for (uint64_t n = 0; n < 32; n++) {
            uint64_t k = deep * 128 + i, column = tile * 32 + n;
            int inside = k < INPUTS && column < OUTPUTS;
            uint8_t value = inside ? integer_at(ordered ? order_at(k) : k, column) & 15 : 0;
            CHECK((block[i / 8 * 128 + n * 4 + i % 4] >> i / 4 % 2 * 4 & 15) == value);
            if (i % 32) continue;
            uint16_t scale;
            memcpy(&scale, block + 2048 + i / 32 * 64 + n * 2, 2);
            uint8_t zero = block[2048 + 4 * 64 + i / 32 * 16 + n / 2] >> n % 2 * 4 & 15;
            CHECK(scale == (inside ? (uint16_t)(column * 97 + k / 32 * 13) : 0));
            CHECK(zero == (inside ? (column + k / 32 * 3) % 16 : 0));
        }
}

static void check_integer(const struct integer_source *from) {
    int eight = from->element == LORA_SOURCE_I8;
    uint32_t type = eight ? LORA_WEIGHT_INT8 : LORA_WEIGHT_W4A8 | 5u << LORA_WEIGHT_GROUP_SHIFT;
    uint64_t size = lora_pack_block_bytes(type), bytes = DEEP * WIDE * size;
    struct lora_pack_part parts[2] = {integer_part(from, 0, 56), integer_part(from, 56, 48)};
    uint8_t *blocks = malloc(bytes);
    memset(blocks, 0xff, bytes);
    CHECK(lora_pack_blocks(parts, 2, INPUTS, OUTPUTS, type, blocks, bytes, NULL) == LORA_OK);
    for (uint64_t j = 0; j < DEEP * WIDE; j++)
        if (eight) check_int8_block(blocks + j * size, j % DEEP, j / DEEP);
        else check_int4_block(blocks + j * size, j % DEEP, j / DEEP, from->ordered);
    parts[1].bytes--;
    CHECK(lora_pack_blocks(parts, 2, INPUTS, OUTPUTS, type, blocks, bytes, NULL));
    free_part(parts);
    free_part(parts + 1);
    free(blocks);
}

/* Sources in exactly as much memory as they need: any bytes become blocks or are refused as not
 * finite, and nothing else is read. */
static void check_gguf(uint32_t element, uint64_t inputs, uint64_t row_bytes, uint32_t block) {
    enum { ROWS = 45 };
    uint32_t type = LORA_WEIGHT_GGUF | block << LORA_WEIGHT_GROUP_SHIFT;
    uint64_t size = lora_pack_block_bytes(type), bytes = (inputs + 127) / 128 * 2 * size;
    uint8_t *raw = malloc(ROWS * row_bytes), *blocks = malloc(bytes);
    struct lora_pack_part part = {.name = "a",
                                  .data = raw,
                                  .bytes = ROWS * row_bytes,
                                  .rows = ROWS,
                                  .columns = row_bytes,
                                  .count = ROWS,
                                  .element = element,
                                  .axes = LORA_AXES_OI};
    CHECK(size != 0);
    memset(raw, 0x11, ROWS * row_bytes);
    CHECK(lora_pack_blocks(&part, 1, inputs, ROWS, type, blocks, bytes, NULL) == LORA_OK);
    memset(raw, 0xff, ROWS * row_bytes); /* scales that are NaN */
    CHECK(lora_pack_blocks(&part, 1, inputs, ROWS, type, blocks, bytes, NULL) == LORA_ERR_NAN);
    CHECK(lora_pack_blocks(&part, 1, inputs + 1, ROWS, type, blocks, bytes, NULL));
    part.bytes--;
    CHECK(lora_pack_blocks(&part, 1, inputs, ROWS, type, blocks, bytes, NULL));
    free(raw);
    free(blocks);
}

static void check_all_gguf(void) {
    check_gguf(LORA_SOURCE_Q8_0, 160, 5 * 34, LORA_GGUF_Q8_0);
    check_gguf(LORA_SOURCE_Q5_0, 96, 3 * 22, LORA_GGUF_Q8_0);
    check_gguf(LORA_SOURCE_Q5_0, 160, 5 * 22, LORA_GGUF_Q5_0);
    check_gguf(LORA_SOURCE_Q4_0, 32, 18, LORA_GGUF_Q5_0);
    check_gguf(LORA_SOURCE_Q4_0, 160, 5 * 18, LORA_GGUF_Q4_0);
    check_gguf(LORA_SOURCE_IQ4_NL, 96, 3 * 18, LORA_GGUF_IQ4_NL);
    check_gguf(LORA_SOURCE_IQ4_NL, 224, 7 * 18, LORA_GGUF_Q8_0);
    check_gguf(LORA_SOURCE_Q4_1, 160, 5 * 20, LORA_GGUF_Q4_1);
    check_gguf(LORA_SOURCE_Q5_1, 160, 5 * 24, LORA_GGUF_Q5_1);
    check_gguf(LORA_SOURCE_Q2_K, 512, 2 * 84, LORA_GGUF_K_MIXED);
    check_gguf(LORA_SOURCE_Q3_K, 512, 2 * 110, LORA_GGUF_Q6_K);
    check_gguf(LORA_SOURCE_Q4_K, 512, 2 * 144, LORA_GGUF_Q4_K);
    check_gguf(LORA_SOURCE_Q4_K, 256, 144, LORA_GGUF_K_MIXED);
    check_gguf(LORA_SOURCE_Q5_K, 512, 2 * 176, LORA_GGUF_Q5_K);
    check_gguf(LORA_SOURCE_Q6_K, 512, 2 * 210, LORA_GGUF_Q6_K);
}

static const struct integer_source integer_sources[] = {
    {LORA_SOURCE_I8, LORA_AXES_OI, 0},    {LORA_SOURCE_NIBBLES, LORA_AXES_OI, 0},
    {LORA_SOURCE_WORDS, LORA_AXES_OI, 0}, {LORA_SOURCE_WORDS, LORA_AXES_OI, 1},
    {LORA_SOURCE_WORDS, LORA_AXES_IO, 0}, {LORA_SOURCE_WORDS, LORA_AXES_IO, 1},
    {LORA_SOURCE_AWQ, LORA_AXES_IO, 0},   {LORA_SOURCE_AWQ, LORA_AXES_IO, 1},
};

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
                                           .weight_type = LORA_WEIGHT_FP16,
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

/* Many threads on 4-bit tiles, each task in the middle of a matrix of which it has the columns that
 * it places: what the board holds is what one thread packs. */
static void check_placing_integer(void) {
    uint32_t id, type = LORA_WEIGHT_W4A16 | 5u << LORA_WEIGHT_GROUP_SHIFT;
    uint64_t size = lora_pack_block_bytes(type);
    struct lora_cluster *cluster = open_board(&id);
    struct lora_range ranges[8 * BANKS];
    struct lora_pack_part parts[WIDE];
    struct lora_pack_task tasks[WIDE];
    for (uint32_t i = 0; i < WIDE; i++) {
        uint64_t width = i + 1 < WIDE ? 32 : OUTPUTS % 32;
        parts[i] = integer_part(integer_sources + 4, 32 * i, width);
        tasks[i] = (struct lora_pack_task){.part_first = i,
                                           .part_count = 1,
                                           .k = INPUTS,
                                           .n = OUTPUTS,
                                           .first = i,
                                           .count = 1,
                                           .column_first = 32 * i,
                                           .partial = 1,
                                           .merge = 2,
                                           .bank_count = BANKS,
                                           .weight_type = type};
    }
    struct lora_placing placing = placing_of(parts, tasks, WIDE, ranges, 4);
    placing.part_count = WIDE;
    CHECK(lora_cluster_place(cluster, &placing, NULL) == LORA_OK);
    for (uint64_t j = 0; j < DEEP * WIDE; j++) {
        uint8_t block[LORA_BLOCK_BYTES_INT4_32];
        uint64_t request = j / 2;
        CHECK(lora_cluster_read(cluster, 0, (uint32_t)(request % BANKS),
                                (request / BANKS * 2 + j % 2) * size, block, size,
                                NULL) == LORA_OK);
        check_int4_block(block, j % DEEP, j / DEEP, 0);
    }
    tasks[1].column_first = 64; /* behind what it places */
    CHECK(lora_cluster_place(cluster, &placing, NULL) == LORA_ERR_ARGUMENT);
    tasks[1].column_first = 32;
    tasks[1].partial = 0;
    CHECK(lora_cluster_place(cluster, &placing, NULL) == LORA_ERR_ARGUMENT);
    for (uint32_t i = 0; i < WIDE; i++) free_part(parts + i);
    lora_cluster_close(cluster);
    lora_emu_destroy(id);
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
    for (uint32_t i = 0; i < sizeof integer_sources / sizeof integer_sources[0]; i++)
        check_integer(integer_sources + i);
    check_all_gguf();
    check_placing_integer();
    check_memory();
    return 0;
}
