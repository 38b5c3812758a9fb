/* LayerNorm and RMSNorm: this board's segment sums, and their use by all.
 * docs/numbers.md, 3.4, 3.5. */
#include <math.h>

#include "isa/half.h"
#include "job.h"
#include "norm_gamma.h"
#include "isa/segments.h"

#define LANES 4 /* segments side by side, as rows of a panel are laid */

/* Sums of a run of columns: T, Q and how many columns. */
struct sums {
    float total, squares;
    uint64_t columns;
};

static uint32_t store_sum(float value, float *target) {
    uint32_t bits = bits_of_float(value);
    *target = (bits & 0x7fffffff) > 0x7f800000 ? float_of_bits(LORA_FP32_NAN) : value;
    return (bits & 0x7f800000) == 0x7f800000;
}

/* The segments of whose columns this board has all, and where they are stored. */
struct local {
    uint32_t count, segment[LORA_SEGMENTS], columns[LORA_SEGMENTS], min;
    const uint16_t *x[LORA_SEGMENTS];
};

static struct local find_local(const struct lora_vector *c, const uint16_t *x) {
    struct local local = {.min = 0xffffffffu};
    uint64_t end = (uint64_t)c->first + c->columns;
    for (uint32_t s = 0, last, first = 0; s < LORA_SEGMENTS; s++, first = last) {
        last = segment_start(c->extra, s + 1);
        if (first == last || first < c->first || last > end) continue;
        uint32_t i = local.count++;
        local.segment[i] = s;
        local.columns[i] = last - first;
        local.x[i] = x + (first - c->first);
        local.min = last - first < local.min ? last - first : local.min;
    }
    return local;
}

/* One unit of four segments, or of eight: a lane each. A constant `squares`: of x - mean. */
static inline void add_lanes(const float x[LORA_UNIT_COLUMNS][PANEL_ROWS], const float *means,
                             const bool squares, float *sums) {
    float sum[LANES], mean[LANES];
    memcpy(sum, sums, sizeof(sum));
    memcpy(mean, means, sizeof(mean));
    for (uint32_t k = 0; k < LORA_UNIT_COLUMNS; k++)
        for (uint32_t i = 0; i < LANES; i++) {
            float value = x[k][i] - mean[i];
            sum[i] = sum[i] + (squares ? value * value : x[k][i]);
        }
    memcpy(sums, sum, sizeof(sum));
}

/* Units that all segments have. Within a segment each addition waits for the last, so the segments
 * are added side by side. */
static uint32_t add_units(const struct lora_job *job, const struct local *local, const float *means,
                          bool squares, float *sums) {
    float x[LORA_UNIT_COLUMNS][PANEL_ROWS];
    uint32_t k = 0;
    for (; local->count && k + LORA_UNIT_COLUMNS <= local->min; k += LORA_UNIT_COLUMNS)
        for (uint32_t first = 0; first < local->count; first += LANES) {
            const uint16_t *four[LANES];
            for (uint32_t i = 0; i < LANES; i++) /* what is no segment is not used */
                four[i] = local->x[first + i < local->count ? first + i : first] + k;
            job->variant->pack_panel(four, LORA_UNIT_COLUMNS, x[0]);
            if (squares) add_lanes(x, means + first, true, sums + first);
            else add_lanes(x, means + first, false, sums + first);
        }
    return k;
}

/* Sums of x, or of (x - mean)^2. */
static void add_segments(const struct lora_job *job, const struct local *local, const float *means,
                         bool squares, float *sums) {
    memset(sums, 0, LORA_SEGMENTS * sizeof(float));
    uint32_t done = add_units(job, local, means, squares, sums);
    for (uint32_t i = 0; i < local->count; i++)
        for (uint32_t k = done; k < local->columns[i]; k++) {
            float x = half_to_float(local->x[i][k]), value = x - means[i];
            sums[i] = sums[i] + (squares ? value * value : x);
        }
}

/* The records of the segments whose columns this board has; the others are not touched. */
void lora_norm_sums(struct lora_job *job, uint32_t row) {
    const struct lora_vector *c = job->vector.command;
    float *records = float_row(job->vector.z_rows, row);
    float totals[LORA_SEGMENTS], squares[LORA_SEGMENTS], means[LORA_SEGMENTS] = {0};
    int layer_norm = c->op == LORA_VEC_LN_SUMS;
    struct local local = find_local(c, half_row(job->vector.x_rows, row));
    if (layer_norm) add_segments(job, &local, means, false, totals);
    for (uint32_t i = 0; i < local.count && layer_norm; i++)
        means[i] = totals[i] / (float)local.columns[i];
    add_segments(job, &local, means, true, squares); /* of RMS: x - 0 is x */
    uint32_t bad = 0;
    for (uint32_t i = 0; i < local.count; i++) {
        float *record = records + (layer_norm ? 2 : 1) * local.segment[i];
        if (layer_norm) bad += store_sum(totals[i], record++);
        bad += store_sum(squares[i], record);
    }
    job_count_nonfinite(job, row, bad);
}

static struct sums merge(struct sums a, struct sums b) {
    if (a.columns == 0) return b;
    if (b.columns == 0) return a;
    float delta = b.total / (float)b.columns - a.total / (float)a.columns;
    float weight = (float)(a.columns * b.columns) / (float)(a.columns + b.columns);
    return (struct sums){.total = a.total + b.total,
                         .squares = (a.squares + b.squares) + (delta * delta) * weight,
                         .columns = a.columns + b.columns};
}

static struct sums merge_records(const float *records, uint32_t width) {
    struct sums level[LORA_SEGMENTS];
    for (uint32_t s = 0; s < LORA_SEGMENTS; s++)
        level[s] = (struct sums){records[2 * s], records[2 * s + 1],
                                 segment_start(width, s + 1) - segment_start(width, s)};
    for (uint32_t count = LORA_SEGMENTS; count > 1; count /= 2)
        for (uint32_t i = 0; i < count / 2; i++) level[i] = merge(level[2 * i], level[2 * i + 1]);
    return level[0];
}

/* RMSNorm's sum of squares; a segment without columns is +0. */
static float join_records(const float *records, uint32_t width) {
    float sums[LORA_SEGMENTS];
    for (uint32_t s = 0; s < LORA_SEGMENTS; s++)
        sums[s] = segment_start(width, s) < segment_start(width, s + 1) ? records[s] : 0.0f;
    return segment_tree(sums);
}

/* z = a parameter's values from its table, or its default where it is absent. */
static void load_parameter(const struct lora_job *job, const uint16_t *table, float absent,
                           float *z) {
    uint32_t columns = job->vector.command->columns;
    if (table) job->variant->halves_to_floats(table, columns, z);
    for (uint32_t i = 0; !table && i < columns; i++) z[i] = absent;
}

static void apply_rms(const struct lora_job *job, const float *records, float *x, float *z) {
    const struct lora_vector *c = job->vector.command;
    float eps = float_of_bits(c->scalar), width = (float)c->extra;
    float r = norm_numerator(c) / sqrtf(join_records(records, c->extra) / width + eps);
    load_parameter(job, job->vector.gamma, 1.0f, z);
    norm_add_one(c, z, c->columns);
    for (uint32_t i = 0; i < c->columns; i++) x[i] = (x[i] * r) * z[i];
}

static void apply_layer(const struct lora_job *job, const float *records, float *x, float *z) {
    const struct lora_vector *c = job->vector.command;
    float eps = float_of_bits(c->scalar), width = (float)c->extra;
    struct sums sums = merge_records(records, c->extra);
    float mean = sums.total / width;
    float r = 1.0f / sqrtf(sums.squares / width + eps);
    load_parameter(job, job->vector.gamma, 1.0f, z);
    for (uint32_t i = 0; i < c->columns; i++) x[i] = ((x[i] - mean) * r) * z[i];
    load_parameter(job, job->vector.beta, 0.0f, z);
    for (uint32_t i = 0; i < c->columns; i++) x[i] = x[i] + z[i];
}

void lora_norm_apply(struct lora_job *job, uint32_t row, float *x, float *z) {
    const struct vector_job *v = &job->vector;
    const float *records = float_row(v->z_rows, row);
    job->variant->halves_to_floats(half_row(v->x_rows, row), v->command->columns, x);
    if (v->command->op == LORA_VEC_RMS_APPLY) apply_rms(job, records, x, z);
    else apply_layer(job, records, x, z);
    uint16_t *y = half_row(v->y_rows, row);
    job_count_nonfinite(job, row, job->variant->floats_to_halves(x, v->command->columns, y));
}

/* A parameter table, NULL where absent. Each is read once a step, so it comes from memory:
 * meanwhile x is read. */
static int find_parameter(const struct lora_job *job, uint32_t bank, uint32_t line,
                          const uint16_t **table) {
    *table = NULL;
    if (bank == LORA_NO_BANK) return LORA_OK;
    uint64_t bytes = 2ull * job->vector.command->columns;
    *table = call_at(job->call, bank, (uint64_t)line * LORA_LINE_BYTES, bytes, 2);
    const char *first = (const char *)*table;
    for (uint64_t at = 0; first && at < bytes; at += LORA_LINE_BYTES)
        __builtin_prefetch(first + at);
    return *table ? LORA_OK : LORA_ERR_ADDRESS;
}

static int find_outputs(struct lora_job *job, int layer_norm) {
    struct vector_job *v = &job->vector;
    const struct lora_vector *c = v->command;
    v->y_rows = call_operand(job->call, c->y_bank, c->y_offset, c->y_stride, 2ull * c->columns, 2);
    int status = find_parameter(job, c->a_bank, c->a_line, &v->gamma);
    if (status == LORA_OK && layer_norm)
        status = find_parameter(job, c->b_bank, c->b_line, &v->beta);
    return v->y_rows.base ? status : LORA_ERR_ADDRESS;
}

int lora_norm_begin(struct lora_job *job) {
    struct vector_job *v = &job->vector;
    const struct lora_vector *c = v->command;
    int sums = c->op == LORA_VEC_LN_SUMS || c->op == LORA_VEC_RMS_SUMS;
    int layer_norm = c->op == LORA_VEC_LN_SUMS || c->op == LORA_VEC_LN_APPLY;
    uint64_t record_bytes = LORA_SEGMENTS * (layer_norm ? 8 : 4);
    v->x_rows = call_operand(job->call, LORA_BANK_ONCHIP, c->x_offset, c->x_stride,
                             2ull * c->columns, 2);
    v->z_rows = call_operand(job->call, LORA_BANK_ONCHIP, c->z_offset, c->z_stride, record_bytes,
                             4);
    if (!sums && find_outputs(job, layer_norm) != LORA_OK) return LORA_ERR_ADDRESS;
    if (!v->x_rows.base || !v->z_rows.base) return LORA_ERR_ADDRESS;
    return c->extra ? LORA_OK : LORA_ERR_SIZE;
}
