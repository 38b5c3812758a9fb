/* Matmul y = FP16(x*W + bias), or FP32. An item is a run of column tiles over all rows: no two
 * items touch the same columns of y. docs/numbers.md, 3.3. */
#include <stdbool.h>

#include "isa/gguf.h"
#include "isa/half.h"
#include "job.h"
#include "matrix.h"
#include "isa/segments.h"

#define ROUNDS 4 /* of items, one a thread in each; more of long work */
#define MOST_ROUNDS 8
#define LAST_NS 4096              /* shorter items are not worth a round */
#define SHORT_NS 65536            /* by the measure of the next two: a megabyte of weights */
#define SHORT_INTEGER_NS 16384    /* the same of integer weights, where only rounds are at stake */
#define LONG_PERCENT 88           /* of an integer matmul: the share of the threads' first items */
#define WEIGHT_BYTES_PER_NS 16    /* one thread reads about so many */
#define MULTIPLICATIONS_PER_NS 40 /* of many rows */
#define OWN_BLOCKS 32 /* of a tile: so many each thread keeps on its stack, with as long a row */
#define OWN_COLUMNS (OWN_BLOCKS * LORA_BLOCK_K)

/* What one thread has of a job: nobody else's cache is asked for it. */
struct own {
    struct lora_job *job;
    uint32_t thread;
    const float *x; /* [k] of a single row, panels of several */
    const uint16_t *lists[2 * (OWN_BLOCKS + 1)];
    _Alignas(LORA_LINE_BYTES) float row[OWN_COLUMNS];
};

/* Models with such matmuls fit the cache, or nearly so. */
static bool is_short(const struct lora_job *job) { return job->work <= SHORT_NS; }

/* FP32 sums of one tile, the tree included: sums[row][32], with room for PANEL_LEVELS of them. */
static void multiply_tile(const struct own *own, const uint16_t *const *blocks,
                          const uint16_t *const *next, float *sums) {
    const struct lora_job *job = own->job;
    const struct lora_variant *variant = job->variant;
    const uint32_t *starts = job->matrix.starts;
    if (job->matrix.type == LORA_WEIGHT_GGUF && job->rows == 1) {
        const struct gguf_tile tile = {own->x, starts, (const uint8_t *const *)(const void *)blocks,
                                       (const uint8_t *const *)(const void *)next,
                                       matrix_k_blocks(job->matrix.command)};
        variant->gguf->row(matrix_gguf_block(&job->matrix), &tile, sums);
        return;
    }
    if (job->rows == 1) {
        (is_short(job) ? variant->row_cached : variant->row)(own->x, starts, blocks, next, sums);
        return;
    }
    if (job->rows <= variant->few_rows) {
        variant->few(own->x, job->rows, starts, blocks, next, sums);
        return;
    }
    _Alignas(LORA_LINE_BYTES) float work[LORA_BLOCK_K * LORA_BLOCK_N];
    lora_panels_multiply(variant, own->x, job->rows, starts, blocks, blocks + 1, work, sums);
}

static void add_bias(const struct lora_job *job, const uint16_t *bias, uint32_t columns,
                     float *sums) {
    float values[LORA_BLOCK_N];
    for (uint32_t i = columns; i < LORA_BLOCK_N; i++) values[i] = 0; /* not stored */
    job->variant->halves_to_floats(bias, columns, values);
    job->variant->add_biases(sums, job->rows, values);
}

static uint32_t store_floats(const float *restrict values, uint32_t count, float *restrict target) {
    uint32_t bad = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t bits = bits_of_float(values[i]);
        bad += (bits & 0x7f800000) == 0x7f800000;
        target[i] = (bits & 0x7fffffff) > 0x7f800000 ? float_of_bits(LORA_FP32_NAN) : values[i];
    }
    return bad;
}

static void store_tile(struct lora_job *job, uint32_t first, uint32_t columns, const float *sums) {
    const struct matrix_job *m = &job->matrix;
    for (uint32_t row = 0; row < job->rows; row++, sums += LORA_BLOCK_N) {
        uint32_t bad = m->command->y_type == LORA_FP32
                           ? store_floats(sums, columns, float_row(m->y, row) + first)
                           : job->variant->floats_to_halves(sums, columns,
                                                            half_row(m->y, row) + first);
        job_count_nonfinite(job, row, bad);
    }
}

/* What follows the sums comes from memory while they are made. */
static void fetch_columns(const struct matrix_job *m, uint32_t first) {
    if (m->bias) __builtin_prefetch(m->bias + first);
    if (!matrix_is_integer(m)) return;
    __builtin_prefetch(m->scales + first);
    __builtin_prefetch(m->scales + first + LORA_BLOCK_N / 2);
}

/* blocks: the tile's, then one more, which matmuls of many rows prefetch. */
static int run_tile(const struct own *own, const uint16_t *const *blocks,
                    const uint16_t *const *next, uint32_t tile) {
    struct lora_job *job = own->job;
    const struct matrix_job *m = &job->matrix;
    uint32_t first = tile * LORA_BLOCK_N, left = m->command->n - first;
    uint32_t columns = left < LORA_BLOCK_N ? left : LORA_BLOCK_N;
    _Alignas(LORA_LINE_BYTES) float parts[PANEL_LEVELS * LORA_MAX_ROWS * LORA_BLOCK_N];
    fetch_columns(m, first);
    if (matrix_is_widened(job)) blocks = next = lora_quantized_widen(job, own->thread, blocks);
    if (matrix_is_integer(m)) lora_quantized_multiply(job, tile, blocks, next, parts);
    else multiply_tile(own, blocks, next, parts);
    if (m->bias) add_bias(job, m->bias + first, columns, parts);
    int status = m->command->adapter ? lora_adapter_up(job, tile, columns, parts) : LORA_OK;
    if (status == LORA_OK) store_tile(job, first, columns, parts);
    return status;
}

/* A round is one item a thread. Each round takes half of what is left and the last one all, so the
 * threads end together. Small weights begin with a long round: it keeps their stream from memory
 * unbroken. */
static uint64_t left_after(const struct lora_job *job, uint64_t tiles, uint32_t round) {
    if (round == 0) return tiles;
    if (job->matrix.type == LORA_WEIGHT_FP16) return tiles >> round;
    return (tiles - tiles * LONG_PERCENT / 100) >> (round - 1);
}

static uint64_t round_start(const struct lora_job *job, uint64_t tiles, uint32_t round) {
    return round < job->items / job->threads ? tiles - left_after(job, tiles, round) : tiles;
}

static uint32_t item_start(const struct lora_job *job, uint64_t tiles, uint32_t item) {
    uint32_t threads = job->threads, round = item / threads;
    if (job->items % threads || job->items <= threads) return (uint32_t)(tiles * item / job->items);
    uint64_t start = round_start(job, tiles, round);
    uint64_t length = round_start(job, tiles, round + 1) - start;
    return (uint32_t)(start + length * (item % threads) / threads);
}

static int run(struct lora_job *job, uint32_t item, uint32_t thread);

uint32_t lora_matrix_first_blocks(const struct lora_job *job, uint32_t thread,
                                  const uint16_t **blocks, uint32_t max) {
    uint64_t tiles = matrix_tiles(job->matrix.command);
    uint32_t found = 0;
    for (uint32_t item = thread; item < job->items; item += job->threads)
        for (uint32_t index = item_start(job, tiles, item);
             index < item_start(job, tiles, item + 1) && found < max; index++)
            found += lora_matrix_some_blocks(job, lora_matrix_tile_at(&job->matrix, index),
                                             blocks + found, max - found);
    return found;
}

/* The job whose item a thread takes next when all threads take one in turn; the item's number goes
 * to `item`. */
static const struct lora_job *job_after(const struct lora_job *job, uint32_t *item) {
    const struct lora_matrix *c = job->matrix.command;
    *item += job->threads;
    while (job && *item >= job->items) {
        *item -= job->items;
        job = job->following;
    }
    bool alike = job && job->run == run && job->matrix.type == LORA_WEIGHT_FP16 &&
                 job->matrix.command->k == c->k;
    return alike ? job : NULL;
}

/* Of the matmul that this thread runs next by itself, as many blocks as this one's tiles have. */
static bool take_first_blocks(const struct lora_job *job, const uint16_t **blocks) {
    const struct matrix_job *m = &job->matrix;
    if (m->after_count == 0) return false;
    for (uint32_t i = 0; i < matrix_k_blocks(m->command); i++)
        blocks[i] = m->after[i < m->after_count ? i : m->after_count - 1];
    return true;
}

/* The blocks to be fetched while an item's last tile is read. */
static bool find_blocks_after(const struct lora_job *job, uint32_t item, const uint16_t **blocks) {
    const struct lora_job *after = job_after(job, &item);
    if (!after) return take_first_blocks(job, blocks);
    uint32_t index = item_start(after, matrix_tiles(after->matrix.command), item);
    uint32_t tile = lora_matrix_tile_at(&after->matrix, index);
    return lora_matrix_find_blocks(after, tile, blocks) == LORA_OK;
}

/* Each thread widens the row itself: in FP32 it would read twice the bytes from another core's
 * cache. Not where y would be written over x. */
static bool has_own_row(const struct lora_job *job) {
    const struct matrix_job *m = &job->matrix;
    uint32_t k = m->command->k;
    return job->rows == 1 && k <= OWN_COLUMNS && matrix_y_is_apart(m, 2ull * k) &&
           !matrix_is_integer(m);
}

static void take_row(struct own *own) {
    const struct lora_job *job = own->job;
    own->x = job->matrix.x;
    if (!job->matrix.own_row) return;
    job->variant->halves_to_floats(half_row(job->matrix.x_rows, 0), job->matrix.command->k,
                                   own->row);
    own->x = own->row;
}

/* Two lists of blocks alternate: this tile's and the next one's. */
static int run(struct lora_job *job, uint32_t item, uint32_t thread) {
    struct own own;
    own.job = job;
    own.thread = thread;
    take_row(&own);
    const struct lora_matrix *command = job->matrix.command;
    uint32_t count = matrix_k_blocks(command);
    uint64_t stride = (uint64_t)count + 1, tiles = matrix_tiles(command);
    const uint16_t **blocks = count <= OWN_BLOCKS ? own.lists
                                                  : job->matrix.lists + 2 * stride * thread;
    const uint16_t **next = blocks + stride;
    uint32_t index = item_start(job, tiles, item), end = item_start(job, tiles, item + 1);
    uint32_t tile = lora_matrix_tile_at(&job->matrix, index);
    int status = lora_matrix_find_blocks(job, tile, blocks);
    for (; index < end && status == LORA_OK; index++) {
        uint32_t following = tile;
        bool more = index + 1 < end;
        if (more) {
            following = matrix_tile_after(&job->matrix, tile);
            status = lora_matrix_next_blocks(job, tile, blocks, following, next);
        } else {
            more = find_blocks_after(job, item, next);
        }
        const uint16_t **then = more && status == LORA_OK ? next : blocks;
        blocks[count] = then[0];
        if (status == LORA_OK) status = run_tile(&own, blocks, then, tile);
        next = blocks;
        blocks = then;
        tile = following;
    }
    return status;
}

static int find_operands(struct lora_job *job) {
    struct matrix_job *m = &job->matrix;
    const struct lora_matrix *c = m->command;
    uint32_t size = c->y_type == LORA_FP32 ? 4 : 2;
    uint32_t x_size = matrix_is_integer(m) ? 1 : 2;
    uint64_t x_bytes = matrix_is_integer(m) ? lora_quantized_row_bytes(m) : 2ull * c->k;
    m->x_rows = call_operand(job->call, c->x_bank, c->x_offset, c->x_stride, x_bytes,
                             m->scaled_rows ? 4 : x_size);
    uint64_t y_bytes = (uint64_t)size * c->n;
    m->y = call_operand(job->call, c->y_bank, c->y_offset, c->y_stride, y_bytes, size);
    m->bias = NULL;
    if (matrix_is_integer(m) && lora_quantized_scales(job) != LORA_OK) return LORA_ERR_ADDRESS;
    if (!matrix_is_integer(m) && c->bias_bank != LORA_NO_BANK) {
        uint64_t offset = (uint64_t)c->bias_line * LORA_LINE_BYTES;
        m->bias = call_at(job->call, c->bias_bank, offset, 2ull * c->n, 2);
        if (!m->bias) return LORA_ERR_ADDRESS;
    }
    if (c->adapter) {
        m->h = call_operand(job->call, LORA_BANK_ONCHIP, c->h_offset, c->h_stride,
                            2ull * job->call->list->adapter_columns, 2);
        if (!m->h.base) return LORA_ERR_ADDRESS;
    }
    return m->x_rows.base && m->y.base ? LORA_OK : LORA_ERR_ADDRESS;
}

static void fill_panel(void *context, uint32_t panel, uint32_t thread) {
    const struct lora_job *job = context;
    const struct matrix_job *m = &job->matrix;
    (void)thread;
    lora_panel_fill(job->variant, m->x_rows, job->rows, m->command->k, panel, m->x);
}

/* Working memory that threads do not keep on their stacks: pointers to blocks, a set a thread, and
 * the rows in FP32, which all read. */
static int allocate(struct lora_job *job) {
    struct matrix_job *m = &job->matrix;
    m->own_row = has_own_row(job);
    m->x = NULL;
    uint32_t k = m->command->k, blocks = matrix_k_blocks(m->command);
    uint64_t pointers = blocks <= OWN_BLOCKS ? 0 : 2 * ((uint64_t)blocks + 1) * job->threads;
    uint64_t bytes = padded_lines(pointers * sizeof(uint16_t *));
    uint64_t quantized = padded_lines(lora_quantized_bytes(job));
    uint64_t floats = job->rows == 1 ? k : panel_floats(job->rows, k);
    if (matrix_is_integer(m) || m->own_row) floats = 0;
    if (bytes + quantized + floats == 0) return LORA_OK;
    uint8_t *memory = lora_job_memory(job, bytes + quantized + floats * sizeof(float));
    if (!memory) return LORA_ERR_MEMORY;
    m->lists = (const uint16_t **)(void *)memory;
    lora_quantized_fill(job, memory + bytes);
    if (floats == 0) return LORA_OK;
    m->x = (float *)(void *)(memory + bytes + quantized);
    if (job->rows == 1) job->variant->halves_to_floats(half_row(m->x_rows, 0), k, m->x);
    else lora_job_share(job, (uint64_t)job->rows * k, panel_count(job->rows), fill_panel);
    return LORA_OK;
}

/* One round where later jobs make up for a late thread, or where the work is too short to share
 * again. Else so many that the last items are short. */
static uint32_t rounds_of(const struct lora_job *job, uint32_t tiles) {
    uint32_t rounds = ROUNDS;
    bool is_integer = job->matrix.type != LORA_WEIGHT_FP16;
    if (job->following || job->work <= (is_integer ? SHORT_INTEGER_NS : SHORT_NS)) return 1;
    while (rounds < MOST_ROUNDS &&
           job->work * left_after(job, tiles, rounds) > (uint64_t)LAST_NS * tiles * job->threads)
        rounds++;
    return rounds;
}

/* An item is a run of tiles, so its thread knows what to prefetch. */
static void cut(struct lora_job *job) {
    const struct lora_matrix *c = job->matrix.command;
    uint64_t tile_bytes = (uint64_t)matrix_k_blocks(c) * job->matrix.block_bytes;
    uint64_t multiplications = (uint64_t)job->rows * c->k * c->n / MULTIPLICATIONS_PER_NS;
    uint32_t tiles = matrix_tiles(c);
    job->work = tiles * tile_bytes / WEIGHT_BYTES_PER_NS;
    if (multiplications > job->work) job->work = multiplications;
    uint32_t max = rounds_of(job, tiles) * job->threads;
    lora_matrix_order(&job->matrix, job->call);
    job->items = tiles < max ? tiles : max;
}

int lora_matrix_begin(struct lora_job *job) {
    const struct lora_matrix *c = (const struct lora_matrix *)(const void *)job->call->command;
    job->matrix.command = c;
    job->matrix.after_count = 0;
    if (c->k == 0 || c->k > MAX_COLUMNS || c->n > MAX_COLUMNS || c->bank_count == 0 ||
        c->merge == 0)
        return LORA_ERR_SIZE;
    int status = lora_quantized_type(&job->matrix);
    job->matrix.scaled_rows = c->flags & LORA_FLAG_ROW_SCALES;
    if (status == LORA_OK && job->matrix.scaled_rows && !matrix_is_integer(&job->matrix))
        status = LORA_ERR_OPCODE;
    if (status == LORA_OK) status = find_operands(job);
    if (status == LORA_OK) status = allocate(job);
    if (status != LORA_OK) return status;
    for (uint32_t s = 0; s <= LORA_SEGMENTS; s++) job->matrix.starts[s] = segment_start(c->k, s);
    cut(job);
    job->run = run;
    return LORA_OK;
}
