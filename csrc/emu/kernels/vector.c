/* The vector unit's operations on rows of activations. */
#include <math.h>
#include <stdlib.h>

#include "exponential.h"
#include "half.h"
#include "operands.h"
#include "variant.h"

/* A call with its operands found: a row is read into x (and z), changed in place and stored. */
struct rows_call {
    struct lora_unit_call *call;
    const struct lora_vector *command;
    const struct lora_variant *variant;
    float *x, *z; /* [columns] each */
    struct rows x_rows, y_rows, z_rows;
};

static int find(struct rows_call *r, struct rows *rows, uint32_t bank, uint32_t offset,
                uint32_t stride) {
    *rows = call_operand(r->call, bank, offset, stride, 2ull * r->command->columns, 2);
    return rows->base != NULL;
}

static int find_x(struct rows_call *r) {
    return find(r, &r->x_rows, LORA_BANK_ONCHIP, r->command->x_offset, r->command->x_stride);
}

static int find_y(struct rows_call *r) {
    return find(r, &r->y_rows, r->command->y_bank, r->command->y_offset, r->command->y_stride);
}

static int find_z(struct rows_call *r) {
    return find(r, &r->z_rows, LORA_BANK_ONCHIP, r->command->z_offset, r->command->z_stride);
}

static void load(struct rows_call *r, struct rows rows, uint32_t row, float *values) {
    r->variant->halves_to_floats(half_row(rows, row), r->command->columns, values);
}

static void store(struct rows_call *r, struct rows rows, uint32_t row) {
    uint32_t bad = r->variant->floats_to_halves(r->x, r->command->columns, half_row(rows, row));
    call_count_nonfinite(r->call, row, bad);
}

/* Row of an FP16 table whose rows are the local columns, padded to whole lines. */
static const uint16_t *table_row(const struct rows_call *r, uint32_t bank, uint32_t line,
                                 uint64_t row) {
    uint64_t bytes = 2ull * r->command->columns;
    uint64_t offset = (uint64_t)line * LORA_LINE_BYTES + row * padded_lines(bytes);
    return call_at(r->call, bank, offset, bytes, 2);
}

static const uint16_t *input_row(const struct rows_call *r, const struct lora_row *row) {
    const struct lora_vector *c = r->command;
    if (!(row->flags & LORA_ROW_VECTOR))
        return table_row(r, c->a_bank, c->a_line, row->token);
    uint64_t offset = (uint64_t)r->call->state->block_offset + row->token + 2ull * c->first;
    return call_at(r->call, r->call->list->control_bank, offset, 2ull * c->columns, 2);
}

/* x += position[p + extra] */
static int add_position(struct rows_call *r, const struct lora_row *row) {
    const struct lora_vector *c = r->command;
    uint64_t index = (uint64_t)row->position + c->extra;
    const uint16_t *position = table_row(r, c->b_bank, c->b_line, index);
    if (!position)
        return 0;
    for (uint32_t i = 0; i < c->columns; i++)
        r->x[i] = r->x[i] + half_to_float(position[i]);
    return 1;
}

static int embed(struct rows_call *r) {
    const struct lora_vector *c = r->command;
    int from_x = c->op == LORA_VEC_ADD_POSITION;
    if (!find_y(r) || (from_x && !find_x(r)))
        return LORA_ERR_ADDRESS;
    for (uint32_t i = 0; i < call_rows(r->call); i++) {
        const struct lora_row *row = call_row(r->call, i);
        const uint16_t *input = from_x ? half_row(r->x_rows, i) : input_row(r, row);
        if (!input)
            return LORA_ERR_ADDRESS;
        r->variant->halves_to_floats(input, c->columns, r->x);
        if ((from_x || c->b_bank != LORA_NO_BANK) && !add_position(r, row))
            return LORA_ERR_ADDRESS;
        store(r, r->y_rows, i);
    }
    return LORA_OK;
}

/* One row's heads: pairs are columns i and i + head_dim/2; the table row is cos, then sin. */
static void turn(float *x, uint32_t columns, uint32_t head_dim, const float *table) {
    uint32_t half = head_dim / 2;
    for (uint32_t head = 0; head + head_dim <= columns; head += head_dim)
        for (uint32_t i = 0; i < half; i++) {
            float a = x[head + i], b = x[head + half + i], cos = table[i], sin = table[half + i];
            x[head + i] = a * cos - b * sin;
            x[head + half + i] = b * cos + a * sin;
        }
}

static int rope(struct rows_call *r) {
    const struct lora_vector *c = r->command;
    if (c->extra == 0 || c->extra % 2 || c->columns % c->extra)
        return LORA_ERR_SIZE;
    if (!find_x(r))
        return LORA_ERR_ADDRESS;
    for (uint32_t i = 0; i < call_rows(r->call); i++) {
        uint64_t stride = padded_lines(4ull * c->extra);
        uint64_t offset =
            (uint64_t)c->a_line * LORA_LINE_BYTES + call_row(r->call, i)->position * stride;
        const float *table = call_at(r->call, c->a_bank, offset, 4ull * c->extra, 4);
        if (!table)
            return LORA_ERR_ADDRESS;
        load(r, r->x_rows, i, r->x);
        turn(r->x, c->columns, c->extra, table);
        store(r, r->x_rows, i);
    }
    return LORA_OK;
}

static float gelu(float x, const float *a, const float *b) {
    if (!(x >= -8.0f) || !(x < 8.0f))
        return x < -8.0f ? 0.0f : x;
    float scaled = x * 64.0f;
    int32_t i = (int32_t)scaled;
    i -= (float)i > scaled; /* floor */
    float product = a[i + 512] * x;
    return product + b[i + 512];
}

static void change(struct rows_call *r) {
    float *x = r->x, *z = r->z;
    uint32_t columns = r->command->columns;
    switch (r->command->op) {
    case LORA_VEC_RESIDUAL:
        for (uint32_t i = 0; i < columns; i++)
            x[i] = x[i] + z[i];
        break;
    case LORA_VEC_RELU:
        for (uint32_t i = 0; i < columns; i++)
            x[i] = x[i] > 0.0f || x[i] != x[i] ? x[i] : 0.0f;
        break;
    case LORA_VEC_GELU_TANH:
        for (uint32_t i = 0; i < columns; i++)
            x[i] = gelu(x[i], lora_gelu_tanh_a, lora_gelu_tanh_b);
        break;
    case LORA_VEC_GELU_ERF:
        for (uint32_t i = 0; i < columns; i++)
            x[i] = gelu(x[i], lora_gelu_erf_a, lora_gelu_erf_b);
        break;
    default: /* LORA_VEC_SWIGLU */
        for (uint32_t i = 0; i < columns; i++)
            x[i] = silu32(x[i]) * z[i];
    }
}

static int elementwise(struct rows_call *r) {
    uint32_t op = r->command->op;
    int two = op == LORA_VEC_RESIDUAL || op == LORA_VEC_SWIGLU;
    if (!find_x(r) || !find_y(r) || (two && !find_z(r)))
        return LORA_ERR_ADDRESS;
    for (uint32_t row = 0; row < call_rows(r->call); row++) {
        load(r, r->x_rows, row, r->x);
        if (two)
            load(r, r->z_rows, row, r->z);
        change(r);
        store(r, r->y_rows, row);
    }
    return LORA_OK;
}

/* The first largest value, or the first NaN. */
static struct lora_argmax largest(const float *x, uint32_t columns, uint32_t first) {
    struct lora_argmax best = {-INFINITY, 0xffffffffu};
    for (uint32_t i = 0; i < columns; i++) {
        if (x[i] != x[i])
            return (struct lora_argmax){float_of_bits(LORA_FP32_NAN), first + i};
        if (i == 0 || x[i] > best.value)
            best = (struct lora_argmax){x[i], first + i};
    }
    return best;
}

static int argmax(struct rows_call *r) {
    const struct lora_vector *c = r->command;
    struct rows x =
        call_operand(r->call, c->y_bank, c->x_offset, c->x_stride, 4ull * c->columns, 4);
    struct rows y = call_operand(r->call, c->y_bank, c->y_offset, c->y_stride, 8, 4);
    if ((c->columns && !x.base) || !y.base)
        return LORA_ERR_ADDRESS;
    for (uint32_t row = 0; row < call_rows(r->call); row++) {
        struct lora_argmax best = largest(float_row(x, row), c->columns, c->first);
        memcpy(float_row(y, row), &best, sizeof(best));
        uint32_t bad = (bits_of_float(best.value) & 0x7f800000) == 0x7f800000;
        call_count_nonfinite(r->call, row, c->columns ? bad : 0);
    }
    return LORA_OK;
}

static int dispatch(struct rows_call *r) {
    switch (r->command->op) {
    case LORA_VEC_EMBED:
    case LORA_VEC_ADD_POSITION:
        return embed(r);
    case LORA_VEC_LN_SUMS:
    case LORA_VEC_RMS_SUMS:
    case LORA_VEC_LN_APPLY:
    case LORA_VEC_RMS_APPLY:
        return lora_native_norm(r->call, r->x);
    case LORA_VEC_ROPE:
        return rope(r);
    case LORA_VEC_RESIDUAL:
    case LORA_VEC_RELU:
    case LORA_VEC_GELU_TANH:
    case LORA_VEC_GELU_ERF:
    case LORA_VEC_SWIGLU:
        return elementwise(r);
    case LORA_VEC_ARGMAX:
        return argmax(r);
    default:
        return LORA_ERR_OPCODE;
    }
}

int lora_native_vector(void *context, struct lora_unit_call *call) {
    (void)context;
    struct rows_call r = {.call = call, .variant = lora_variant_current()};
    r.command = (const struct lora_vector *)(const void *)call->command;
    call->nonfinite_count = 0;
    call->nonfinite_row = NO_ROW;
    if (call_rows(call) == 0)
        return LORA_OK;
    if (call_rows(call) > LORA_MAX_ROWS || r.command->columns > MOST_COLUMNS)
        return LORA_ERR_SIZE;
    r.x = malloc((2ull * r.command->columns + 1) * sizeof(float));
    if (!r.x)
        return LORA_ERR_MEMORY;
    r.z = r.x + r.command->columns;
    int status = dispatch(&r);
    free(r.x);
    return status;
}
