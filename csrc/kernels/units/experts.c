/* EXPERTS: each row times the matrices of the experts that it has chosen. An item is a run of
 * column tiles in the order of matrix_blocks.h: those of an expert, then those of the next, each
 * read once, for all rows that chose it. docs/numbers.md, 3.16. */
#include <string.h>

#include "isa/gguf.h"
#include "isa/half.h"
#include "isa/segments.h"
#include "job.h"
#include "lora/weight_blocks.h"
#include "matrix.h"

#define ROUNDS 4 /* of items, one a thread in each */
#define WEIGHT_BYTES_PER_NS 16
#define MULTIPLICATIONS_PER_NS 40

struct taker { /* a row that has chosen the expert */
    uint32_t row, slot;
    float weight;
};

/* An expert that some row has chosen. */
struct expert {
    struct lora_matrix matrix; /* its own, as a command */
    struct lora_job own;       /* of that command and its rows: finds blocks, multiplies INT8 */
    struct taker *takers;
    uint32_t count;
    float *x; /* [k] of a single row, panels of several; not of INT8 */
};

/* An expert's tile, and its place in their order. */
struct place {
    uint32_t index, tile, expert;
};

static bool combines(const struct experts_job *e) { return e->command->flags & LORA_FLAG_COMBINE; }

static uint32_t tile_columns(const struct lora_experts *c, uint32_t tile) {
    uint32_t left = c->n - tile * LORA_BLOCK_N;
    return left < LORA_BLOCK_N ? left : LORA_BLOCK_N;
}

static uint32_t item_start(const struct lora_job *job, uint32_t item) {
    return (uint32_t)((uint64_t)job->experts.tiles * item / job->items);
}

/* Weights that are multiplied as FP16 and are stored otherwise. */
static bool is_widened(const struct lora_job *own) {
    return own->matrix.type != LORA_WEIGHT_FP16 && !matrix_is_integer(&own->matrix);
}

static bool is_gguf(const struct lora_job *own) { return own->matrix.type == LORA_WEIGHT_GGUF; }

/* A single row: weights are multiplied as they are stored. */
static void multiply_gguf(const struct lora_job *job, const struct expert *expert,
                          const uint16_t *const *blocks, const uint16_t *const *next, float *sums) {
    struct gguf_tile tile = {.x = expert->x,
                             .starts = job->experts.starts,
                             .blocks = (const uint8_t *const *)(const void *)blocks,
                             .next = (const uint8_t *const *)(const void *)next,
                             .count = job->experts.k_blocks};
    job->variant->gguf->row(matrix_gguf_block(&expert->own.matrix), &tile, sums);
}

/* FP32 sums of one tile, tree and scales included: sums[taker][32]. */
static void multiply(const struct lora_job *job, const struct expert *expert, uint32_t tile,
                     uint32_t thread, const uint16_t *const *blocks, const uint16_t *const *next,
                     float *sums) {
    const struct lora_variant *variant = job->variant;
    const uint32_t *starts = job->experts.starts;
    if (matrix_is_integer(&expert->own.matrix)) {
        lora_quantized_multiply(&expert->own, tile, blocks, next, sums);
        return;
    }
    if (is_gguf(&expert->own) && expert->count == 1) {
        multiply_gguf(job, expert, blocks, next, sums);
        return;
    }
    if (is_widened(&expert->own))
        blocks = next = lora_quantized_widen(&expert->own, thread, blocks);
    if (expert->count == 1) {
        variant->row(expert->x, starts, blocks, next, sums);
        return;
    }
    if (expert->count <= variant->few_rows) {
        variant->few(expert->x, expert->count, starts, blocks, next, sums);
        return;
    }
    _Alignas(LORA_LINE_BYTES) float work[LORA_BLOCK_K * LORA_BLOCK_N];
    lora_panels_multiply(variant, expert->x, expert->count, starts, blocks, next, work, sums);
}

static void add_bias(const struct lora_job *job, const struct expert *expert, uint32_t tile,
                     float *sums) {
    const uint16_t *bias = expert->own.matrix.bias;
    float values[LORA_BLOCK_N] = {0};
    if (!bias) return;
    job->variant->halves_to_floats(bias + (uint64_t)tile * LORA_BLOCK_N,
                                   tile_columns(job->experts.command, tile), values);
    job->variant->add_biases(sums, expert->count, values);
}

/* Column i of the slot's expert is element i*chosen + slot of the row. */
static void store_apart(struct lora_job *job, const struct expert *expert, uint32_t tile,
                        const float *sums) {
    const struct lora_experts *c = job->experts.command;
    uint32_t columns = tile_columns(c, tile);
    for (uint32_t i = 0; i < expert->count; i++) {
        const struct taker *taker = &expert->takers[i];
        uint16_t halves[LORA_BLOCK_N];
        uint32_t bad = job->variant->floats_to_halves(sums + i * LORA_BLOCK_N, columns, halves);
        uint16_t *y = half_row(job->experts.y, taker->row) + taker->slot +
                      (uint64_t)tile * LORA_BLOCK_N * c->chosen;
        for (uint32_t n = 0; n < columns; n++) y[(uint64_t)n * c->chosen] = halves[n];
        job_count_nonfinite(job, taker->row, bad);
    }
}

/* totals[row][32] of a tile. */
static void add_weighted(const struct expert *expert, const float *sums, float *totals) {
    for (uint32_t i = 0; i < expert->count; i++, sums += LORA_BLOCK_N) {
        float *total = totals + (uint64_t)expert->takers[i].row * LORA_BLOCK_N;
        float weight = expert->takers[i].weight;
        for (uint32_t n = 0; n < LORA_BLOCK_N; n++) total[n] = total[n] + weight * sums[n];
    }
}

static void store_totals(struct lora_job *job, uint32_t tile, const float *totals) {
    uint32_t columns = tile_columns(job->experts.command, tile);
    for (uint32_t row = 0; row < job->rows; row++) {
        uint16_t *y = half_row(job->experts.y, row) + (uint64_t)tile * LORA_BLOCK_N;
        job_count_nonfinite(
            job, row,
            job->variant->floats_to_halves(totals + (uint64_t)row * LORA_BLOCK_N, columns, y));
    }
}

static struct place place_of(const struct experts_job *e, uint32_t index, uint32_t expert) {
    const struct matrix_job *m = &e->all[expert < e->count ? expert : 0].own.matrix;
    return (struct place){index, lora_matrix_tile_at(m, index), expert};
}

static int find_blocks(const struct experts_job *e, struct place at, const uint16_t **blocks) {
    return lora_matrix_find_blocks(&e->all[at.expert].own, at.tile, blocks);
}

/* The tiles of an item at most. */
static uint32_t item_tiles(const struct lora_job *job) {
    return (job->experts.tiles + job->items - 1) / job->items;
}

static uint64_t totals_bytes(const struct lora_job *job) {
    if (!combines(&job->experts) || job->items == 0) return 0;
    return sizeof(float) * job->rows * LORA_BLOCK_N * item_tiles(job);
}

/* Two lists of blocks alternate: those that are read, and the next ones, which may be fetched. */
static int run(struct lora_job *job, uint32_t item, uint32_t thread) {
    const struct experts_job *e = &job->experts;
    uint64_t stride = (uint64_t)e->k_blocks + 1;
    const uint16_t **blocks = e->lists + 2 * stride * thread, **next = blocks + stride;
    uint32_t start = item_start(job, item), end = item_start(job, item + 1);
    uint64_t each = (uint64_t)job->rows * LORA_BLOCK_N;
    struct place at = place_of(e, start, 0);
    _Alignas(LORA_LINE_BYTES) float sums[PANEL_LEVELS * LORA_MAX_ROWS * LORA_BLOCK_N];
    float *totals = combines(e) ? e->totals + each * item_tiles(job) * thread : NULL;
    if (totals) memset(totals, 0, totals_bytes(job));
    int status = find_blocks(e, at, blocks);
    while (at.expert < e->count && status == LORA_OK) {
        const struct expert *expert = &e->all[at.expert];
        bool last = at.index + 1 == end;
        struct place then = place_of(e, last ? start : at.index + 1, at.expert + last);
        bool more = then.expert < e->count;
        if (more) status = find_blocks(e, then, next);
        if (status != LORA_OK) break;
        multiply(job, expert, at.tile, thread, blocks, more ? next : blocks, sums);
        add_bias(job, expert, at.tile, sums);
        if (totals) add_weighted(expert, sums, totals + each * (at.index - start));
        else store_apart(job, expert, at.tile, sums);
        const uint16_t **taken = blocks;
        blocks = next;
        next = taken;
        at = then;
    }
    for (uint32_t i = start; totals && i < end && status == LORA_OK; i++)
        store_totals(job, place_of(e, i, 0).tile, totals + each * (i - start));
    return status;
}

/* --- begin ------------------------------------------------------------------------------------ */
static const struct lora_chosen *chosen_of(const struct experts_job *e, uint32_t row) {
    return (const struct lora_chosen *)(const void *)(e->chosen.base + e->chosen.stride * row);
}

/* Of one expert, in whole lines: its scales, and with its bias behind. */
static uint64_t scale_bytes(const struct experts_job *e) {
    return e->x_bytes == 1 ? padded_lines(4ull * e->command->n) : 0;
}

static uint64_t table_bytes(const struct experts_job *e) {
    const struct lora_experts *c = e->command;
    return scale_bytes(e) + (c->flags & LORA_FLAG_EXPERT_BIAS ? padded_lines(2ull * c->n) : 0);
}

/* Of x, in whole lines where each row has its scale behind. */
static uint64_t row_bytes(const struct experts_job *e) {
    const struct lora_experts *c = e->command;
    uint64_t bytes = (uint64_t)e->x_bytes * c->k * (combines(e) ? c->chosen : 1);
    return c->flags & LORA_FLAG_ROW_SCALES ? padded_lines(bytes) : bytes;
}

static int find_operands(struct lora_job *job) {
    struct experts_job *e = &job->experts;
    const struct lora_experts *c = e->command;
    bool scaled = c->flags & LORA_FLAG_ROW_SCALES;
    uint64_t x = row_bytes(e) + (scaled ? sizeof(struct lora_row_scale) : 0);
    uint64_t y = 2ull * c->n * (combines(e) ? 1 : c->chosen);
    uint64_t table = (uint64_t)c->scale_line * LORA_LINE_BYTES;
    e->x = call_operand(job->call, LORA_BANK_ONCHIP, c->x_offset, c->x_stride, x,
                        scaled ? 4 : e->x_bytes);
    e->table = NULL;
    if (table_bytes(e)) {
        e->table = call_at(job->call, c->scale_bank, table, c->experts * table_bytes(e), 4);
        if (!e->table) return LORA_ERR_ADDRESS;
    }
    e->y = call_operand(job->call, LORA_BANK_ONCHIP, c->y_offset, c->y_stride, y, 2);
    e->chosen = call_operand(job->call, LORA_BANK_ONCHIP, c->chosen_offset, c->chosen_stride,
                             sizeof(struct lora_chosen) * c->chosen, 4);
    return e->x.base && e->y.base && e->chosen.base ? LORA_OK : LORA_ERR_ADDRESS;
}

/* How many rows have chosen each expert. A row names its experts in ascending order. */
static int count_takers(const struct lora_job *job, uint16_t *counts) {
    const struct experts_job *e = &job->experts;
    const struct lora_experts *c = e->command;
    memset(counts, 0, sizeof(*counts) * c->experts);
    for (uint32_t row = 0; row < job->rows; row++) {
        const struct lora_chosen *chosen = chosen_of(e, row);
        for (uint32_t i = 0; i < c->chosen; i++) {
            uint32_t expert = chosen[i].expert;
            if (expert >= c->experts || (i && expert <= chosen[i - 1].expert)) return LORA_ERR_SIZE;
            counts[expert]++;
        }
    }
    return LORA_OK;
}

static void set_matrix(struct lora_job *job, struct expert *expert, uint32_t number,
                       uint32_t takers) {
    const struct lora_experts *c = job->experts.command;
    uint64_t blocks = (uint64_t)job->experts.k_blocks * job->experts.tiles;
    uint64_t request = c->first + number * ((blocks + c->merge - 1) / c->merge);
    uint64_t lines = (uint64_t)c->merge * job->experts.block_bytes / LORA_LINE_BYTES;
    expert->matrix = (struct lora_matrix){
        .bank_first = c->bank_first,
        .bank_count = c->bank_count,
        .merge = c->merge,
        .weight_type = c->weight_type,
        .weight_line = (uint32_t)(c->weight_line + request / c->bank_count * lines),
        .first = (uint16_t)(request % c->bank_count),
        .k = c->k,
        .n = c->n,
    };
    memset(&expert->own, 0, sizeof expert->own);
    expert->own.call = job->call;
    expert->own.variant = job->variant;
    expert->own.rows = takers;
    struct matrix_job *m = &expert->own.matrix;
    m->command = &expert->matrix;
    lora_quantized_type(m);
    memcpy(m->starts, job->experts.starts, sizeof m->starts);
    m->scaled_rows = c->flags & LORA_FLAG_ROW_SCALES;
    if (job->experts.table) {
        const uint8_t *own = job->experts.table + number * table_bytes(&job->experts);
        m->scales = (const float *)(const void *)own;
        if (c->flags & LORA_FLAG_EXPERT_BIAS)
            m->bias = (const uint16_t *)(const void *)(own + scale_bytes(&job->experts));
    }
    lora_matrix_order(m, job->call);
}

/* A row of INT8 as MATRIX reads it. */
static uint64_t int8_stride(const struct lora_experts *c) {
    return padded_lines(c->k) + sizeof(struct lora_row_scale);
}

/* What an expert's rows take in the form in which they are multiplied. */
static uint64_t x_bytes_of(const struct lora_job *job, const struct expert *expert) {
    const struct lora_experts *c = job->experts.command;
    uint32_t rows = expert->own.rows;
    if (matrix_is_integer(&expert->own.matrix))
        return rows * int8_stride(c) + padded_lines(lora_quantized_bytes(&expert->own));
    return padded_lines(sizeof(float) * (rows == 1 ? c->k : panel_floats(rows, c->k)));
}

static void copy_int8(const struct experts_job *e, const struct taker *taker, uint8_t *row) {
    const struct lora_experts *c = e->command;
    const uint8_t *x = e->x.base + e->x.stride * taker->row;
    if (!combines(e)) memcpy(row, x, c->k);
    else
        for (uint32_t i = 0; i < c->k; i++) row[i] = x[(uint64_t)i * c->chosen + taker->slot];
    if (c->flags & LORA_FLAG_ROW_SCALES)
        memcpy(row + padded_lines(c->k), x + row_bytes(e), sizeof(struct lora_row_scale));
}

/* The expert's rows in `memory`, then what is made of them. */
static void fill_int8(const struct lora_job *job, struct expert *expert, uint8_t *memory) {
    uint64_t stride = int8_stride(job->experts.command);
    for (uint32_t i = 0; i < expert->count; i++)
        copy_int8(&job->experts, &expert->takers[i], memory + i * stride);
    expert->own.matrix.x_rows = (struct rows){memory, stride};
    lora_quantized_fill(&expert->own, memory + expert->count * stride);
}

/* The rows of an expert, one after the other. */
static void copy_row(const struct experts_job *e, const struct taker *taker, uint16_t *halves) {
    const struct lora_experts *c = e->command;
    const uint16_t *x = half_row(e->x, taker->row);
    if (!combines(e)) memcpy(halves, x, 2ull * c->k);
    else
        for (uint32_t i = 0; i < c->k; i++) halves[i] = x[(uint64_t)i * c->chosen + taker->slot];
}

static void fill(const struct lora_job *job, struct expert *expert, uint16_t *halves) {
    uint32_t k = job->experts.command->k;
    if (matrix_is_integer(&expert->own.matrix)) {
        fill_int8(job, expert, (uint8_t *)expert->x);
        return;
    }
    for (uint32_t i = 0; i < expert->count; i++)
        copy_row(&job->experts, &expert->takers[i], halves + (uint64_t)i * k);
    struct rows rows = {(uint8_t *)halves, 2ull * k};
    if (expert->count == 1) job->variant->halves_to_floats(halves, k, expert->x);
    else lora_panels_fill(job->variant, rows, expert->count, k, expert->x);
}

static void take(const struct lora_job *job, const uint16_t *numbers) {
    const struct experts_job *e = &job->experts;
    for (uint32_t row = 0; row < job->rows; row++) {
        const struct lora_chosen *chosen = chosen_of(e, row);
        for (uint32_t slot = 0; slot < e->command->chosen; slot++) {
            struct expert *expert = &e->all[numbers[chosen[slot].expert]];
            expert->takers[expert->count++] = (struct taker){row, slot, chosen[slot].weight};
        }
    }
}

/* What all rows take. */
static uint64_t all_x_bytes(struct lora_job *job, const uint16_t *counts) {
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < job->experts.command->experts; i++) {
        if (counts[i] == 0) continue;
        struct expert probe;
        set_matrix(job, &probe, i, counts[i]);
        bytes += x_bytes_of(job, &probe);
    }
    return bytes;
}

/* The chosen experts, ascending, and their rows. */
static void set_experts(struct lora_job *job, const uint16_t *counts, struct taker *taker) {
    struct experts_job *e = &job->experts;
    uint16_t numbers[LORA_MAX_EXPERTS];
    for (uint32_t i = 0, number = 0; i < e->command->experts; i++) {
        if (counts[i] == 0) continue;
        struct expert *expert = &e->all[number];
        set_matrix(job, expert, i, counts[i]);
        numbers[i] = (uint16_t)number++;
        expert->takers = taker;
        expert->count = 0;
        taker += counts[i];
    }
    take(job, numbers);
}

static void place_rows(struct lora_job *job, uint8_t *x, uint16_t *halves, uint8_t *wide) {
    struct experts_job *e = &job->experts;
    for (uint32_t i = 0; i < e->count; i++) {
        struct expert *expert = &e->all[i];
        expert->x = (float *)(void *)x;
        if (is_widened(&expert->own)) expert->own.matrix.quantized = wide;
        fill(job, expert, halves);
        x += x_bytes_of(job, expert);
    }
}

/* Each thread's blocks in FP16, where they are not stored so. */
static uint64_t wide_bytes(const struct lora_job *job) {
    const struct experts_job *e = &job->experts;
    uint32_t type = e->command->weight_type & LORA_WEIGHT_TYPE_MASK;
    uint64_t pointers = ((uint64_t)e->k_blocks + 1) * sizeof(uint16_t *);
    if (e->x_bytes == 1 || type == LORA_WEIGHT_FP16) return 0;
    return job->threads * (e->k_blocks * (uint64_t)LORA_BLOCK_BYTES_FP16 + padded_lines(pointers));
}

/* Experts, their takers, each thread's lists of blocks, widened blocks and sums, the rows in FP16
 * and as they are multiplied. */
static int allocate(struct lora_job *job, const uint16_t *counts) {
    struct experts_job *e = &job->experts;
    const struct lora_experts *c = e->command;
    for (uint32_t i = 0; i < c->experts; i++) e->count += counts[i] != 0;
    uint64_t all = padded_lines(e->count * sizeof(struct expert));
    uint64_t takers = padded_lines((uint64_t)job->rows * c->chosen * sizeof(struct taker));
    uint64_t lists = padded_lines(2 * ((uint64_t)e->k_blocks + 1) * job->threads *
                                  sizeof(uint16_t *));
    uint64_t wide = wide_bytes(job), halves = padded_lines(2ull * job->rows * c->k);
    uint64_t x = all_x_bytes(job, counts), totals = padded_lines(totals_bytes(job) * job->threads);
    uint8_t *memory = lora_job_memory(job, all + takers + lists + wide + halves + x + totals);
    if (!memory) return LORA_ERR_MEMORY;
    e->all = (struct expert *)(void *)memory;
    e->lists = (const uint16_t **)(void *)(memory + all + takers);
    set_experts(job, counts, (struct taker *)(void *)(memory + all));
    uint8_t *rows = memory + all + takers + lists;
    e->totals = (float *)(void *)(rows + wide + halves + x);
    place_rows(job, rows + wide + halves, (uint16_t *)(void *)(rows + wide), rows);
    return LORA_OK;
}

/* The weights' type, and the bytes of a value of x. */
static int check_type(struct experts_job *e) {
    const struct lora_experts *c = e->command;
    struct lora_matrix matrix = {.weight_type = c->weight_type, .k = c->k};
    struct matrix_job m = {.command = &matrix};
    int status = lora_quantized_type(&m);
    e->block_bytes = m.block_bytes;
    e->x_bytes = matrix_is_integer(&m) ? 1 : 2;
    if (c->flags & LORA_FLAG_ROW_SCALES && e->x_bytes != 1) return LORA_ERR_OPCODE;
    return status;
}

int lora_experts_begin(struct lora_job *job) {
    const struct lora_experts *c = (const struct lora_experts *)(const void *)job->call->command;
    struct experts_job *e = &job->experts;
    uint16_t counts[LORA_MAX_EXPERTS];
    e->command = c;
    e->count = 0;
    int status = check_type(e);
    if (status != LORA_OK) return status;
    if (c->k == 0 || c->k > MAX_COLUMNS || c->n > MAX_COLUMNS || c->bank_count == 0 ||
        c->merge == 0 || c->experts == 0 || c->experts > LORA_MAX_EXPERTS || c->chosen == 0 ||
        c->chosen > LORA_MAX_CHOSEN)
        return LORA_ERR_SIZE;
    e->k_blocks = (c->k + LORA_BLOCK_K - 1) / LORA_BLOCK_K;
    e->tiles = (c->n + LORA_BLOCK_N - 1) / LORA_BLOCK_N;
    for (uint32_t s = 0; s <= LORA_SEGMENTS; s++) e->starts[s] = segment_start(c->k, s);
    job->items = e->tiles < ROUNDS * job->threads ? e->tiles : ROUNDS * job->threads;
    status = find_operands(job);
    if (status == LORA_OK) status = count_takers(job, counts);
    if (status == LORA_OK) status = allocate(job, counts);
    if (status != LORA_OK) return status;
    uint64_t blocks = (uint64_t)e->count * e->k_blocks * e->tiles;
    uint64_t products = (uint64_t)job->rows * c->chosen * c->k * c->n;
    job->work = blocks * e->block_bytes / WEIGHT_BYTES_PER_NS;
    if (products / MULTIPLICATIONS_PER_NS > job->work)
        job->work = products / MULTIPLICATIONS_PER_NS;
    job->run = run;
    return LORA_OK;
}
