/* ROUTE: the experts that each row chooses, and their weights; ADD_GATED: what an expert of all
 * rows adds. docs/numbers.md, 3.16. */
#include <math.h>
#include <stdbool.h>

#include "isa/exponential.h"
#include "isa/half.h"
#include "job.h"

#define COLUMNS_PER_NS 1

/* The largest logits, of equal ones the first: taken[expert]. NaN counts as -infinity. Only those
 * where `open`, which are `count` or more; NULL: all are. */
static void choose(const float *logits, const bool *open, uint32_t experts, uint32_t count,
                   bool *taken) {
    memset(taken, 0, experts);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t best = experts;
        for (uint32_t e = 0; e < experts; e++) {
            if (taken[e] || (open && !open[e])) continue;
            float value = logits[e] == logits[e] ? logits[e] : -INFINITY;
            float found = best < experts && logits[best] == logits[best] ? logits[best] : -INFINITY;
            if (best == experts || value > found) best = e;
        }
        taken[best] = true;
    }
}

/* --- groups of experts ------------------------------------------------------------------------ */
static uint32_t groups_of(const struct lora_vector *c) { return c->b_line & 0xffff; }
static uint32_t taken_groups_of(const struct lora_vector *c) { return c->b_line >> 16; }

/* The largest of some values, NaN as -infinity. */
static float largest(const float *values, uint32_t count) {
    float first = -INFINITY;
    for (uint32_t i = 0; i < count; i++) first = values[i] > first ? values[i] : first;
    return first;
}

/* The two largest of some values, NaN as -infinity, added. */
static float largest_two(const float *values, uint32_t count) {
    float first = -INFINITY, second = -INFINITY;
    for (uint32_t i = 0; i < count; i++) {
        if (values[i] > first) {
            second = first;
            first = values[i];
        } else if (values[i] > second) {
            second = values[i];
        }
    }
    return first + second;
}

/* taken[expert] of the `extra` largest of `values` in the groups that the row takes, which are
 * those of the largest value(group). */
static void choose_in_groups(const struct lora_vector *c, const float *values,
                             float (*value)(const float *, uint32_t), bool *taken) {
    uint32_t groups = groups_of(c), each = c->columns / groups;
    float sums[LORA_MAX_EXPERTS] = {0};
    bool inside[LORA_MAX_EXPERTS], open[LORA_MAX_EXPERTS] = {false};
    for (uint32_t j = 0; j < groups && groups > 1; j++) sums[j] = value(values + j * each, each);
    choose(sums, NULL, groups, taken_groups_of(c), inside);
    for (uint32_t e = 0; e < c->columns; e++) open[e] = inside[e / each];
    choose(values, open, c->columns, c->extra, taken);
}

static bool groups_fit(const struct lora_vector *c) {
    uint32_t groups = groups_of(c), each = groups ? c->columns / groups : 0;
    return each && c->columns % groups == 0 && taken_groups_of(c) <= groups &&
           taken_groups_of(c) * each >= c->extra;
}

static bool is_factor(uint32_t bits) {
    float factor = float_of_bits(bits);
    return factor > 0.0f && factor < INFINITY;
}

/* --- ROUTE, ROUTE_CHOSEN ---------------------------------------------------------------------- */
static bool softmax_fits(const struct lora_vector *c) {
    return (c->b_line == 0 || groups_fit(c)) && (c->scalar == 0 || is_factor(c->scalar));
}

static void route(const struct lora_vector *c, const float *logits, struct lora_chosen *chosen) {
    bool taken[LORA_MAX_EXPERTS];
    float p[LORA_MAX_EXPERTS], max = -INFINITY, sum = 0.0f;
    if (c->b_line) choose_in_groups(c, logits, largest, taken);
    else choose(logits, NULL, c->columns, c->extra, taken);
    for (uint32_t e = 0; e < c->columns; e++) max = logits[e] > max ? logits[e] : max;
    for (uint32_t e = 0; e < c->columns; e++) {
        p[e] = exp32(logits[e] - max);
        if (taken[e] || c->op == LORA_VEC_ROUTE) sum = sum + p[e];
    }
    for (uint32_t e = 0; e < c->columns; e++)
        if (taken[e])
            *chosen++ = (struct lora_chosen){
                c->scalar ? p[e] / sum * float_of_bits(c->scalar) : p[e] / sum, e};
}

/* --- ROUTE_SIGMOID ---------------------------------------------------------------------------- */
static const float least_weights[3] = {0.0f, 1e-20f, 1e-6f}; /* by `first` */

static void route_sigmoid(const struct lora_vector *c, const float *logits, const float *bias,
                          struct lora_chosen *chosen) {
    float p[LORA_MAX_EXPERTS], values[LORA_MAX_EXPERTS], sum = 0.0f;
    float factor = float_of_bits(c->scalar);
    bool taken[LORA_MAX_EXPERTS];
    for (uint32_t e = 0; e < c->columns; e++) {
        p[e] = 1.0f / (1.0f + exp32(-logits[e]));
        values[e] = p[e] + bias[e];
    }
    choose_in_groups(c, values, largest_two, taken);
    for (uint32_t e = 0; e < c->columns; e++)
        if (taken[e]) sum = sum + p[e];
    sum = sum + least_weights[c->first];
    for (uint32_t e = 0; e < c->columns; e++)
        if (taken[e]) *chosen++ = (struct lora_chosen){(c->first ? p[e] / sum : p[e]) * factor, e};
}

static bool sigmoid_fits(const struct lora_vector *c) {
    bool pairs = groups_of(c) == 1 || groups_of(c) < c->columns;
    return groups_fit(c) && pairs && c->first <= 2 && is_factor(c->scalar);
}

static int run(struct lora_job *job, uint32_t item, uint32_t thread) {
    const struct vector_job *v = &job->vector;
    uint32_t first = item * v->rows;
    uint32_t end = job->rows - first < v->rows ? job->rows : first + v->rows;
    (void)thread;
    for (uint32_t row = first; row < end; row++) {
        const float *logits = float_row(v->x_rows, row);
        struct lora_chosen *chosen = (struct lora_chosen *)(void *)(v->y_rows.base +
                                                                    v->y_rows.stride * row);
        if (v->bias) route_sigmoid(v->command, logits, v->bias, chosen);
        else route(v->command, logits, chosen);
    }
    return LORA_OK;
}

int lora_route_begin(struct lora_job *job) {
    struct vector_job *v = &job->vector;
    const struct lora_vector *c = v->command;
    if (c->columns > LORA_MAX_EXPERTS || c->extra == 0 || c->extra > c->columns ||
        c->extra > LORA_MAX_CHOSEN)
        return LORA_ERR_SIZE;
    v->bias = NULL;
    if (c->op == LORA_VEC_ROUTE_SIGMOID) {
        if (!sigmoid_fits(c)) return LORA_ERR_SIZE;
        v->bias = call_at(job->call, c->a_bank, (uint64_t)c->a_line * LORA_LINE_BYTES,
                          4ull * c->columns, 4);
        if (!v->bias) return LORA_ERR_ADDRESS;
    } else if (!softmax_fits(c)) {
        return LORA_ERR_SIZE;
    }
    v->x_rows = call_operand(job->call, LORA_BANK_ONCHIP, c->x_offset, c->x_stride,
                             4ull * c->columns, 4);
    v->y_rows = call_operand(job->call, LORA_BANK_ONCHIP, c->y_offset, c->y_stride,
                             sizeof(struct lora_chosen) * c->extra, 4);
    if (!v->x_rows.base || !v->y_rows.base) return LORA_ERR_ADDRESS;
    lora_vector_cut(job, COLUMNS_PER_NS);
    job->run = run;
    return LORA_OK;
}

/* y = FP16(y + x/(1 + exp(-z))) of one row. */
static void add_gated(struct lora_job *job, uint32_t row, float *x) {
    const struct vector_job *v = &job->vector;
    uint32_t columns = v->command->columns;
    float *y = x + columns, share = 1.0f / (1.0f + exp32(-*float_row(v->z_rows, row)));
    job->variant->halves_to_floats(half_row(v->x_rows, row), columns, x);
    job->variant->halves_to_floats(half_row(v->y_rows, row), columns, y);
    for (uint32_t i = 0; i < columns; i++) y[i] = y[i] + share * x[i];
    job_count_nonfinite(job, row,
                        job->variant->floats_to_halves(y, columns, half_row(v->y_rows, row)));
}

static int run_gated(struct lora_job *job, uint32_t item, uint32_t thread) {
    struct vector_job *v = &job->vector;
    uint32_t first = item * v->rows;
    uint32_t end = job->rows - first < v->rows ? job->rows : first + v->rows;
    for (uint32_t row = first; row < end; row++)
        add_gated(job, row, v->x + 2ull * v->command->columns * thread);
    return LORA_OK;
}

int lora_add_gated_begin(struct lora_job *job) {
    struct vector_job *v = &job->vector;
    const struct lora_vector *c = v->command;
    v->z_rows = call_operand(job->call, LORA_BANK_ONCHIP, c->z_offset, c->z_stride, 4, 4);
    if (!v->z_rows.base) return LORA_ERR_ADDRESS;
    v->y_rows = call_operand(job->call, LORA_BANK_ONCHIP, c->y_offset, c->y_stride,
                             2ull * c->columns, 2);
    v->x_rows = call_operand(job->call, LORA_BANK_ONCHIP, c->x_offset, c->x_stride,
                             2ull * c->columns, 2);
    if (!v->x_rows.base || !v->y_rows.base) return LORA_ERR_ADDRESS;
    v->x = lora_job_memory(job, (2ull * c->columns * job->threads + 1) * sizeof(float));
    if (!v->x) return LORA_ERR_MEMORY;
    lora_vector_cut(job, COLUMNS_PER_NS);
    job->run = run_gated;
    return LORA_OK;
}
