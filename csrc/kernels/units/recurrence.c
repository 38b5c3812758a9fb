/* Recurrences, and the short convolution. docs/numbers.md, 3.17. */
#include "isa/half.h"
#include "kept.h"
#include "lora/recurrence_layout.h"

#define MULTIPLICATIONS_PER_NS 1

/* Columns of one KV head. */
struct columns {
    const uint16_t *b, *x; /* of a row */
    float *held;           /* [count] of a position */
    float *sum;            /* [count] */
    uint16_t *product;     /* [count] */
    uint32_t count;
};

/* B*x of a row into its slot. */
static int keep(struct lora_job *job, const struct kept *kept, uint32_t row, struct columns *w) {
    for (uint32_t i = 0; i < w->count; i++)
        w->sum[i] = half_to_float(w->b[i]) * half_to_float(w->x[i]);
    job_count_nonfinite(job, row, job->variant->floats_to_halves(w->sum, w->count, w->product));
    return lora_kept_write(kept, kept_slot((uint32_t)call_row(job->call, row)->slot), 0, w->count,
                           w->product);
}

static int convolve(const struct lora_job *job, const struct kept *kept, const struct visible *seen,
                    struct columns *w) {
    const struct lora_recurrence *c = kept->command;
    struct recurrence_table table = recurrence_table(job->call->list, c);
    uint32_t seen_positions = seen->committed + seen->depth;
    for (uint32_t i = 0; i < w->count; i++) w->sum[i] = 0.0f;
    for (uint32_t t = 0; t < c->kernel; t++) {
        if (seen_positions + t < c->kernel) continue;
        const uint16_t *taps = (const uint16_t *)(const void *)(job->recurrence.table +
                                                                t * table.row) +
                               (size_t)kept->head * w->count;
        int status = lora_kept_read(kept, kept_at(seen, seen_positions + t - c->kernel), 0,
                                    w->count, w->held);
        if (status != LORA_OK) return status;
        for (uint32_t i = 0; i < w->count; i++)
            w->sum[i] = w->sum[i] + half_to_float(taps[i]) * w->held[i];
    }
    return LORA_OK;
}

/* The board's own columns of the head, times C. */
static void finish(struct lora_job *job, uint32_t row, uint32_t head, const struct columns *w) {
    const struct lora_recurrence *c = job->recurrence.command;
    uint32_t base = head * w->count, end = c->y_first + c->y_columns;
    uint32_t first = base > c->y_first ? base : c->y_first;
    uint32_t stop = base + w->count < end ? base + w->count : end;
    if (first >= stop) return;
    const uint16_t *gate = half_row(job->recurrence.x, row) + recurrence_row(job->call->list, c);
    for (uint32_t i = first; i < stop; i++)
        w->sum[i - base] = half_to_float(gate[i - c->y_first]) * w->sum[i - base];
    uint16_t *y = half_row(job->recurrence.y, row) + (first - c->y_first);
    job_count_nonfinite(job, row,
                        job->variant->floats_to_halves(w->sum + (first - base), stop - first, y));
}

/* A KV head's columns of all rows, each after those that it may see. */
static int run(struct lora_job *job, uint32_t head, uint32_t thread) {
    const struct recurrence_job *r = &job->recurrence;
    uint32_t count = recurrence_values(r->command), heads = job->call->list->kv_heads;
    struct kept kept = {job->call, r->command, head};
    struct columns w = {.held = r->memory + r->floats * thread, .count = count};
    w.sum = w.held + count;
    w.product = (uint16_t *)(void *)(w.sum + count);
    struct visible seen;
    int status = LORA_OK;
    for (uint32_t row = 0; row < job->rows && status == LORA_OK; row++) {
        w.b = half_row(r->x, row) + (size_t)head * count;
        w.x = w.b + (size_t)heads * count;
        status = lora_visible_find(job->call, call_row(job->call, row), &seen);
        if (status == LORA_OK) status = keep(job, &kept, row, &w);
        if (status == LORA_OK) status = convolve(job, &kept, &seen, &w);
        if (status == LORA_OK) finish(job, row, head, &w);
    }
    return status;
}

static int short_conv_begin(struct lora_job *job) {
    struct recurrence_job *r = &job->recurrence;
    uint32_t count = recurrence_values(r->command);
    r->floats = 3ull * count;
    r->memory = lora_job_memory(job, r->floats * job->threads * sizeof(float) + 4);
    if (!r->memory) return LORA_ERR_MEMORY;
    job->items = job->call->list->kv_heads;
    job->work = (uint64_t)job->rows * job->items * count * r->command->kernel /
                MULTIPLICATIONS_PER_NS;
    job->run = run;
    return LORA_OK;
}

static int find_operands(struct lora_job *job) {
    struct recurrence_job *r = &job->recurrence;
    const struct lora_recurrence *c = r->command;
    const struct lora_list *list = job->call->list;
    uint64_t inputs = (uint64_t)recurrence_row(list, c) + c->y_columns;
    r->x = call_operand(job->call, LORA_BANK_ONCHIP, c->x_offset, c->x_stride, inputs * 2, 2);
    r->y = call_operand(job->call, LORA_BANK_ONCHIP, c->y_offset, c->y_stride, 2ull * c->y_columns,
                        2);
    r->table = call_at(job->call, c->table_bank, (uint64_t)c->table_line * LORA_LINE_BYTES,
                       recurrence_table(list, c).bytes, LORA_LINE_BYTES);
    return r->x.base && r->y.base && r->table ? LORA_OK : LORA_ERR_ADDRESS;
}

int lora_recurrence_begin(struct lora_job *job) {
    struct recurrence_job *r = &job->recurrence;
    const struct lora_recurrence *c =
        (const struct lora_recurrence *)(const void *)job->call->command;
    const struct lora_list *list = job->call->list;
    r->command = c;
    if (list->kv_type != LORA_KV_FP16 || list->head_dim == 0 || list->kv_bank_count == 0 ||
        list->max_tiles > 0x10000 || c->kernel == 0 || c->kernel > LORA_MAX_CONVOLUTION ||
        recurrence_planes(list, c) > c->planes ||
        (uint32_t)c->kv_layer + c->planes > list->kv_layers)
        return LORA_ERR_SIZE;
    int status = find_operands(job);
    if (status != LORA_OK) return status;
    return c->form == LORA_RECURRENCE_SHORT_CONV ? short_conv_begin(job)
                                                 : lora_recurrent_state_begin(job);
}
