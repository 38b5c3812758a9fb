/* LayerNorm and RMSNorm: this board's segment sums, and their use by all. */
#include <math.h>

#include "half.h"
#include "operands.h"
#include "segments.h"
#include "variant.h"

/* Sums of a run of columns: T, Q and how many columns. */
struct sums {
    float total, squares;
    uint64_t columns;
};

static const struct lora_vector *vector_of(const struct lora_unit_call *call) {
    return (const struct lora_vector *)(const void *)call->command;
}

static uint32_t store_sum(float value, float *target) {
    uint32_t bits = bits_of_float(value);
    *target = (bits & 0x7fffffff) > 0x7f800000 ? float_of_bits(LORA_FP32_NAN) : value;
    return (bits & 0x7f800000) == 0x7f800000;
}

static uint32_t ln_segment(const float *x, uint32_t count, float *record) {
    float total = 0.0f, squares = 0.0f;
    for (uint32_t i = 0; i < count; i++)
        total = total + x[i];
    float mean = total / (float)count;
    for (uint32_t i = 0; i < count; i++)
        squares = squares + (x[i] - mean) * (x[i] - mean);
    return store_sum(total, &record[0]) + store_sum(squares, &record[1]);
}

static uint32_t rms_segment(const float *x, uint32_t count, float *record) {
    float squares = 0.0f;
    for (uint32_t i = 0; i < count; i++)
        squares = squares + x[i] * x[i];
    return store_sum(squares, record);
}

/* The records of the segments whose columns stand on this board; the others are not touched. */
static void sum_row(struct lora_unit_call *call, uint32_t row, const float *x, float *records) {
    const struct lora_vector *c = vector_of(call);
    int layer_norm = c->op == LORA_VEC_LN_SUMS;
    uint64_t local_end = (uint64_t)c->first + c->columns;
    for (uint32_t s = 0; s < LORA_SEGMENTS; s++) {
        uint32_t start = segment_start(c->extra, s), end = segment_start(c->extra, s + 1);
        if (start == end || start < c->first || end > local_end)
            continue;
        const float *columns = x + (start - c->first);
        uint32_t bad = layer_norm ? ln_segment(columns, end - start, records + 2 * s)
                                  : rms_segment(columns, end - start, records + s);
        call_count_nonfinite(call, row, bad);
    }
}

static struct sums merge(struct sums a, struct sums b) {
    if (a.columns == 0)
        return b;
    if (b.columns == 0)
        return a;
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
        for (uint32_t i = 0; i < count / 2; i++)
            level[i] = merge(level[2 * i], level[2 * i + 1]);
    return level[0];
}

/* RMSNorm's sum of squares; a segment without columns is +0. */
static float join_records(const float *records, uint32_t width) {
    float sums[LORA_SEGMENTS];
    for (uint32_t s = 0; s < LORA_SEGMENTS; s++)
        sums[s] = segment_start(width, s) < segment_start(width, s + 1) ? records[s] : 0.0f;
    return segment_tree(sums);
}

static float parameter(const uint16_t *table, uint32_t column, float absent) {
    return table ? half_to_float(table[column]) : absent;
}

struct parameters {
    const uint16_t *gamma, *beta; /* NULL: 1 and +0 */
};

static void apply_row(const struct lora_vector *c, struct parameters p, const float *records,
                      float *x) {
    float eps = float_of_bits(c->scalar), width = (float)c->extra;
    if (c->op == LORA_VEC_RMS_APPLY) {
        float r = 1.0f / sqrtf(join_records(records, c->extra) / width + eps);
        for (uint32_t i = 0; i < c->columns; i++)
            x[i] = (x[i] * r) * parameter(p.gamma, i, 1.0f);
        return;
    }
    struct sums sums = merge_records(records, c->extra);
    float mean = sums.total / width;
    float r = 1.0f / sqrtf(sums.squares / width + eps);
    for (uint32_t i = 0; i < c->columns; i++)
        x[i] = ((x[i] - mean) * r) * parameter(p.gamma, i, 1.0f) + parameter(p.beta, i, 0.0f);
}

/* A parameter table, NULL where absent; 0 when it leaves its bank. */
static int find_parameter(const struct lora_unit_call *call, uint32_t bank, uint32_t line,
                          const uint16_t **table) {
    if (bank == LORA_NO_BANK)
        return 1;
    uint64_t bytes = 2ull * vector_of(call)->columns;
    *table = call_at(call, bank, (uint64_t)line * LORA_LINE_BYTES, bytes, 2);
    return *table != NULL;
}

int lora_native_norm(struct lora_unit_call *call, float *work) {
    const struct lora_vector *c = vector_of(call);
    const struct lora_variant *variant = lora_variant_current();
    int sums = c->op == LORA_VEC_LN_SUMS || c->op == LORA_VEC_RMS_SUMS;
    int layer_norm = c->op == LORA_VEC_LN_SUMS || c->op == LORA_VEC_LN_APPLY;
    uint64_t record_bytes = LORA_SEGMENTS * (layer_norm ? 8 : 4);
    struct rows x =
        call_operand(call, LORA_BANK_ONCHIP, c->x_offset, c->x_stride, 2ull * c->columns, 2);
    struct rows z = call_operand(call, LORA_BANK_ONCHIP, c->z_offset, c->z_stride, record_bytes, 4);
    struct rows y = {NULL, 0};
    struct parameters parameters = {NULL, NULL};
    if (!sums) {
        y = call_operand(call, c->y_bank, c->y_offset, c->y_stride, 2ull * c->columns, 2);
        if (!y.base || !find_parameter(call, c->a_bank, c->a_line, &parameters.gamma))
            return LORA_ERR_ADDRESS;
        if (layer_norm && !find_parameter(call, c->b_bank, c->b_line, &parameters.beta))
            return LORA_ERR_ADDRESS;
    }
    if (!x.base || !z.base)
        return LORA_ERR_ADDRESS;
    if (c->extra == 0)
        return LORA_ERR_SIZE;
    for (uint32_t row = 0; row < call_rows(call); row++) {
        variant->halves_to_floats(half_row(x, row), c->columns, work);
        if (sums) {
            sum_row(call, row, work, float_row(z, row));
            continue;
        }
        apply_row(c, parameters, float_row(z, row), work);
        call_count_nonfinite(call, row,
                             variant->floats_to_halves(work, c->columns, half_row(y, row)));
    }
    return LORA_OK;
}
