/* ROUTE: the experts that each row chooses, and their weights; ADD_GATED: what an expert of all
 * rows adds. docs/numbers.md, 3.16. */
#include <math.h>
#include <stdbool.h>

#include "isa/exponential.h"
#include "isa/half.h"
#include "job.h"

#define COLUMNS_PER_NS 1

/* The largest logits, of equal ones the first: taken[expert]. NaN counts as -infinity. */
static void choose(const float *logits, uint32_t experts, uint32_t count, bool *taken) {
    memset(taken, 0, experts);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t best = experts;
        for (uint32_t e = 0; e < experts; e++) {
            if (taken[e]) continue;
            float value = logits[e] == logits[e] ? logits[e] : -INFINITY;
            float found = best < experts && logits[best] == logits[best] ? logits[best] : -INFINITY;
            if (best == experts || value > found) best = e;
        }
        taken[best] = true;
    }
}

static void route(const struct lora_vector *c, const float *logits, struct lora_chosen *chosen) {
    bool taken[LORA_MAX_EXPERTS];
    float p[LORA_MAX_EXPERTS], max = -INFINITY, sum = 0.0f;
    choose(logits, c->columns, c->extra, taken);
    for (uint32_t e = 0; e < c->columns; e++) max = logits[e] > max ? logits[e] : max;
    for (uint32_t e = 0; e < c->columns; e++) {
        p[e] = exp32(logits[e] - max);
        if (taken[e] || c->op == LORA_VEC_ROUTE) sum = sum + p[e];
    }
    for (uint32_t e = 0; e < c->columns; e++)
        if (taken[e]) *chosen++ = (struct lora_chosen){p[e] / sum, e};
}

static int run(struct lora_job *job, uint32_t item, uint32_t thread) {
    const struct vector_job *v = &job->vector;
    uint32_t first = item * v->rows;
    uint32_t end = job->rows - first < v->rows ? job->rows : first + v->rows;
    (void)thread;
    for (uint32_t row = first; row < end; row++)
        route(v->command, float_row(v->x_rows, row),
              (struct lora_chosen *)(void *)(v->y_rows.base + v->y_rows.stride * row));
    return LORA_OK;
}

int lora_route_begin(struct lora_job *job) {
    struct vector_job *v = &job->vector;
    const struct lora_vector *c = v->command;
    if (c->columns > LORA_MAX_EXPERTS || c->extra == 0 || c->extra > c->columns ||
        c->extra > LORA_MAX_CHOSEN)
        return LORA_ERR_SIZE;
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
