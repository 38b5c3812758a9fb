/* Column tiles of a matrix, and rows of a table, from the tensors that they are made of. */
#include <inttypes.h>
#include <string.h>

#include "pack.h"

#define TILES 32 /* that are packed together: as many lines of the file at once */
#define GROUP                                                                                      \
    8 /* inputs of a tile before the next tile's: fewer blocks at once                             \
         in the first cache, where all lie in the same few sets */

static uint64_t min(uint64_t a, uint64_t b) { return a < b ? a : b; }

static int task_is_oi(const struct lora_pack_part *parts, const struct lora_pack_task *task) {
    return parts[task->part_first].axes == LORA_AXES_OI;
}

/* Elements at [row, column ..] of the file. */
static int convert(uint16_t *out, const struct lora_pack_part *part, uint64_t row, uint64_t column,
                   uint64_t count, struct lora_failure *failure) {
    if (pack_is_gguf(part->element))
        return pack_gguf_halves(out, part, row, column, count, failure);
    uint64_t size = pack_element_bytes(part->element);
    const uint8_t *at = (const uint8_t *)part->data + (row * part->columns + column) * size;
    if (!pack_halves(out, at, count, part->element)) return LORA_OK;
    double value = 0;
    column += pack_find_bad(at, count, part->element, &value);
    return pack_refuse(part, row, column, value, failure);
}

/* One input of the columns column .. column+count-1, file's rows being inputs. */
static int convert_line(uint16_t *line, const struct lora_pack_part *parts,
                        const struct lora_pack_task *task, uint64_t row, uint64_t column,
                        uint64_t count, struct lora_failure *failure) {
    while (count) {
        const struct lora_pack_part *part;
        uint64_t output, run = pack_run(parts, task, column, count, &part, &output);
        int status = convert(line, part, row, output, run, failure);
        if (status) return status;
        line += run;
        column += run;
        count -= run;
    }
    return LORA_OK;
}

/* A tile whose columns lie in one part: where its input 0 is in the file, and what an input more
 * is there. `at` is NULL for a tile that is cut by two parts or by the matrix's end. */
struct tile_source {
    const struct lora_pack_part *part;
    const uint8_t *at;
    uint64_t stride, output;
};

static struct tile_source source_of(const struct lora_pack_part *parts,
                                    const struct lora_pack_task *task, uint64_t tile) {
    struct tile_source found = {0};
    uint64_t column = tile * LORA_BLOCK_N;
    if (task->n - column < LORA_BLOCK_N) return found;
    if (pack_run(parts, task, column, LORA_BLOCK_N, &found.part, &found.output) < LORA_BLOCK_N)
        return found;
    uint64_t size = pack_element_bytes(found.part->element);
    found.stride = found.part->columns * size;
    found.at = (const uint8_t *)found.part->data +
               (task_is_oi(parts, task) ? found.output * found.stride : found.output * size);
    return found;
}

/* Input k of one tile. */
static int tile_input(uint16_t *row, const struct lora_pack_part *parts,
                      const struct lora_pack_task *task, const struct tile_source *source,
                      uint64_t tile, uint64_t k, struct lora_failure *failure) {
    if (source->at) {
        const uint8_t *at = source->at + k * source->stride;
        __builtin_prefetch(at + PACK_PREFETCH *
                                    source->stride); /* rows are too short for the hardware's */
        if (!(source->part->element == LORA_SOURCE_F16
                  ? pack_copy(row, at)
                  : pack_halves(row, at, LORA_BLOCK_N, source->part->element)))
            return LORA_OK;
    }
    uint64_t column = tile * LORA_BLOCK_N;
    memset(row, 0, LORA_BLOCK_N * sizeof row[0]);
    return convert_line(row, parts, task, k, column, min(task->n - column, LORA_BLOCK_N), failure);
}

/* `count` inputs of a tile at once where they are FP16 and finite: 0 where not all are. */
static int group_io(uint16_t *rows, const struct tile_source *source, uint64_t k, uint64_t count) {
    return source->at && source->part->element == LORA_SOURCE_F16 &&
           !pack_lines(rows, source->at + k * source->stride, source->stride, count);
}

/* At most TILES tiles, whose inputs are lines of the file. */
static int tiles_io(const struct lora_pack_part *parts, const struct lora_pack_task *task,
                    uint64_t first, uint64_t count, void *const *blocks,
                    struct lora_failure *failure) {
    struct tile_source source[TILES];
    uint64_t k_blocks = (task->k + LORA_BLOCK_K - 1) / LORA_BLOCK_K;
    for (uint64_t tile = 0; tile < count; tile++)
        source[tile] = source_of(parts, task, first + tile);
    for (uint64_t from = 0; from < task->k; from += GROUP)
        for (uint64_t tile = 0; tile < count; tile++) {
            uint16_t *block = blocks[tile * k_blocks + from / LORA_BLOCK_K];
            uint64_t to = min(task->k, from + GROUP);
            if (group_io(block + from % LORA_BLOCK_K * LORA_BLOCK_N, source + tile, from,
                         to - from))
                continue;
            for (uint64_t k = from; k < to; k++) {
                int status = tile_input(block + k % LORA_BLOCK_K * LORA_BLOCK_N, parts, task,
                                        source + tile, first + tile, k, failure);
                if (status) return status;
            }
        }
    uint64_t rest = task->k % LORA_BLOCK_K * LORA_BLOCK_N;
    for (uint64_t tile = 0; tile < count && rest; tile++)
        memset((uint16_t *)blocks[(tile + 1) * k_blocks - 1] + rest, 0,
               LORA_BLOCK_BYTES_FP16 - rest * sizeof(uint16_t));
    return LORA_OK;
}

/* One block of a tile whose columns are lines of the file, through a copy in which they are FP16
 * and padded. */
static int block_oi(const struct lora_pack_part *parts, const struct lora_pack_task *task,
                    uint64_t tile, uint64_t k, uint16_t *block, struct lora_failure *failure) {
    uint16_t columns[LORA_BLOCK_N * LORA_BLOCK_K];
    uint64_t column = tile * LORA_BLOCK_N, width = min(task->n - column, LORA_BLOCK_N);
    uint64_t depth = min(task->k - k, LORA_BLOCK_K);
    if (width < LORA_BLOCK_N || depth < LORA_BLOCK_K) memset(columns, 0, sizeof columns);
    for (uint64_t c = 0; c < width; c++) {
        const struct lora_pack_part *part;
        uint64_t output;
        pack_run(parts, task, column + c, 1, &part, &output);
        int status = convert(columns + c * LORA_BLOCK_K, part, output, k, depth, failure);
        if (status) return status;
    }
    pack_transpose(block, (const uint8_t *)columns, LORA_BLOCK_K * sizeof columns[0]);
    return LORA_OK;
}

static int tile_oi(const struct lora_pack_part *parts, const struct lora_pack_task *task,
                   uint64_t tile, void *const *blocks, struct lora_failure *failure) {
    struct tile_source source = source_of(parts, task, tile);
    int direct = source.at && source.part->element == LORA_SOURCE_F16;
    for (uint64_t k = 0, block = 0; k < task->k; k += LORA_BLOCK_K, block++) {
        if (direct && task->k - k >= LORA_BLOCK_K &&
            !pack_transpose(blocks[block], source.at + 2 * k, source.stride))
            continue;
        int status = block_oi(parts, task, tile, k, blocks[block], failure);
        if (status) return status;
    }
    return LORA_OK;
}

int pack_tiles(const struct lora_pack_part *parts, const struct lora_pack_task *task,
               uint64_t first, uint64_t count, void *const *blocks, struct lora_failure *failure) {
    uint64_t k_blocks = (task->k + LORA_BLOCK_K - 1) / LORA_BLOCK_K;
    int oi = task_is_oi(parts, task);
    if (task->weight_type != LORA_WEIGHT_FP16) {
        int status = LORA_OK;
        int is_gguf = (task->weight_type & LORA_WEIGHT_TYPE_MASK) == LORA_WEIGHT_GGUF;
        int (*pack)(const struct lora_pack_part *, const struct lora_pack_task *, uint64_t,
                    void *const *, struct lora_failure *) = is_gguf ? pack_gguf : pack_integer;
        for (uint64_t done = 0; done < count && !status; done++)
            status = pack(parts, task, first + done, blocks + done * k_blocks, failure);
        return status;
    }
    for (uint64_t done = 0; done < count;) {
        uint64_t now = oi ? 1 : min(count - done, TILES);
        void *const *at = blocks + done * k_blocks;
        int status = oi ? tile_oi(parts, task, first + done, at, failure)
                        : tiles_io(parts, task, first + done, now, at, failure);
        if (status) return status;
        done += now;
    }
    return LORA_OK;
}

int pack_rows(const struct lora_pack_part *parts, const struct lora_pack_task *task, uint64_t first,
              uint64_t count, uint8_t *rows, struct lora_failure *failure) {
    for (uint64_t r = 0; r < count; r++, rows += task->row_bytes) {
        void *line = rows; /* rows are whole lines of an aligned buffer */
        int status = convert_line(line, parts, task, first + r, 0, task->n, failure);
        if (status) return status;
        memset(rows + 2 * task->n, 0, task->row_bytes - 2 * task->n);
    }
    return LORA_OK;
}

int lora_pack_blocks(const struct lora_pack_part *parts, uint32_t part_count, uint64_t k,
                     uint64_t n, uint32_t weight_type, void *blocks, uint64_t bytes,
                     struct lora_failure *failure) {
    struct lora_failure spare;
    uint64_t tiles = n / LORA_BLOCK_N + !!(n % LORA_BLOCK_N);
    const struct lora_pack_task task = {.kind = LORA_PACK_MATRIX,
                                        .part_count = part_count,
                                        .k = k,
                                        .n = n,
                                        .count = tiles,
                                        .weight_type = weight_type};
    failure = lora_failure_begin(failure, &spare);
    if (!parts || !blocks) return lora_fail(failure, LORA_ERR_ARGUMENT, "packing: no memory given");
    int status = pack_check(parts, part_count, &task, failure);
    if (status) return status;
    uint64_t k_blocks = (k + LORA_BLOCK_K - 1) / LORA_BLOCK_K;
    uint64_t size = lora_pack_block_bytes(weight_type);
    if (k_blocks > LORA_PACK_K_BLOCKS || bytes != k_blocks * tiles * size)
        return lora_fail(failure, LORA_ERR_ARGUMENT,
                         "packing: %" PRIu64 " blocks of %" PRIu64 " B asked for in %" PRIu64 " B",
                         k_blocks * tiles, size, bytes);
    uint8_t *at = blocks;
    void *tile_blocks[LORA_PACK_K_BLOCKS];
    for (uint64_t tile = 0; tile < tiles && !status; tile++) {
        for (uint64_t b = 0; b < k_blocks; b++, at += size) tile_blocks[b] = at;
        status = pack_tiles(parts, &task, tile, 1, tile_blocks, failure);
    }
    return status;
}
