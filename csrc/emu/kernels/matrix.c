/* Matrix product y = FP16(x*W + bias), or FP32: a column tile at a time over all rows. */
#include <stdlib.h>

#include "half.h"
#include "operands.h"
#include "segments.h"
#include "variant.h"

struct product {
    struct lora_unit_call *call;
    const struct lora_matrix *command;
    const struct lora_variant *variant;
    uint32_t rows;
    float *x;                /* [rows][k] */
    float *parts;            /* [8][rows][32] */
    float *work;             /* [longest segment][32] */
    const uint16_t **blocks; /* of the tile at hand, by K */
};

static uint32_t k_blocks(const struct lora_matrix *command) {
    return (uint32_t)(((uint64_t)command->k + LORA_BLOCK_K - 1) / LORA_BLOCK_K);
}

static const uint16_t *weight_block(const struct product *p, uint32_t tile, uint32_t k_block) {
    const struct lora_matrix *c = p->command;
    uint64_t j = (uint64_t)tile * k_blocks(c) + k_block;
    uint64_t request = c->first + j / c->merge;
    uint64_t place = request / c->bank_count * c->merge + j % c->merge;
    uint32_t bank = c->bank_first + (uint32_t)(request % c->bank_count);
    uint64_t offset = (uint64_t)c->weight_line * LORA_LINE_BYTES + place * LORA_BLOCK_BYTES_FP16;
    return call_at(p->call, bank, offset, LORA_BLOCK_BYTES_FP16, sizeof(uint16_t));
}

/* The tree over eight arrays of `size` sums, into the first one. */
static void join_parts(float *parts, uint64_t size) {
    const float *a = parts, *b = a + size, *c = b + size, *d = c + size;
    const float *e = d + size, *f = e + size, *g = f + size, *h = g + size;
    for (uint64_t i = 0; i < size; i++)
        parts[i] = ((a[i] + b[i]) + (c[i] + d[i])) + ((e[i] + f[i]) + (g[i] + h[i]));
}

/* FP32 sums of one tile, the tree included, into parts[0]: [rows][32]. */
static int multiply_tile(struct product *p, uint32_t tile) {
    uint32_t count = k_blocks(p->command), k = p->command->k;
    for (uint32_t i = 0; i < count; i++) {
        p->blocks[i] = weight_block(p, tile, i);
        if (!p->blocks[i])
            return LORA_ERR_ADDRESS;
    }
    uint64_t size = (uint64_t)p->rows * LORA_BLOCK_N;
    for (uint32_t s = 0; s < LORA_SEGMENTS; s++)
        p->variant->segment(p->x, k, p->rows, segment_start(k, s), segment_start(k, s + 1),
                            p->blocks, p->work, p->parts + s * size);
    join_parts(p->parts, size);
    return LORA_OK;
}

static void add_bias(struct product *p, const uint16_t *bias, uint32_t columns) {
    float values[LORA_BLOCK_N];
    p->variant->halves_to_floats(bias, columns, values);
    for (uint32_t row = 0; row < p->rows; row++)
        for (uint32_t n = 0; n < columns; n++)
            p->parts[row * LORA_BLOCK_N + n] = p->parts[row * LORA_BLOCK_N + n] + values[n];
}

static uint32_t store_floats(const float *values, uint32_t count, float *target) {
    uint32_t bad = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t bits = bits_of_float(values[i]);
        bad += (bits & 0x7f800000) == 0x7f800000;
        target[i] = (bits & 0x7fffffff) > 0x7f800000 ? float_of_bits(LORA_FP32_NAN) : values[i];
    }
    return bad;
}

static void store_tile(struct product *p, struct rows y, uint32_t first, uint32_t columns) {
    for (uint32_t row = 0; row < p->rows; row++) {
        const float *values = p->parts + (uint64_t)row * LORA_BLOCK_N;
        uint32_t bad =
            p->command->y_type == LORA_FP32
                ? store_floats(values, columns, float_row(y, row) + first)
                : p->variant->floats_to_halves(values, columns, half_row(y, row) + first);
        call_count_nonfinite(p->call, row, bad);
    }
}

static int multiply(struct product *p, struct rows y, const uint16_t *bias) {
    uint32_t n = p->command->n;
    for (uint32_t tile = 0; tile * LORA_BLOCK_N < n; tile++) {
        uint32_t first = tile * LORA_BLOCK_N;
        uint32_t columns = n - first < LORA_BLOCK_N ? n - first : LORA_BLOCK_N;
        int status = multiply_tile(p, tile);
        if (status != LORA_OK)
            return status;
        if (bias)
            add_bias(p, bias + first, columns);
        store_tile(p, y, first, columns);
    }
    return LORA_OK;
}

/* One allocation for everything the product needs; 0 rows of pointers first, they align best. */
static void *allocate(struct product *p) {
    uint64_t k = p->command->k, rows = p->rows, longest = 0;
    for (uint32_t s = 0; s < LORA_SEGMENTS; s++) {
        uint64_t length = segment_start((uint32_t)k, s + 1) - segment_start((uint32_t)k, s);
        longest = length > longest ? length : longest;
    }
    uint64_t pointers = k_blocks(p->command) * sizeof(*p->blocks);
    uint64_t parts = LORA_SEGMENTS * rows * LORA_BLOCK_N, work = longest * LORA_BLOCK_N;
    void *memory = malloc(pointers + (parts + work + rows * k) * sizeof(float));
    if (memory) {
        p->blocks = memory;
        p->parts = (float *)(void *)((uint8_t *)memory + pointers);
        p->work = p->parts + parts;
        p->x = p->work + work;
    }
    return memory;
}

int lora_native_matrix(void *context, struct lora_unit_call *call) {
    (void)context;
    const struct lora_matrix *c = (const struct lora_matrix *)(const void *)call->command;
    struct product p = {.call = call, .command = c, .variant = lora_variant_current()};
    p.rows = call_rows(call);
    call->nonfinite_count = 0;
    call->nonfinite_row = NO_ROW;
    if (p.rows == 0)
        return LORA_OK;
    if (p.rows > LORA_MAX_ROWS || c->k == 0 || c->k > MOST_COLUMNS ||
        c->n > MOST_COLUMNS || c->bank_count == 0 || c->merge == 0)
        return LORA_ERR_SIZE;
    uint32_t size = c->y_type == LORA_FP32 ? 4 : 2;
    struct rows x = call_operand(call, c->x_bank, c->x_offset, c->x_stride, 2ull * c->k, 2);
    struct rows y =
        call_operand(call, c->y_bank, c->y_offset, c->y_stride, (uint64_t)size * c->n, size);
    const uint16_t *bias = NULL;
    if (c->bias_bank != LORA_NO_BANK) {
        uint64_t offset = (uint64_t)c->bias_line * LORA_LINE_BYTES;
        bias = call_at(call, c->bias_bank, offset, 2ull * c->n, 2);
        if (!bias)
            return LORA_ERR_ADDRESS;
    }
    if (!x.base || !y.base)
        return LORA_ERR_ADDRESS;
    void *memory = allocate(&p);
    if (!memory)
        return LORA_ERR_MEMORY;
    for (uint32_t row = 0; row < p.rows; row++)
        p.variant->halves_to_floats(half_row(x, row), c->k, p.x + (uint64_t)row * c->k);
    int status = multiply(&p, y, bias);
    free(memory);
    return status;
}
