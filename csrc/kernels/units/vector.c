/* The vector unit's operations on rows of activations. docs/numbers.md, 3.2, 3.7, 3.11, 3.14. */
#include <math.h>
#include <stdbool.h>

#include "isa/gguf.h"
#include "isa/half.h"
#include "job.h"

#define COLUMNS_PER_NS 1
#define ARGMAX_RUN 64 /* values that are passed over together */

/* One thread's buffers for a row. */
struct row_work {
    struct lora_job *job;
    const struct lora_vector *command;
    float *x, *z; /* [columns] each */
};

static void load(const struct row_work *w, struct rows rows, uint32_t row, float *values) {
    w->job->variant->halves_to_floats(half_row(rows, row), w->command->columns, values);
}

static void store(const struct row_work *w, uint32_t row) {
    uint16_t *target = half_row(w->job->vector.y_rows, row);
    uint32_t bad = w->job->variant->floats_to_halves(w->x, w->command->columns, target);
    job_count_nonfinite(w->job, row, bad);
}

/* Row of an FP16 table whose rows are the local columns, padded to whole lines. */
static const uint16_t *table_row(const struct row_work *w, uint32_t bank, uint32_t line,
                                 uint64_t row) {
    uint64_t bytes = 2ull * w->command->columns;
    uint64_t offset = (uint64_t)line * LORA_LINE_BYTES + row * padded_lines(bytes);
    return call_at(w->job->call, bank, offset, bytes, 2);
}

/* Column `token` of a matrix in GGUF's blocks, as w->x. */
static int token_column(const struct row_work *w, uint32_t token) {
    const struct lora_unit_call *call = w->job->call;
    const struct lora_matrix m = lora_token_matrix(w->command, call->list->vocabulary);
    uint32_t kind = m.weight_type >> LORA_WEIGHT_GROUP_SHIFT;
    uint32_t size = lora_weight_block_bytes(m.weight_type), unit = lora_weight_unit(m.weight_type);
    uint64_t count = ((uint64_t)m.k + LORA_BLOCK_K - 1) / LORA_BLOCK_K;
    uint16_t wide[LORA_BLOCK_K * LORA_BLOCK_N], column[LORA_BLOCK_K];
    if ((m.weight_type & LORA_WEIGHT_TYPE_MASK) != LORA_WEIGHT_GGUF || size == 0)
        return LORA_ERR_OPCODE;
    if (m.merge == 0 || m.bank_count == 0 || m.k % unit) return LORA_ERR_SIZE;
    for (uint64_t i = 0; i < count; i++) {
        const uint8_t *pair[2];
        for (uint64_t b = 0; b < 2; b++) {
            uint64_t offset, of = lora_gguf_is_pair(kind) ? (i & ~1ull) + b : i;
            uint32_t bank = lora_block_place(&m, token / LORA_BLOCK_N * count + of, &offset);
            pair[b] = call_at(call, bank, offset, size, 2);
            if (!pair[b]) return LORA_ERR_ADDRESS;
        }
        const struct gguf_pair block = {pair[i % 2], pair[0], pair[1]};
        uint32_t left = m.k - (uint32_t)i * LORA_BLOCK_K;
        w->job->variant->gguf->widen(kind, &block, wide);
        for (uint32_t k = 0; k < LORA_BLOCK_K; k++)
            column[k] = wide[k * LORA_BLOCK_N + token % LORA_BLOCK_N];
        w->job->variant->halves_to_floats(column, left < LORA_BLOCK_K ? left : LORA_BLOCK_K,
                                          w->x + i * LORA_BLOCK_K);
    }
    return LORA_OK;
}

static const uint16_t *input_row(const struct row_work *w, const struct lora_row *row) {
    const struct lora_vector *c = w->command;
    const struct lora_unit_call *call = w->job->call;
    if (!(row->flags & LORA_ROW_VECTOR)) return table_row(w, c->a_bank, c->a_line, row->token);
    uint64_t offset = (uint64_t)call->state->block_offset + row->token + 2ull * c->first;
    return call_at(call, call->list->control_bank, offset, 2ull * c->columns, 2);
}

/* x += position[p + extra] */
static int add_position(const struct row_work *w, const struct lora_row *row) {
    const struct lora_vector *c = w->command;
    uint64_t index = (uint64_t)row->position + c->extra;
    const uint16_t *position = table_row(w, c->b_bank, c->b_line, index);
    if (!position) return LORA_ERR_ADDRESS;
    w->job->variant->halves_to_floats(position, c->columns, w->z);
    for (uint32_t i = 0; i < c->columns; i++) w->x[i] = w->x[i] + w->z[i];
    return LORA_OK;
}

static void scale(float *x, uint32_t columns, float factor) {
    for (uint32_t i = 0; i < columns; i++) x[i] = x[i] * factor;
}

/* The input of EMBED or ADD_POSITION as w->x. */
static int take_input(const struct row_work *w, const struct lora_row *row, uint32_t i) {
    const struct lora_vector *c = w->command;
    bool from_x = c->op == LORA_VEC_ADD_POSITION;
    if (!from_x && c->flags & LORA_FLAG_TOKEN_BLOCKS && !(row->flags & LORA_ROW_VECTOR))
        return token_column(w, row->token);
    const uint16_t *input = from_x ? half_row(w->job->vector.x_rows, i) : input_row(w, row);
    if (!input) return LORA_ERR_ADDRESS;
    w->job->variant->halves_to_floats(input, c->columns, w->x);
    return LORA_OK;
}

static int embed(const struct row_work *w, uint32_t i) {
    const struct lora_vector *c = w->command;
    const struct lora_row *row = call_row(w->job->call, i);
    int from_x = c->op == LORA_VEC_ADD_POSITION, status = take_input(w, row, i);
    if (status != LORA_OK) return status;
    if (c->op == LORA_VEC_EMBED_SCALED) scale(w->x, c->columns, float_of_bits(c->scalar));
    if (from_x || c->b_bank != LORA_NO_BANK) status = add_position(w, row);
    if (status == LORA_OK) store(w, i);
    return status;
}

/* One row's heads: pairs are columns i and i + head_dim/2; the table row is cos, then sin. */
static void rotate(float *x, uint32_t columns, uint32_t head_dim, const float *table) {
    uint32_t half = head_dim / 2;
    const float *restrict cos = table, *restrict sin = table + half;
    for (uint32_t head = 0; head + head_dim <= columns; head += head_dim) {
        float *restrict low = x + head, *restrict high = x + head + half;
        for (uint32_t i = 0; i < half; i++) {
            float a = low[i], b = high[i];
            low[i] = a * cos[i] - b * sin[i];
            high[i] = b * cos[i] + a * sin[i];
        }
    }
}

static int rope(const struct row_work *w, uint32_t i) {
    const struct lora_vector *c = w->command;
    const struct lora_unit_call *call = w->job->call;
    uint64_t stride = padded_lines(4ull * c->extra);
    uint64_t offset = (uint64_t)c->a_line * LORA_LINE_BYTES + call_row(call, i)->position * stride;
    const float *table = call_at(call, c->a_bank, offset, 4ull * c->extra, 4);
    if (!table) return LORA_ERR_ADDRESS;
    load(w, w->job->vector.x_rows, i, w->x);
    rotate(w->x, c->columns, c->extra, table);
    store(w, i);
    return LORA_OK;
}

/* FP32, in place: each NaN by its one spelling. */
static int count_floats(const struct row_work *w, uint32_t row) {
    float *y = float_row(w->job->vector.y_rows, row);
    uint32_t bad = 0;
    for (uint32_t i = 0; i < w->command->columns; i++) {
        bad += (bits_of_float(y[i]) & 0x7f800000) == 0x7f800000;
        y[i] = y[i] != y[i] ? float_of_bits(LORA_FP32_NAN) : y[i];
    }
    job_count_nonfinite(w->job, row, bad);
    return LORA_OK;
}

static int scale_floats(const struct row_work *w, uint32_t row) {
    float *y = float_row(w->job->vector.y_rows, row);
    scale(y, w->command->columns, float_of_bits(w->command->scalar));
    return count_floats(w, row);
}

static int soft_cap(const struct row_work *w, uint32_t row) {
    float *y = float_row(w->job->vector.y_rows, row);
    (void)w->job->variant->cap(y, w->command->columns, float_of_bits(w->command->scalar));
    return count_floats(w, row);
}

/* Whether a run holds a greater value, or NaN. */
static bool run_exceeds(const float *x, float max) {
    uint32_t exceeds = 0;
    for (uint32_t i = 0; i < ARGMAX_RUN; i++) exceeds |= !(x[i] <= max);
    return exceeds != 0;
}

/* The first maximum, or the first NaN; columns are counted from `first`. */
static struct lora_argmax first_max(const float *x, uint32_t columns, uint32_t first) {
    struct lora_argmax best = {-INFINITY, NO_ROW};
    for (uint32_t i = 0; i < columns; i++) {
        while (i % ARGMAX_RUN == 0 && i && columns - i >= ARGMAX_RUN &&
               !run_exceeds(x + i, best.value))
            i += ARGMAX_RUN;
        if (i == columns) break;
        if (x[i] != x[i]) return (struct lora_argmax){float_of_bits(LORA_FP32_NAN), first + i};
        if (i == 0 || x[i] > best.value) best = (struct lora_argmax){x[i], first + i};
    }
    return best;
}

static int argmax(const struct row_work *w, uint32_t row) {
    const struct lora_vector *c = w->command;
    const struct vector_job *v = &w->job->vector;
    struct lora_argmax best = first_max(float_row(v->x_rows, row), c->columns, c->first);
    memcpy(float_row(v->y_rows, row), &best, sizeof(best));
    uint32_t bad = (bits_of_float(best.value) & 0x7f800000) == 0x7f800000;
    job_count_nonfinite(w->job, row, c->columns ? bad : 0);
    return LORA_OK;
}

static int norm_sums(const struct row_work *w, uint32_t row) {
    lora_norm_sums(w->job, row);
    return LORA_OK;
}

static int norm_apply(const struct row_work *w, uint32_t row) {
    lora_norm_apply(w->job, row, w->x, w->z);
    return LORA_OK;
}

static int head_norm(const struct row_work *w, uint32_t row) {
    lora_head_norm_each(w->job, row, w->x, w->z);
    return LORA_OK;
}

static int head_sums(const struct row_work *w, uint32_t row) {
    lora_head_norm_sums(w->job, row, w->x);
    return LORA_OK;
}

static int head_row(const struct row_work *w, uint32_t row) {
    lora_head_norm_row(w->job, row, w->x, w->z);
    return LORA_OK;
}

/* --- what a call needs is found before any row is touched ------------------------------------- */
static int find(struct lora_job *job, struct rows *rows, uint32_t bank, uint32_t offset,
                uint32_t stride, uint32_t element) {
    uint64_t bytes = (uint64_t)element * job->vector.command->columns;
    *rows = call_operand(job->call, bank, offset, stride, bytes, element);
    return rows->base ? LORA_OK : LORA_ERR_ADDRESS;
}

static int find_x(struct lora_job *job) {
    const struct lora_vector *c = job->vector.command;
    return find(job, &job->vector.x_rows, LORA_BANK_ONCHIP, c->x_offset, c->x_stride, 2);
}

static int find_y(struct lora_job *job) {
    const struct lora_vector *c = job->vector.command;
    return find(job, &job->vector.y_rows, c->y_bank, c->y_offset, c->y_stride, 2);
}

static int find_xy(struct lora_job *job) { return lora_vector_rows(job, 2, 2); }

static int begin_rope(struct lora_job *job) {
    const struct lora_vector *c = job->vector.command;
    if (c->extra == 0 || c->extra % 2 || c->columns % c->extra) return LORA_ERR_SIZE;
    int status = find_x(job);
    job->vector.y_rows = job->vector.x_rows; /* in place */
    return status;
}

static int find_floats(struct lora_job *job) {
    const struct lora_vector *c = job->vector.command;
    return find(job, &job->vector.y_rows, c->y_bank, c->y_offset, c->y_stride, 4);
}

static int begin_argmax(struct lora_job *job) {
    const struct lora_vector *c = job->vector.command;
    struct vector_job *v = &job->vector;
    int status = find(job, &v->x_rows, c->y_bank, c->x_offset, c->x_stride, 4);
    v->y_rows = call_operand(job->call, c->y_bank, c->y_offset, c->y_stride, 8, 4);
    if ((c->columns && status != LORA_OK) || !v->y_rows.base) return LORA_ERR_ADDRESS;
    return LORA_OK;
}

/* --- the table: one row an operation ---------------------------------------------------------- */
struct operation {
    int (*begin)(struct lora_job *job); /* finds the operands: an enum lora_status */
    int (*row)(const struct row_work *w, uint32_t row); /* NULL: `begin` has cut the whole job */
};

static const struct operation operations[] = {
    [LORA_VEC_EMBED] = {find_y, embed},
    [LORA_VEC_ADD_POSITION] = {find_xy, embed},
    [LORA_VEC_LN_SUMS] = {lora_norm_begin, norm_sums},
    [LORA_VEC_RMS_SUMS] = {lora_norm_begin, norm_sums},
    [LORA_VEC_LN_APPLY] = {lora_norm_begin, norm_apply},
    [LORA_VEC_RMS_APPLY] = {lora_norm_begin, norm_apply},
    [LORA_VEC_ROPE] = {begin_rope, rope},
    [LORA_VEC_RESIDUAL] = {lora_elementwise_begin, NULL},
    [LORA_VEC_RELU] = {lora_elementwise_begin, NULL},
    [LORA_VEC_GELU_TANH] = {lora_elementwise_begin, NULL},
    [LORA_VEC_GELU_ERF] = {lora_elementwise_begin, NULL},
    [LORA_VEC_SWIGLU] = {lora_elementwise_begin, NULL},
    [LORA_VEC_ARGMAX] = {begin_argmax, argmax},
    [LORA_VEC_QUANTIZE] = {lora_quantize_begin, NULL},
    [LORA_VEC_QUANTIZE_HEADS] = {lora_quantize_heads_begin, NULL},
    [LORA_VEC_PERMUTE] = {lora_permute_begin, NULL},
    [LORA_VEC_RMS_HEADS] = {lora_head_norm_begin, head_norm},
    [LORA_VEC_HEAD_SUMS] = {lora_head_row_begin, head_sums},
    [LORA_VEC_RMS_ROW] = {lora_head_row_begin, head_row},
    [LORA_VEC_EMBED_SCALED] = {find_y, embed},
    [LORA_VEC_RESIDUAL_SCALED] = {lora_elementwise_begin, NULL},
    [LORA_VEC_SCALE] = {find_floats, scale_floats},
    [LORA_VEC_SOFTCAP] = {find_floats, soft_cap},
    [LORA_VEC_GEGLU] = {lora_elementwise_begin, NULL},
    [LORA_VEC_ROW_MAX] = {lora_row_max_begin, NULL},
    [LORA_VEC_QUANTIZE_ROW] = {lora_quantize_row_begin, NULL},
    [LORA_VEC_ROUTE] = {lora_route_begin, NULL},
    [LORA_VEC_ROUTE_CHOSEN] = {lora_route_begin, NULL},
    [LORA_VEC_ADD_GATED] = {lora_add_gated_begin, NULL},
    [LORA_VEC_GATE] = {lora_elementwise_begin, NULL},
    [LORA_VEC_ROUTE_SIGMOID] = {lora_route_begin, NULL},
    [LORA_VEC_SWIGLU_CLAMPED] = {lora_elementwise_begin, NULL},
    [LORA_VEC_JOIN_HEADS] = {lora_join_heads_begin, NULL},
};

/* NULL: there is no such operation. */
static const struct operation *find_operation(uint32_t op) {
    bool known = op < sizeof operations / sizeof operations[0] && operations[op].begin;
    return known ? &operations[op] : NULL;
}

static int run(struct lora_job *job, uint32_t item, uint32_t thread) {
    const struct vector_job *v = &job->vector;
    const struct operation *operation = find_operation(v->command->op);
    uint64_t columns = v->command->columns;
    struct row_work work = {.job = job, .command = v->command};
    uint32_t first = item * v->rows;
    uint32_t end = job->rows - first < v->rows ? job->rows : first + v->rows;
    int status = LORA_OK;
    work.x = v->x + 2 * columns * thread;
    work.z = work.x + columns;
    for (uint32_t row = first; row < end && status == LORA_OK; row++)
        status = operation->row(&work, row);
    return status;
}

int lora_vector_begin(struct lora_job *job) {
    struct vector_job *v = &job->vector;
    v->command = (const struct lora_vector *)(const void *)job->call->command;
    uint32_t columns = v->command->columns;
    const struct operation *operation = find_operation(v->command->op);
    if (columns > MAX_COLUMNS) return LORA_ERR_SIZE;
    if (!operation) return LORA_ERR_OPCODE;
    int status = operation->begin(job);
    if (status != LORA_OK || !operation->row) return status;
    v->x = lora_job_memory(job, (2ull * columns * job->threads + 1) * sizeof(float));
    if (!v->x) return LORA_ERR_MEMORY;
    lora_vector_cut(job, COLUMNS_PER_NS);
    job->run = run;
    return LORA_OK;
}
