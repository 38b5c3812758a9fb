/* The vector unit's operations around INT8: quantizing by a static scale, a head's or a row's own,
 * and the order of a row's elements. docs/numbers.md, 6.1, 6.5, 6.7, 6.10. */
#include "isa/half.h"
#include "isa/integer.h"
#include "job.h"

#define COLUMNS_PER_NS 2
#define INVERSE_127 0x1.020408p-7f

static const uint16_t *source_row(const struct vector_job *v, uint32_t row) {
    return half_row(v->x_rows, row);
}

static int8_t *target_row(const struct vector_job *v, uint32_t row) {
    return (int8_t *)(v->y_rows.base + v->y_rows.stride * row);
}

static int quantize(struct lora_job *job, uint32_t row, uint32_t thread) {
    const struct vector_job *v = &job->vector;
    (void)thread;
    float inverse = float_of_bits(v->command->scalar);
    uint32_t bad = lora_integer_current()->quantize(source_row(v, row), v->command->columns,
                                                    inverse, target_row(v, row));
    job_count_nonfinite(job, row, bad);
    return LORA_OK;
}

/* The maximum |x|, NaN left out. */
static float max_magnitude(const uint16_t *x, uint32_t count) {
    return half_to_float(lora_integer_current()->max_magnitude(x, count));
}

static int quantize_heads(struct lora_job *job, uint32_t row, uint32_t thread) {
    const struct vector_job *v = &job->vector;
    (void)thread;
    uint32_t head_dim = v->command->extra, bad = 0;
    uint16_t *scales = half_row(v->z_rows, row);
    for (uint32_t d = 0; d < v->command->columns; d += head_dim, scales++) {
        const uint16_t *x = source_row(v, row) + d;
        *scales = float_to_half(max_magnitude(x, head_dim) / 127.0f);
        float scale = half_to_float(*scales), inverse = scale == 0.0f ? 0.0f : 1.0f / scale;
        bad += lora_integer_current()->quantize(x, head_dim, inverse, target_row(v, row) + d);
    }
    job_count_nonfinite(job, row, bad);
    return LORA_OK;
}

static struct lora_row_scale *row_scale(const struct vector_job *v, uint32_t row) {
    return (struct lora_row_scale *)(void *)(v->z_rows.base + v->z_rows.stride * row);
}

static int row_max(struct lora_job *job, uint32_t row, uint32_t thread) {
    const struct vector_job *v = &job->vector;
    (void)thread;
    row_scale(v, row)->maxima[v->command->first] = max_magnitude(source_row(v, row),
                                                                 v->command->columns);
    return LORA_OK;
}

static int quantize_row(struct lora_job *job, uint32_t row, uint32_t thread) {
    const struct vector_job *v = &job->vector;
    (void)thread;
    struct lora_row_scale *found = row_scale(v, row);
    float max = 0.0f;
    for (uint32_t i = 0; i < v->command->extra; i++)
        max = found->maxima[i] > max ? found->maxima[i] : max;
    found->scale = max * INVERSE_127;
    float inverse = max == 0.0f ? 0.0f : 127.0f / max;
    uint32_t bad = lora_integer_current()->quantize(source_row(v, row), v->command->columns,
                                                    inverse, target_row(v, row));
    job_count_nonfinite(job, row, bad);
    return LORA_OK;
}

/* An index beyond the row is refused before anything of it is read. */
static int permute(struct lora_job *job, uint32_t row, uint32_t thread) {
    const struct vector_job *v = &job->vector;
    uint32_t columns = v->command->columns, width = v->command->extra;
    uint8_t *work = (uint8_t *)v->x + 2ull * columns * thread;
    memcpy(work, v->x_rows.base + v->x_rows.stride * row, (uint64_t)columns * width);
    uint8_t *y = v->y_rows.base + v->y_rows.stride * row;
    for (uint32_t i = 0; i < columns; i++) {
        if (v->order[i] >= columns) return LORA_ERR_SIZE;
        memcpy(y + (uint64_t)i * width, work + (uint64_t)v->order[i] * width, width);
    }
    return LORA_OK;
}

static int run(struct lora_job *job, uint32_t item, uint32_t thread) {
    const struct vector_job *v = &job->vector;
    uint32_t first = item * v->rows;
    uint32_t end = job->rows - first < v->rows ? job->rows : first + v->rows;
    int status = LORA_OK;
    for (uint32_t row = first; row < end && status == LORA_OK; row++)
        status = v->run_row(job, row, thread);
    return status;
}

static int find_scales(struct lora_job *job) {
    struct vector_job *v = &job->vector;
    const struct lora_vector *c = v->command;
    if (c->extra == 0 || c->columns % c->extra) return LORA_ERR_SIZE;
    v->z_rows = call_operand(job->call, LORA_BANK_ONCHIP, c->z_offset, c->z_stride,
                             2ull * (c->columns / c->extra), 2);
    return v->z_rows.base ? lora_vector_rows(job, 2, 1) : LORA_ERR_ADDRESS;
}

static int find_row_scales(struct lora_job *job) {
    struct vector_job *v = &job->vector;
    const struct lora_vector *c = v->command;
    int quantizes = c->op == LORA_VEC_QUANTIZE_ROW;
    if (c->extra == 0 || c->extra > LORA_ROW_MAXIMA || (!quantizes && c->first >= c->extra))
        return LORA_ERR_SIZE;
    v->z_rows = call_operand(job->call, LORA_BANK_ONCHIP, c->z_offset, c->z_stride,
                             sizeof(struct lora_row_scale), 4);
    if (!v->z_rows.base) return LORA_ERR_ADDRESS;
    if (quantizes) return lora_vector_rows(job, 2, 1);
    v->x_rows = call_operand(job->call, LORA_BANK_ONCHIP, c->x_offset, c->x_stride,
                             2ull * c->columns, 2);
    return v->x_rows.base ? LORA_OK : LORA_ERR_ADDRESS;
}

static int find_order(struct lora_job *job) {
    struct vector_job *v = &job->vector;
    const struct lora_vector *c = v->command;
    if (c->extra != 1 && c->extra != 2) return LORA_ERR_SIZE;
    v->order = call_at(job->call, c->a_bank, (uint64_t)c->a_line * LORA_LINE_BYTES,
                       4ull * c->columns, 4);
    v->x = lora_job_memory(job, 2ull * c->columns * job->threads);
    if (!v->x) return LORA_ERR_MEMORY;
    return v->order ? lora_vector_rows(job, c->extra, c->extra) : LORA_ERR_ADDRESS;
}

typedef int row_function(struct lora_job *job, uint32_t row, uint32_t thread);

/* `status`: of the search for the operands. */
static int cut(struct lora_job *job, row_function *run_row, int status) {
    struct vector_job *v = &job->vector;
    v->run_row = run_row;
    lora_vector_cut(job, COLUMNS_PER_NS);
    job->run = run;
    return status;
}

int lora_quantize_begin(struct lora_job *job) {
    return cut(job, quantize, lora_vector_rows(job, 2, 1));
}

int lora_quantize_heads_begin(struct lora_job *job) {
    return cut(job, quantize_heads, find_scales(job));
}

int lora_row_max_begin(struct lora_job *job) { return cut(job, row_max, find_row_scales(job)); }

int lora_quantize_row_begin(struct lora_job *job) {
    return cut(job, quantize_row, find_row_scales(job));
}

int lora_permute_begin(struct lora_job *job) { return cut(job, permute, find_order(job)); }
