/* Tiles of weights in GGUF's blocks: values and scales as the file has them, laid as boards read
 * them (abi.h). docs/numbers.md, 6.11. */
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "lora/weight_blocks.h"
#include "pack.h"

#define N LORA_BLOCK_N
#define K LORA_BLOCK_K
#define GROUPS 8 /* of 16 inputs, of a block */
#define SUPER 256
#define BEYOND_HALF 65520.0f
#define NO_NUMBER 255 /* as MXFP4's e */

static const int8_t meaning[] = LORA_GGUF_CODEBOOK, e2m1[] = LORA_GGUF_E2M1;

/* K inputs of one output: weight = v*scale - minimum, by groups of 16, as the formulas of GGUF have
 * them: FP16 numbers d and m of groups of 32, or d, dmin and the integers that they multiply; of
 * MXFP4 d is the exponent e. */
struct column {
    int8_t values[K];
    uint16_t d[GROUPS / 2], m[GROUPS / 2];
    uint16_t block_d, dmin;
    int8_t scales[GROUPS];
    uint8_t minima[GROUPS];
};

typedef void (*read_column)(const uint8_t *row, uint64_t k, struct column *column);

static float float_of(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* The product is exact and sets the exponent's bias, subnormals included. */
static float half_value(uint16_t half) {
    float size = float_of((uint32_t)(half & 0x7fff) << 13) * 0x1p112f;
    if ((half & PACK_EXPONENT) == PACK_EXPONENT) size = half & 0x3ff ? NAN : INFINITY;
    return half & 0x8000 ? -size : size;
}

static uint16_t load_half(const uint8_t *at) {
    uint16_t half;
    memcpy(&half, at, sizeof half);
    return half;
}

/* Sixteen bytes of nibbles: low halves first. */
static void read_nibbles(const uint8_t *packed, int8_t *values) {
    for (int i = 0; i < 16; i++) {
        values[i] = (int8_t)(packed[i] & 15);
        values[16 + i] = (int8_t)(packed[i] >> 4);
    }
}

static void add_fifth(const uint8_t *bits, int8_t *values, int offset) {
    for (int i = 0; i < 32; i++)
        values[i] = (int8_t)(values[i] + ((bits[i / 8] >> i % 8 & 1) << 4) - offset);
}

/* --- blocks of 32 ----------------------------------------------------------------------------- */
#define EACH_32(bytes)                                                                             \
    const uint8_t *at = row + k / 32 * (bytes);                                                    \
    for (uint32_t g = 0; g < GROUPS / 2; g++, at += (bytes))

static void read_q8_0(const uint8_t *row, uint64_t k, struct column *column) {
    EACH_32(34) {
        column->d[g] = load_half(at);
        memcpy(column->values + 32 * g, at + 2, 32);
    }
}

static void read_q4_0(const uint8_t *row, uint64_t k, struct column *column) {
    EACH_32(18) {
        int8_t *values = column->values + 32 * g;
        column->d[g] = load_half(at);
        read_nibbles(at + 2, values);
        for (int i = 0; i < 32; i++) values[i] = (int8_t)(values[i] - 8);
    }
}

static void read_iq4_nl(const uint8_t *row, uint64_t k, struct column *column) {
    EACH_32(18) {
        int8_t *values = column->values + 32 * g;
        column->d[g] = load_half(at);
        read_nibbles(at + 2, values);
        for (int i = 0; i < 32; i++) values[i] = meaning[values[i]];
    }
}

static int is_zero(const int8_t *values) {
    int any = 0;
    for (int i = 0; i < 32; i++) any |= values[i];
    return !any;
}

/* v/2^bits as a whole number, nearest even: 0, 1, 2, 3, 4 or 6, as E2M1 has them. */
static int8_t halved(int8_t v, uint32_t bits) {
    int size = v < 0 ? -v : v, whole, rest, half;
    if (bits > 4) return 0;
    whole = size >> bits;
    rest = size - (whole << bits);
    half = 1 << bits >> 1;
    whole += bits && (rest > half || (rest == half && whole & 1));
    return (int8_t)(v < 0 ? -whole : whole);
}

/* A group below the least e has the weights of one with it; the e of zeros alone is free. */
static void read_mxfp4(const uint8_t *row, uint64_t k, struct column *column) {
    EACH_32(17) {
        int8_t *values = column->values + 32 * g;
        uint32_t e = at[0];
        read_nibbles(at + 1, values);
        for (int i = 0; i < 32; i++) values[i] = e2m1[values[i]];
        for (int i = 0; i < 32 && e < LORA_MXFP4_LEAST; i++)
            values[i] = halved(values[i], LORA_MXFP4_LEAST - e);
        if (e < LORA_MXFP4_LEAST || (e < NO_NUMBER && is_zero(values))) e = LORA_MXFP4_LEAST;
        column->d[g] = (uint16_t)e;
    }
}

static void read_q5_0(const uint8_t *row, uint64_t k, struct column *column) {
    EACH_32(22) {
        column->d[g] = load_half(at);
        read_nibbles(at + 6, column->values + 32 * g);
        add_fifth(at + 2, column->values + 32 * g, 16);
    }
}

static void read_q4_1(const uint8_t *row, uint64_t k, struct column *column) {
    EACH_32(20) {
        column->d[g] = load_half(at);
        column->m[g] = load_half(at + 2);
        read_nibbles(at + 4, column->values + 32 * g);
    }
}

static void read_q5_1(const uint8_t *row, uint64_t k, struct column *column) {
    EACH_32(24) {
        column->d[g] = load_half(at);
        column->m[g] = load_half(at + 2);
        read_nibbles(at + 8, column->values + 32 * g);
        add_fifth(at + 4, column->values + 32 * g, 0);
    }
}

/* --- halves of blocks of 256 ------------------------------------------------------------------ */
/* Scales and minima of 6 bits, each of 32 inputs. */
static void read_six(const uint8_t *packed, uint32_t half, struct column *column) {
    for (uint32_t g = 0; g < GROUPS; g++) {
        uint32_t i = g / 2;
        const uint8_t *third = packed + 8 + i;
        column->scales[g] = (int8_t)(half ? (third[0] & 15) | packed[i] >> 6 << 4 : packed[i] & 63);
        column->minima[g] = (uint8_t)(half ? third[0] >> 4 | packed[4 + i] >> 6 << 4
                                           : packed[4 + i] & 63);
    }
}

static void read_q45(const uint8_t *at, const uint8_t *packed, const uint8_t *fifth, uint32_t half,
                     struct column *column) {
    column->block_d = load_half(at);
    column->dmin = load_half(at + 2);
    read_six(at + 4, half, column);
    packed += half * 64;
    for (uint32_t i = 0; i < K; i++) {
        uint32_t v = packed[i / 64 * 32 + i % 32] >> i / 32 % 2 * 4 & 15u;
        if (fifth) v |= (fifth[i % 32] >> (half * 4 + i / 32) & 1u) << 4;
        column->values[i] = (int8_t)v;
    }
}

static void read_q4_k(const uint8_t *row, uint64_t k, struct column *column) {
    const uint8_t *at = row + k / SUPER * 144;
    read_q45(at, at + 16, NULL, k / K % 2, column);
}

static void read_q5_k(const uint8_t *row, uint64_t k, struct column *column) {
    const uint8_t *at = row + k / SUPER * 176;
    read_q45(at, at + 48, at + 16, k / K % 2, column);
}

static uint32_t two_bits(const uint8_t *packed, uint32_t i) {
    return packed[i % 32] >> i / 32 * 2 & 3u;
}

static void read_q6_k(const uint8_t *row, uint64_t k, struct column *column) {
    const uint8_t *at = row + k / SUPER * 210;
    uint32_t half = k / K % 2;
    const uint8_t *low = at + half * 64, *high = at + 128 + half * 32;
    for (uint32_t i = 0; i < K; i++)
        column->values[i] =
            (int8_t)((int)((low[i % 64] >> i / 64 * 4 & 15u) | two_bits(high, i) << 4) - 32);
    memcpy(column->scales, at + 192 + half * GROUPS, GROUPS);
    column->block_d = load_half(at + 208);
}

static void read_q3_k(const uint8_t *row, uint64_t k, struct column *column) {
    const uint8_t *at = row + k / SUPER * 110, *packed = at + 96;
    uint32_t half = k / K % 2;
    for (uint32_t i = 0; i < K; i++) {
        int third = at[i % 32] >> (half * 4 + i / 32) & 1; /* without it 4 is subtracted */
        column->values[i] = (int8_t)((int)two_bits(at + 32 + half * 32, i) - (third ? 0 : 4));
    }
    for (uint32_t g = 0; g < GROUPS; g++) {
        uint32_t i = half * GROUPS + g;
        uint32_t scale = (packed[g] >> half * 4 & 15u) | (packed[8 + i % 4] >> i / 4 * 2 & 3u) << 4;
        column->scales[g] = (int8_t)((int)scale - 32);
    }
    column->block_d = load_half(at + 108);
}

static void read_q2_k(const uint8_t *row, uint64_t k, struct column *column) {
    const uint8_t *at = row + k / SUPER * 84;
    uint32_t half = k / K % 2;
    for (uint32_t i = 0; i < K; i++) column->values[i] = (int8_t)two_bits(at + 16 + half * 32, i);
    for (uint32_t g = 0; g < GROUPS; g++) {
        column->scales[g] = (int8_t)(at[half * GROUPS + g] & 15);
        column->minima[g] = at[half * GROUPS + g] >> 4;
    }
    column->block_d = load_half(at + 80);
    column->dmin = load_half(at + 82);
}

#define BIT(kind) (1u << LORA_GGUF_##kind)

/* A source: inputs and bytes of its block, and the blocks of boards that hold its numbers. */
static const struct source {
    read_column read;
    uint32_t inputs, bytes, kinds;
} sources[] = {
    [LORA_SOURCE_Q4_0] = {read_q4_0, 32, 18, BIT(Q4_0) | BIT(Q5_0) | BIT(Q8_0)},
    [LORA_SOURCE_IQ4_NL] = {read_iq4_nl, 32, 18, BIT(IQ4_NL) | BIT(Q8_0)},
    [LORA_SOURCE_MXFP4] = {read_mxfp4, 32, 17, BIT(MXFP4)},
    [LORA_SOURCE_Q5_0] = {read_q5_0, 32, 22, BIT(Q5_0) | BIT(Q8_0)},
    [LORA_SOURCE_Q8_0] = {read_q8_0, 32, 34, BIT(Q8_0)},
    [LORA_SOURCE_Q4_1] = {read_q4_1, 32, 20, BIT(Q4_1) | BIT(Q5_1)},
    [LORA_SOURCE_Q5_1] = {read_q5_1, 32, 24, BIT(Q5_1)},
    [LORA_SOURCE_Q2_K] = {read_q2_k, SUPER, 84, BIT(K_MIXED)},
    [LORA_SOURCE_Q3_K] = {read_q3_k, SUPER, 110, BIT(Q6_K) | BIT(K_MIXED)},
    [LORA_SOURCE_Q4_K] = {read_q4_k, SUPER, 144, BIT(Q4_K) | BIT(Q5_K) | BIT(K_MIXED)},
    [LORA_SOURCE_Q5_K] = {read_q5_k, SUPER, 176, BIT(Q5_K) | BIT(K_MIXED)},
    [LORA_SOURCE_Q6_K] = {read_q6_k, SUPER, 210, BIT(Q6_K) | BIT(K_MIXED)},
};

static uint32_t kind_of(uint32_t weight_type) { return weight_type >> LORA_WEIGHT_GROUP_SHIFT; }

int pack_gguf_fits(uint32_t element, uint32_t weight_type) {
    return (weight_type & LORA_WEIGHT_TYPE_MASK) == LORA_WEIGHT_GGUF &&
           element < sizeof sources / sizeof sources[0] &&
           (sources[element].kinds >> kind_of(weight_type) & 1u);
}

uint64_t pack_gguf_inputs(uint32_t element, uint64_t row_bytes) {
    return row_bytes % sources[element].bytes
               ? 0
               : row_bytes / sources[element].bytes * sources[element].inputs;
}

uint64_t pack_gguf_row_bytes(uint32_t element, uint64_t k) {
    const struct source *source = &sources[element];
    return k % source->inputs ? UINT64_MAX : k / source->inputs * source->bytes;
}

/* --- are all weights FP16? -------------------------------------------------------------------- */
static void scaling(const struct source *source, const struct column *column, uint32_t group,
                    float *scale, float *minimum) {
    if (source->inputs == SUPER) {
        *scale = half_value(column->block_d) * (float)column->scales[group];
        *minimum = half_value(column->dmin) * (float)column->minima[group];
    } else if (source->kinds == BIT(MXFP4)) {
        uint32_t e = column->d[group / 2];
        *scale = e == NO_NUMBER ? NAN : float_of((e - 1) << 23);
        *minimum = 0;
    } else {
        *scale = half_value(column->d[group / 2]);
        *minimum = -half_value(column->m[group / 2]);
    }
}

static int is_half(float weight) { return fabsf(weight) < BEYOND_HALF; }

/* Whether any values of 8 bits are FP16 with this scale and minimum. */
static int is_always_half(float scale, float minimum) {
    return fabsf(scale) * 128.0f + fabsf(minimum) < 0.99f * BEYOND_HALF;
}

/* Index of the first weight that FP16 cannot hold; `count` without one. */
static uint32_t find_beyond(const struct source *source, const struct column *column,
                            uint32_t count, float *found) {
    for (uint32_t group = 0; group < count / 16; group++) {
        const int8_t *values = column->values + 16 * group;
        int low = values[0], high = values[0];
        float scale, minimum;
        scaling(source, column, group, &scale, &minimum);
        if (is_always_half(scale, minimum)) continue;
        for (int i = 1; i < 16; i++) {
            low = values[i] < low ? values[i] : low;
            high = values[i] > high ? values[i] : high;
        }
        if (is_half((float)low * scale - minimum) && is_half((float)high * scale - minimum))
            continue;
        for (uint32_t i = 0; i < 16; i++) {
            *found = (float)values[i] * scale - minimum;
            if (!is_half(*found)) return 16 * group + i;
        }
    }
    return count;
}

/* --- a block ---------------------------------------------------------------------------------- */
struct tile { /* of columns, before it is packed */
    uint8_t values[K][N];
    struct column columns[N];
};

static uint8_t *put_halves(uint8_t *at, const struct tile *tile, size_t offset, uint32_t groups) {
    for (uint32_t g = 0; g < groups; g++)
        for (uint32_t n = 0; n < N; n++, at += 2)
            memcpy(at, (const uint8_t *)&tile->columns[n] + offset + 2 * g, 2);
    return at;
}

static void put_six(uint8_t *low, const struct tile *tile) {
    uint8_t *high = low + GROUPS / 2 * N;
    memset(high, 0, GROUPS / 4 * N);
    for (uint32_t g = 0; g < GROUPS / 2; g++)
        for (uint32_t n = 0; n < N; n++) {
            uint32_t scale = (uint8_t)tile->columns[n].scales[2 * g];
            uint32_t minimum = tile->columns[n].minima[2 * g];
            low[g * N + n] = (uint8_t)((scale & 15) | (minimum & 15) << 4);
            high[g / 2 * N + n] |= (uint8_t)((scale >> 4 | minimum >> 4 << 2) << g % 2 * 4);
        }
}

static uint8_t *put_bytes(uint8_t *at, const struct tile *tile, size_t offset) {
    for (uint32_t g = 0; g < GROUPS; g++)
        for (uint32_t n = 0; n < N; n++) *at++ = ((const uint8_t *)&tile->columns[n])[offset + g];
    return at;
}

/* `block`: its number along K. */
static void put_scales(uint8_t *at, const struct tile *tile, uint32_t kind, uint64_t block) {
    if (kind == LORA_GGUF_MXFP4) {
        for (uint32_t g = 0; g < GROUPS / 2; g++)
            for (uint32_t n = 0; n < N; n++) *at++ = (uint8_t)tile->columns[n].d[g];
        return;
    }
    if (!lora_gguf_is_super(kind)) {
        at = put_halves(at, tile, offsetof(struct column, d), GROUPS / 2);
        if (lora_gguf_has_minima(kind))
            put_halves(at, tile, offsetof(struct column, m), GROUPS / 2);
        return;
    }
    if (lora_gguf_is_pair(kind)) {
        put_six(at, tile);
        put_halves(at + GROUPS / 4 * 3 * N, tile,
                   block % 2 ? offsetof(struct column, dmin) : offsetof(struct column, block_d), 1);
        return;
    }
    at = put_halves(at, tile, offsetof(struct column, block_d), 1);
    at = put_bytes(at, tile, offsetof(struct column, scales));
    if (kind == LORA_GGUF_Q6_K) return;
    at = put_halves(at, tile, offsetof(struct column, dmin), 1);
    put_bytes(at, tile, offsetof(struct column, minima));
}

/* `each` inputs a byte of what is above the low four bits. */
static uint8_t *put_high(uint8_t *at, const struct tile *tile, uint32_t each) {
    uint32_t mask = each == 8 ? 1 : 3, bits = 8 / each;
    memset(at, 0, K / each * N);
    for (uint32_t k = 0; k < K; k++)
        for (uint32_t n = 0; n < N; n++)
            at[k / each * N + n] |= (uint8_t)((tile->values[k][n] >> 4 & mask) << k % each * bits);
    return at + K / each * N;
}

/* The low four bits of all values; of IQ4_NL and MXFP4 the numbers of what they mean. */
static uint8_t *put_nibbles(uint8_t *at, const struct tile *tile, uint32_t kind) {
    uint8_t of_meaning[256];
    for (uint32_t i = 0; i < 256; i++) of_meaning[i] = (uint8_t)(i & 15);
    if (kind == LORA_GGUF_IQ4_NL)
        for (uint32_t i = 0; i < 16; i++) of_meaning[(uint8_t)meaning[i]] = (uint8_t)i;
    if (kind == LORA_GGUF_MXFP4)
        for (uint32_t i = 16; i-- > 0;)
            of_meaning[(uint8_t)e2m1[i]] = (uint8_t)i; /* 0: its first */
    for (uint32_t k = 0; k < K; k += 2)
        for (uint32_t n = 0; n < N; n++)
            *at++ = (uint8_t)(of_meaning[tile->values[k][n]] | of_meaning[tile->values[k + 1][n]]
                                                                   << 4);
    return at;
}

static void put_block(uint8_t *at, const struct tile *tile, uint32_t kind, uint64_t block) {
    if (kind == LORA_GGUF_Q8_0) {
        memcpy(at, tile->values, sizeof tile->values);
        put_scales(at + sizeof tile->values, tile, kind, block);
        return;
    }
    at = put_nibbles(at, tile, kind);
    if (lora_gguf_has_fifth(kind)) at = put_high(at, tile, 8);
    if (lora_gguf_has_upper(kind)) at = put_high(at, tile, 4);
    put_scales(at, tile, kind, block);
}

static uint64_t min(uint64_t a, uint64_t b) { return a < b ? a : b; }

/* Inputs k .. k+count-1 of a row of the file, which ends with them, or has K more. */
static void read_some(const struct source *source, const uint8_t *row, uint64_t k, uint32_t count,
                      struct column *column) {
    uint8_t last[K / 32 * 34] = {0};
    if (count == K) {
        source->read(row, k, column);
        return;
    }
    memcpy(last, row + k / 32 * source->bytes, count / 32 * source->bytes);
    source->read(last, 0, column);
}

/* One output's inputs k .. k+count-1, as column n. */
static int take_column(const struct lora_pack_part *part, uint64_t output, uint64_t k,
                       uint32_t count, uint32_t n, struct tile *tile,
                       struct lora_failure *failure) {
    const struct source *source = &sources[part->element];
    const uint8_t *row = (const uint8_t *)part->data + output * part->columns;
    struct column *column = &tile->columns[n];
    read_some(source, row, k, count, column);
    float value = 0;
    uint32_t beyond = find_beyond(source, column, count, &value);
    if (beyond < count) return pack_refuse(part, output, k + beyond, (double)value, failure);
    return LORA_OK;
}

/* The columns' values as rows, the type's offset added; 0 behind `count` inputs and in the columns
 * from `width` on. */
static void turn(struct tile *tile, uint32_t count, uint32_t width, uint32_t offset) {
    uint8_t *values = tile->values[0];
    pack_transpose_bytes(values, tile->columns[0].values, sizeof tile->columns[0]);
    if (width == N) {
        for (uint32_t i = 0; i < count * N; i++) values[i] = (uint8_t)(values[i] + offset);
    } else {
        for (uint32_t i = 0; i < count; i++)
            for (uint32_t n = 0; n < width; n++)
                values[i * N + n] = (uint8_t)(values[i * N + n] + offset);
    }
    memset(values + count * N, 0, (K - count) * N);
}

int pack_gguf(const struct lora_pack_part *parts, const struct lora_pack_task *task, uint64_t tile,
              void *const *blocks, struct lora_failure *failure) {
    uint64_t first = tile * N, width = min(task->n - first, N);
    uint32_t kind = kind_of(task->weight_type);
    uint32_t offset = lora_gguf_offset(kind);
    struct tile packed;
    for (uint64_t k = 0; k < task->k; k += K, blocks++) {
        uint32_t count = (uint32_t)min(task->k - k, K);
        memset(packed.columns, 0, sizeof packed.columns);
        for (uint32_t n = 0; kind == LORA_GGUF_MXFP4 && n < N; n++)
            for (uint32_t g = 0; g < GROUPS / 2; g++) packed.columns[n].d[g] = LORA_MXFP4_LEAST;
        for (uint64_t c = 0; c < width; c++) {
            const struct lora_pack_part *part;
            uint64_t output;
            pack_run(parts, task, first + c, 1, &part, &output);
            int status = take_column(part, output, k, count, (uint32_t)c, &packed, failure);
            if (status) return status;
        }
        turn(&packed, count, (uint32_t)width, offset);
        put_block(*blocks, &packed, kind, k / K);
    }
    return LORA_OK;
}

int pack_gguf_halves(uint16_t *out, const struct lora_pack_part *part, uint64_t row, uint64_t first,
                     uint64_t count, struct lora_failure *failure) {
    const struct source *source = &sources[part->element];
    const uint8_t *data = (const uint8_t *)part->data + row * part->columns;
    uint64_t end = first + count, width = part->columns / source->bytes * source->inputs;
    for (uint64_t k = first / K * K; k < end; k += K) {
        uint32_t depth = (uint32_t)min(width - k, K);
        struct column column = {{0}, {0}, {0}, 0, 0, {0}, {0}};
        float floats[K];
        read_some(source, data, k, depth, &column);
        for (uint32_t group = 0; group < depth / 16; group++) {
            float scale, minimum;
            scaling(source, &column, group, &scale, &minimum);
            for (uint32_t i = 16 * group; i < 16 * group + 16; i++)
                floats[i] = (float)column.values[i] * scale - minimum;
        }
        uint64_t from = k < first ? first - k : 0, to = min(end - k, depth);
        const uint8_t *at = (const uint8_t *)(floats + from);
        if (pack_halves(out, at, to - from, LORA_SOURCE_F32)) {
            double value = 0;
            uint64_t beyond = pack_find_bad(at, to - from, LORA_SOURCE_F32, &value);
            return pack_refuse(part, row, k + from + beyond, value, failure);
        }
        out += to - from;
    }
    return LORA_OK;
}
