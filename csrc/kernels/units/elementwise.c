/* The vector unit: each value of a row by itself. docs/numbers.md, 3.9, 3.10, 3.15,
 * 3.18. */
#include "job.h"

#include "gelu_halves.h"
#include "isa/exponential.h"
#include "isa/half.h"
#include "lora/coefficients.h"

#define COLUMNS_PER_NS 1
#define PIECE_COLUMNS 512 /* at once: in FP32 they stay in the first cache */
#define TABLE_ROWS 8      /* from so many on, GELU by its table of all FP16 values */

/* Values of a row; x becomes y. */
struct piece {
    const struct lora_variant *variant;
    float *x, *z; /* [count]; z of operations on two rows */
    uint32_t count;
    float scalar, alpha; /* the command's; of SWIGLU_CLAMPED */
    bool squared;        /* RELU's */
};

static void residual(const struct piece *p) {
    for (uint32_t i = 0; i < p->count; i++) p->x[i] = p->x[i] + p->z[i];
}

static void residual_scaled(const struct piece *p) {
    for (uint32_t i = 0; i < p->count; i++) p->x[i] = p->x[i] + p->z[i] * p->scalar;
}

static void relu(const struct piece *p) {
    float *x = p->x;
    for (uint32_t i = 0; i < p->count; i++) x[i] = x[i] > 0.0f || x[i] != x[i] ? x[i] : 0.0f;
    for (uint32_t i = 0; i < p->count && p->squared; i++) x[i] = x[i] * x[i];
}

static void gelu_tanh(const struct piece *p) {
    p->variant->gelu(p->x, p->count, lora_gelu_tanh_a, lora_gelu_tanh_b);
}

static void gelu_erf(const struct piece *p) {
    p->variant->gelu(p->x, p->count, lora_gelu_erf_a, lora_gelu_erf_b);
}

static void swiglu(const struct piece *p) {
    for (uint32_t i = 0; i < p->count && p->scalar != 0.0f; i++) p->x[i] = p->x[i] * p->scalar;
    p->variant->swiglu(p->x, p->z, p->count);
}

static void swiglu_clamped(const struct piece *p) {
    p->variant->swiglu_clamped(p->x, p->z, p->count, p->scalar, p->alpha);
}

static void geglu(const struct piece *p) {
    gelu_tanh(p);
    for (uint32_t i = 0; i < p->count; i++) p->x[i] = p->x[i] * p->z[i];
}

static void gate(const struct piece *p) {
    for (uint32_t i = 0; i < p->count; i++) p->x[i] = p->x[i] * (1.0f / (1.0f + exp32(-p->z[i])));
}

struct operation {
    void (*apply)(const struct piece *p);
    bool two;                       /* has a z */
    const uint16_t *(*table)(void); /* of many rows: y by the bits of x; NULL: none */
};

static const struct operation operations[] = {
    [LORA_VEC_RESIDUAL] = {residual, true, NULL},
    [LORA_VEC_RESIDUAL_SCALED] = {residual_scaled, true, NULL},
    [LORA_VEC_RELU] = {relu, false, NULL},
    [LORA_VEC_GELU_TANH] = {gelu_tanh, false, lora_gelu_tanh_halves},
    [LORA_VEC_GELU_ERF] = {gelu_erf, false, lora_gelu_erf_halves},
    [LORA_VEC_SWIGLU] = {swiglu, true, NULL},
    [LORA_VEC_GEGLU] = {geglu, true, NULL},
    [LORA_VEC_GATE] = {gate, true, NULL},
    [LORA_VEC_SWIGLU_CLAMPED] = {swiglu_clamped, true, NULL},
};

/* Whether y may be written piece by piece: a row that it covers in part would be written before it
 * is read. */
static bool is_apart(const uint16_t *x, const uint16_t *y, uint32_t columns) {
    uintptr_t from = (uintptr_t)x, to = (uintptr_t)y, bytes = 2ull * columns;
    return from == to || from + bytes <= to || to + bytes <= from;
}

static uint32_t run_pieces(const struct lora_job *job, const struct operation *operation,
                           uint32_t row, struct piece p) {
    const struct vector_job *v = &job->vector;
    const uint16_t *x = half_row(v->x_rows, row);
    const uint16_t *z = operation->two ? half_row(v->z_rows, row) : x;
    uint16_t *y = half_row(v->y_rows, row);
    uint32_t columns = v->command->columns, bad = 0;
    bool apart = is_apart(x, y, columns) && is_apart(z, y, columns);
    for (uint32_t i = 0; i < columns; i += p.count) {
        uint32_t left = columns - i;
        p.count = apart && left > PIECE_COLUMNS ? PIECE_COLUMNS : left;
        p.variant->halves_to_floats(x + i, p.count, p.x);
        if (operation->two) p.variant->halves_to_floats(z + i, p.count, p.z);
        operation->apply(&p);
        bad += p.variant->floats_to_halves(p.x, p.count, y + i);
    }
    return bad;
}

static void run_row(struct lora_job *job, uint32_t row, uint32_t thread) {
    const struct vector_job *v = &job->vector;
    const struct operation *operation = &operations[v->command->op];
    uint32_t columns = v->command->columns;
    const uint16_t *x = half_row(v->x_rows, row);
    uint16_t *y = half_row(v->y_rows, row);
    struct piece p = {.variant = job->variant,
                      .scalar = float_of_bits(v->command->scalar),
                      .alpha = float_of_bits(v->command->extra)};
    p.squared = v->command->extra == 2;
    p.x = v->x + 2ull * columns * thread;
    p.z = p.x + columns;
    bool by_table = operation->table && job->rows >= TABLE_ROWS && is_apart(x, y, columns);
    job_count_nonfinite(job, row,
                        by_table ? lora_gelu_by_table(operation->table(), x, columns, y)
                                 : run_pieces(job, operation, row, p));
}

static int run(struct lora_job *job, uint32_t item, uint32_t thread) {
    uint32_t each = job->vector.rows, first = item * each;
    uint32_t end = job->rows - first < each ? job->rows : first + each;
    for (uint32_t row = first; row < end; row++) run_row(job, row, thread);
    return LORA_OK;
}

static int find_rows(struct lora_job *job) {
    struct vector_job *v = &job->vector;
    const struct lora_vector *c = v->command;
    if (!operations[c->op].two) return lora_vector_rows(job, 2, 2);
    v->z_rows = call_operand(job->call, LORA_BANK_ONCHIP, c->z_offset, c->z_stride,
                             2ull * c->columns, 2);
    return v->z_rows.base ? lora_vector_rows(job, 2, 2) : LORA_ERR_ADDRESS;
}

int lora_elementwise_begin(struct lora_job *job) {
    struct vector_job *v = &job->vector;
    uint32_t columns = v->command->columns;
    int status = find_rows(job);
    if (status != LORA_OK) return status;
    v->x = lora_job_memory(job, (2ull * columns * job->threads + 1) * sizeof(float));
    if (!v->x) return LORA_ERR_MEMORY;
    lora_vector_cut(job, COLUMNS_PER_NS);
    job->run = run;
    return LORA_OK;
}
