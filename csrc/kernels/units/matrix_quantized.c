/* Matmuls of INT8 activations with INT8 or 4-bit weights. docs/numbers.md, 6.2, 6.3, 6.10. */
#include "matrix.h"

#include <string.h>

#include "isa/gguf.h"
#include "isa/integer.h"
#include "lora/weight_blocks.h"

#define ROW_PADDING 64 /* so that rows of 4096 columns do not share the cache's sets */

int lora_quantized_type(struct matrix_job *m) {
    const struct lora_matrix *c = m->command;
    m->type = c->weight_type & LORA_WEIGHT_TYPE_MASK;
    m->group = 1u << (c->weight_type >> LORA_WEIGHT_GROUP_SHIFT);
    m->block_bytes = lora_weight_block_bytes(c->weight_type);
    if (m->block_bytes == 0) return LORA_ERR_OPCODE;
    if (m->type == LORA_WEIGHT_INT8 && c->k > LORA_MAX_INT8_K) return LORA_ERR_SIZE;
    return c->k % lora_weight_unit(c->weight_type) ? LORA_ERR_SIZE : LORA_OK;
}

/* Bytes of a row of x, with its own scale where it has one. */
uint64_t lora_quantized_row_bytes(const struct matrix_job *m) {
    uint64_t k = m->command->k;
    return m->scaled_rows ? padded_lines(k) + sizeof(struct lora_row_scale) : k;
}

/* FP32(1) where rows have no scales of their own: a product with it changes no bit. */
static float row_scale(const struct matrix_job *m, uint32_t row) {
    if (!m->scaled_rows) return 1.0f;
    const uint8_t *behind = m->x_rows.base + m->x_rows.stride * row + padded_lines(m->command->k);
    return ((const struct lora_row_scale *)(const void *)behind)->scale;
}

int lora_quantized_scales(struct lora_job *job) {
    struct matrix_job *m = &job->matrix;
    const struct lora_matrix *c = m->command;
    uint64_t offset = (uint64_t)c->bias_line * LORA_LINE_BYTES, bytes = 4ull * c->n;
    int biased = !(c->flags & LORA_FLAG_NO_BIAS);
    m->scales = call_at(job->call, c->bias_bank, offset, bytes, 4);
    if (biased)
        m->bias = call_at(job->call, c->bias_bank, offset + padded_lines(bytes), 2ull * c->n, 2);
    return m->scales && (m->bias || !biased) ? LORA_OK : LORA_ERR_ADDRESS;
}

static uint64_t whole_k(const struct matrix_job *m) {
    return (uint64_t)matrix_k_blocks(m->command) * LORA_BLOCK_K;
}

/* A thread's blocks in FP16, their pointers, and one pointer more. */
static uint64_t wide_bytes(const struct matrix_job *m) {
    uint64_t blocks = matrix_k_blocks(m->command);
    return blocks * LORA_BLOCK_BYTES_FP16 + padded_lines((blocks + 1) * sizeof(uint16_t *));
}

/* x as words: none where no loop reads them. */
static uint64_t words_bytes(const struct lora_job *job) {
    const struct lora_integer *integer = lora_integer_current();
    const struct matrix_job *m = &job->matrix;
    bool wanted = m->type == LORA_WEIGHT_INT8 && integer->spread && job->rows >= integer->many_rows;
    return wanted ? job->rows * whole_k(m) * sizeof(int16_t) : 0;
}

/* A single row of whole blocks is read where it is. */
static bool is_copied(const struct lora_job *job) {
    const struct matrix_job *m = &job->matrix;
    return job->rows > 1 || m->command->k < whole_k(m) || !matrix_y_is_apart(m, m->command->k);
}

static uint64_t values_bytes(const struct lora_job *job) {
    return is_copied(job) ? job->rows * (whole_k(&job->matrix) + ROW_PADDING) : 0;
}

/* x in whole blocks, then as words, then the sums of its units, then of its rows; in front of them
 * what says where they are. */
struct quantized_x {
    int8_t *values;
    int16_t *words; /* NULL: none */
    int32_t *sums, *totals;
    uint32_t units; /* of a row */
    bool copied;
};

uint64_t lora_quantized_bytes(const struct lora_job *job) {
    const struct matrix_job *m = &job->matrix;
    if (matrix_is_widened(job)) return wide_bytes(m) * job->threads;
    if (!matrix_is_integer(m)) return 0;
    return padded_lines(sizeof(struct quantized_x)) + values_bytes(job) + words_bytes(job) +
           job->rows * (whole_k(m) / LORA_UNIT_COLUMNS + 1) * sizeof(int32_t);
}

static struct quantized_x *quantized_x_of(const struct lora_job *job) {
    return job->matrix.quantized;
}

static void place_x(const struct lora_job *job) {
    const struct matrix_job *m = &job->matrix;
    struct quantized_x *x = quantized_x_of(job);
    int8_t *values = (int8_t *)x + padded_lines(sizeof *x), *behind = values + values_bytes(job);
    uint64_t words = words_bytes(job);
    x->copied = is_copied(job);
    x->values = x->copied ? values : (int8_t *)m->x_rows.base;
    x->words = words ? (int16_t *)(void *)behind : NULL;
    x->sums = (int32_t *)(void *)(behind + words);
    x->units = (uint32_t)(whole_k(m) / LORA_UNIT_COLUMNS);
    x->totals = x->sums + (uint64_t)job->rows * x->units;
}

static void fill_row(void *context, uint32_t row, uint32_t thread) {
    const struct lora_job *job = context;
    const struct matrix_job *m = &job->matrix;
    const struct lora_integer *integer = lora_integer_current();
    const struct quantized_x *x = quantized_x_of(job);
    uint32_t k = m->command->k;
    int8_t *values = x->values + row * (whole_k(m) + ROW_PADDING);
    int32_t *sums = x->sums + (uint64_t)row * x->units, total = 0;
    (void)thread;
    if (x->copied) {
        memcpy(values, m->x_rows.base + m->x_rows.stride * row, k);
        memset(values + k, 0, whole_k(m) + ROW_PADDING - k);
    }
    integer->sum_units(values, x->units, sums);
    if (x->words)
        integer->spread(values, matrix_k_blocks(m->command), job->rows * LORA_BLOCK_K,
                        x->words + (uint64_t)row * LORA_BLOCK_K);
    for (uint32_t u = 0; u < x->units; u++) total += sums[u];
    x->totals[row] = total;
}

void lora_quantized_fill(struct lora_job *job, void *memory) {
    job->matrix.quantized = memory;
    if (!matrix_is_integer(&job->matrix)) return;
    place_x(job);
    lora_job_share(job, (uint64_t)job->rows * job->matrix.command->k, job->rows, fill_row);
}

/* Columns past the last one are not stored. */
static const float *pad_columns(const float *scales, uint32_t columns, float *padded) {
    memset(padded, 0, LORA_BLOCK_N * sizeof(float));
    return memcpy(padded, scales, columns * sizeof(float));
}

static void scale_sums(const struct lora_job *job, uint32_t first, float *sums) {
    const struct matrix_job *m = &job->matrix;
    const float *scales = m->scales + first;
    float padded[LORA_BLOCK_N], own[LORA_MAX_ROWS];
    if (m->command->n - first < LORA_BLOCK_N)
        scales = pad_columns(scales, m->command->n - first, padded);
    for (uint32_t row = 0; row < job->rows; row++) own[row] = row_scale(m, row);
    job->variant->scale_columns(sums, job->rows, scales, own);
}

void lora_quantized_multiply(const struct lora_job *job, uint32_t tile,
                             const uint16_t *const *blocks, const uint16_t *const *next,
                             float *sums) {
    const struct matrix_job *m = &job->matrix;
    const struct quantized_x *x = quantized_x_of(job);
    struct integer_tile t = {.rows = job->rows,
                             .k = m->command->k,
                             .x = x->values,
                             .stride = whole_k(m) + ROW_PADDING,
                             .words = x->words,
                             .totals = x->totals,
                             .units = x->sums,
                             .unit_count = x->units,
                             .group = m->group,
                             .starts = m->starts,
                             .blocks = (const uint8_t *const *)(const void *)blocks,
                             .next = (const uint8_t *const *)(const void *)next,
                             .block_count = matrix_k_blocks(m->command),
                             .out = sums};
    if (m->type == LORA_WEIGHT_INT8) lora_integer_current()->int8(&t);
    else lora_integer_current()->int4(&t);
    scale_sums(job, tile * LORA_BLOCK_N, sums);
}

static void widen(const struct lora_job *job, const uint8_t *const *blocks, uint32_t i,
                  uint16_t *wide) {
    const struct matrix_job *m = &job->matrix;
    if (m->type == LORA_WEIGHT_W4A16) {
        lora_integer_current()->widen(blocks[i], m->group, wide);
        return;
    }
    struct gguf_pair block = gguf_pair_of(matrix_gguf_block(m), blocks, i);
    job->variant->gguf->widen(matrix_gguf_block(m), &block, wide);
}

const uint16_t *const *lora_quantized_widen(const struct lora_job *job, uint32_t thread,
                                            const uint16_t *const *blocks) {
    const struct matrix_job *m = &job->matrix;
    uint32_t count = matrix_k_blocks(m->command);
    uint8_t *memory = (uint8_t *)m->quantized + wide_bytes(m) * thread;
    const uint16_t **list = (const uint16_t **)(void *)memory;
    uint16_t *wide = (uint16_t *)(void *)(memory + wide_bytes(m) -
                                          (uint64_t)count * LORA_BLOCK_BYTES_FP16);
    for (uint32_t i = 0; i < count; i++, wide += LORA_BLOCK_K * LORA_BLOCK_N) {
        widen(job, (const uint8_t *const *)(const void *)blocks, i, wide);
        list[i] = wide;
    }
    list[count] = list[0];
    return list;
}
