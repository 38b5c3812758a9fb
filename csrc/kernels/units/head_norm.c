/* RMSNorm of q and k: of each head by itself, or of all boards' heads by one sum a head.
 * docs/numbers.md, 3.12. */
#include <math.h>

#include "isa/half.h"
#include "job.h"
#include "lora/weight_blocks.h"
#include "norm_gamma.h"
#include "isa/segments.h"

/* The sum of squares of a head of FP16 values that are widened in x. */
static float squares(const float *x, uint32_t head_dim) {
    float sums[LORA_SEGMENTS];
    for (uint32_t s = 0, first = 0, last; s < LORA_SEGMENTS; s++, first = last) {
        last = segment_start(head_dim, s + 1);
        sums[s] = 0.0f;
        for (uint32_t i = first; i < last; i++) sums[s] = sums[s] + x[i] * x[i];
    }
    return segment_tree(sums);
}

static float reciprocal_root(const struct lora_vector *c, float sum, uint32_t width) {
    return norm_numerator(c) / sqrtf(sum / (float)width + float_of_bits(c->scalar));
}

static void multiply(float *x, uint32_t columns, float r, const float *gamma) {
    for (uint32_t i = 0; i < columns; i++) x[i] = (x[i] * r) * gamma[i];
}

static void load(const struct lora_job *job, uint32_t row, float *x) {
    const struct vector_job *v = &job->vector;
    job->variant->halves_to_floats(half_row(v->x_rows, row), v->command->columns, x);
}

static void store(struct lora_job *job, uint32_t row, const float *x) {
    const struct vector_job *v = &job->vector;
    uint16_t *y = half_row(v->y_rows, row);
    job_count_nonfinite(job, row, job->variant->floats_to_halves(x, v->command->columns, y));
}

void lora_head_norm_each(struct lora_job *job, uint32_t row, float *x, float *z) {
    const struct lora_vector *c = job->vector.command;
    if (c->columns == 0) return;
    load(job, row, x);
    job->variant->halves_to_floats(job->vector.gamma, c->extra, z);
    norm_add_one(c, z, c->extra);
    for (uint32_t d = 0; d < c->columns; d += c->extra)
        multiply(x + d, c->extra, reciprocal_root(c, squares(x + d, c->extra), c->extra), z);
    store(job, row, x);
}

void lora_head_norm_sums(struct lora_job *job, uint32_t row, float *x) {
    const struct lora_vector *c = job->vector.command;
    uint32_t head_dim = lora_head_width(c, job->call->list), bad = 0;
    float *sums = float_row(job->vector.z_rows, row) + c->first / head_dim;
    load(job, row, x);
    for (uint32_t d = 0; d < c->columns; d += head_dim, sums++) {
        float sum = squares(x + d, head_dim);
        bad += (bits_of_float(sum) & 0x7f800000) == 0x7f800000;
        *sums = sum != sum ? float_of_bits(LORA_FP32_NAN) : sum;
    }
    job_count_nonfinite(job, row, bad);
}

void lora_head_norm_row(struct lora_job *job, uint32_t row, float *x, float *z) {
    const struct lora_vector *c = job->vector.command;
    const float *sums = float_row(job->vector.z_rows, row);
    float total = 0.0f;
    for (uint32_t head = 0; head < c->extra / lora_head_width(c, job->call->list); head++)
        total = total + sums[head];
    load(job, row, x);
    job->variant->halves_to_floats(job->vector.gamma, c->columns, z);
    norm_add_one(c, z, c->columns);
    multiply(x, c->columns, reciprocal_root(c, total, c->extra), z);
    store(job, row, x);
}

static int find_gamma(struct lora_job *job, uint32_t columns) {
    const struct lora_vector *c = job->vector.command;
    job->vector.gamma = call_at(job->call, c->a_bank, (uint64_t)c->a_line * LORA_LINE_BYTES,
                                2ull * columns, 2);
    return job->vector.gamma ? LORA_OK : LORA_ERR_ADDRESS;
}

static int find_rows(struct lora_job *job) {
    const struct vector_job *v = &job->vector;
    int status = lora_vector_rows(job, 2, 2);
    bool x_alone = v->command->op == LORA_VEC_HEAD_SUMS && v->x_rows.base;
    return x_alone ? LORA_OK : status;
}

int lora_head_norm_begin(struct lora_job *job) {
    const struct lora_vector *c = job->vector.command;
    if (c->extra == 0 || c->columns % c->extra) return LORA_ERR_SIZE;
    int status = find_rows(job);
    return status == LORA_OK ? find_gamma(job, c->extra) : status;
}

int lora_head_row_begin(struct lora_job *job) {
    struct vector_job *v = &job->vector;
    const struct lora_vector *c = v->command;
    uint32_t head_dim = lora_head_width(c, job->call->list);
    if (head_dim == 0 || c->extra == 0 || c->extra > MAX_COLUMNS || c->extra % head_dim ||
        c->columns % head_dim || c->first % head_dim || (uint64_t)c->first + c->columns > c->extra)
        return LORA_ERR_SIZE;
    v->z_rows = call_operand(job->call, LORA_BANK_ONCHIP, c->z_offset, c->z_stride,
                             4ull * (c->extra / head_dim), 4);
    if (!v->z_rows.base) return LORA_ERR_ADDRESS;
    int status = find_rows(job);
    if (status != LORA_OK || c->op == LORA_VEC_HEAD_SUMS) return status;
    return find_gamma(job, c->columns);
}
