/* Weights in GGUF's blocks, for any width of vectors. Included once by each implementation, after
 * lanes_*.h and
 *   KERNEL, KERNEL_INLINE      attributes of functions
 *   fused(a, b, sum), negated_fused(a, b, sum)   a*b + sum, a*b - sum
 *   unsigned_bytes(p), signed_bytes(p)           LANES of them as integers
 *   and_vec, or_vec, sub_vec, right(v, bits), left(v, bits)
 *   joined_bits(low, high)     the low four bits of one, the others of the other
 *   four_floats(kind, q), five_floats(kind, q)   what the lowest four or five bits mean
 *   store_halves(p, f)         FP16(f)
 *   with_exponent(v), from_255(v)   2^(v - 127), 255 - v
 * Every function is made for a constant kind. */
#include "gguf.h"
#include "segments.h"
#include "unrolled.h"

#define VECTORS (LORA_BLOCK_N / LANES)
#define N LORA_BLOCK_N
#define GGUF_AHEAD 4 /* blocks that are fetched before they are read */
#define NEAR 16      /* steps of K of bytes that are in the first cache early */

/* Of one group of 32 columns of K: by column, of the first and the second 16 of them. */
struct gguf_scaling {
    float_vec scale[2][VECTORS], minimum[2][VECTORS];
};

KERNEL_INLINE float_vec halves_at(const uint8_t *p, const int v) {
    return load_halves((const uint16_t *)(const void *)p + v * LANES);
}

/* The 6-bit scales and minima of Q4_K and Q5_K. */
KERNEL_INLINE void read_six(const uint32_t kind, const struct gguf_pair *block, uint32_t group,
                            struct gguf_scaling *found) {
    const uint8_t *low = block->pair[block->which] + gguf_scales(kind) + group * N;
    const uint8_t *high = block->pair[block->which] + gguf_scales(kind) + 4 * N + group / 2 * N;
    UNROLLED
    for (int v = 0; v < VECTORS; v++) {
        vec four = unsigned_bytes(low + v * LANES), two = unsigned_bytes(high + v * LANES);
        if (group % 2) two = right(two, 4);
        vec scale = or_vec(and_vec(four, 15), left(and_vec(two, 3), 4));
        vec minimum = or_vec(right(four, 4), left(and_vec(two, 12), 2));
        found->scale[0][v] = mul(halves_at(block->pair[0] + gguf_shared(kind), v),
                                 to_floats(scale));
        found->minimum[0][v] = mul(halves_at(block->pair[1] + gguf_shared(kind), v),
                                   to_floats(minimum));
    }
}

/* The scales of 8 bits for 16 columns each, and what K_MIXED has more. */
KERNEL_INLINE void read_eight(const uint32_t kind, const uint8_t *d, uint32_t group,
                              struct gguf_scaling *found) {
    const uint8_t *scales = d + 2 * N + group * 2 * N, *dmin = d + 10 * N;
    const uint8_t *minima = dmin + 2 * N + group * 2 * N;
    UNROLLED
    for (int i = 0; i < 2 * VECTORS; i++) {
        const int half = i / VECTORS, v = i % VECTORS, at = half * N + v * LANES;
        found->scale[half][v] = mul(halves_at(d, v), to_floats(signed_bytes(scales + at)));
        if (lora_gguf_has_minima(kind))
            found->minimum[half][v] = mul(halves_at(dmin, v), bytes_to_floats(minima + at));
    }
}

KERNEL_INLINE void read_gguf_scaling(const uint32_t kind, const struct gguf_pair *block,
                                     uint32_t group, struct gguf_scaling *found) {
    const uint8_t *d = block->pair[block->which] + gguf_scales(kind);
    if (kind == LORA_GGUF_MXFP4) {
        UNROLLED
        for (int v = 0; v < VECTORS; v++)
            found->scale[0][v] = with_exponent(
                sub_vec(unsigned_bytes(d + group * N + v * LANES), 1));
        return;
    }
    if (lora_gguf_has_upper(kind)) read_eight(kind, d, group, found);
    else if (lora_gguf_is_super(kind)) read_six(kind, block, group, found);
    else {
        UNROLLED
        for (int v = 0; v < VECTORS; v++) {
            found->scale[0][v] = halves_at(d + group * 2 * N, v);
            if (lora_gguf_has_minima(kind))
                found->minimum[0][v] = sub(splat(-0.0f), halves_at(d + (group + 4) * 2 * N, v));
        }
    }
}

/* v of a step of K from the byte with two of them. `high`: the byte with what is above four bits;
 * `at` is k within the group, a constant as `kind` is. */
KERNEL_INLINE float_vec value_of(const uint32_t kind, vec pair, vec high, const uint32_t at) {
    const int bits = lora_gguf_has_fifth(kind) ? (int)(at % 8) : (int)(at % 4 * 2);
    vec q = at % 2 ? right(pair, 4) : pair;
    if (!lora_gguf_has_fifth(kind) && !lora_gguf_has_upper(kind)) return four_floats(kind, q);
    q = joined_bits(q, bits < 4 ? left(high, 4 - bits) : right(high, bits - 4));
    if (lora_gguf_has_fifth(kind)) return five_floats(kind, q);
    return to_floats(sub_vec(and_vec(q, 63), (int)lora_gguf_offset(kind)));
}

/* v of two steps of K, k even and the next. */
KERNEL_INLINE void two_values(const uint32_t kind, const uint8_t *values, const vec *high,
                              const uint32_t at, float_vec v[2][VECTORS]) {
    UNROLLED
    for (int j = 0; j < VECTORS; j++) {
        if (gguf_is_bytes(kind)) {
            v[0][j] = to_floats(signed_bytes(values + j * LANES));
            v[1][j] = to_floats(signed_bytes(values + N + j * LANES));
        } else {
            vec pair = unsigned_bytes(values + j * LANES);
            v[0][j] = value_of(kind, pair, high[j], at);
            v[1][j] = value_of(kind, pair, high[j], at + 1);
        }
    }
}

/* Eight steps of K, of which `at` is the first one's place in its group. */
KERNEL_INLINE void eight_values(const uint32_t kind, const uint8_t *block, uint32_t k,
                                const uint32_t at, float_vec v[8][VECTORS]) {
    const uint8_t *high = block + GGUF_HIGH;
    vec bits[VECTORS];
    UNROLLED
    for (uint32_t i = 0; i < 8; i += 2) {
        UNROLLED
        for (int j = 0; j < VECTORS; j++) {
            if (lora_gguf_has_fifth(kind) && i == 0)
                bits[j] = unsigned_bytes(high + k / 8 * N + j * LANES);
            if (lora_gguf_has_upper(kind) && i % 4 == 0)
                bits[j] = unsigned_bytes(high + (k + i) / 4 * N + j * LANES);
        }
        const uint8_t *values = block + (gguf_is_bytes(kind) ? (k + i) * N : (k + i) / 2 * N);
        two_values(kind, values, bits, at + i, v + i);
    }
}

/* A weight before it is rounded to FP16. */
KERNEL_INLINE float_vec weight(const uint32_t kind, const struct gguf_scaling *scaling,
                               const uint32_t at, const int j, float_vec v) {
    const uint32_t half = lora_gguf_has_upper(kind) ? at / 16 : 0;
    if (!lora_gguf_has_minima(kind)) return mul(v, scaling->scale[half][j]);
    return negated_fused(v, scaling->scale[half][j], scaling->minimum[half][j]);
}

KERNEL_INLINE void widen_kind(const uint32_t kind, const struct gguf_pair *block, uint16_t *wide) {
    const uint8_t *values = block->pair[block->which];
    for (uint32_t unit = 0; unit < LORA_BLOCK_K; unit += LORA_UNIT_COLUMNS) {
        struct gguf_scaling scaling;
        read_gguf_scaling(kind, block, unit / LORA_UNIT_COLUMNS, &scaling);
        UNROLLED
        for (uint32_t at = 0; at < LORA_UNIT_COLUMNS; at += 8) {
            float_vec v[8][VECTORS];
            eight_values(kind, values, unit + at, at, v);
            UNROLLED
            for (uint32_t i = 0; i < 8 * VECTORS; i++, wide += LANES)
                store_halves(wide,
                             weight(kind, &scaling, at, i % VECTORS, v[i / VECTORS][i % VECTORS]));
        }
    }
}

/* Block i, or where the tile ends the next one's. */
KERNEL_INLINE const uint8_t *fetched_block(const struct gguf_tile *tile, uint32_t i) {
    if (i < tile->count) return tile->blocks[i];
    return tile->next[i - tile->count < tile->count ? i - tile->count : tile->count - 1];
}

/* Where a unit's share of a block begins that is read later. */
KERNEL_INLINE const uint8_t *fetched_unit(const uint32_t kind, const struct gguf_tile *tile,
                                          uint32_t k) {
    const uint8_t *block = fetched_block(tile, k / LORA_BLOCK_K + GGUF_AHEAD);
    return block + k % LORA_BLOCK_K / LORA_UNIT_COLUMNS * (gguf_block_bytes(kind) / 4);
}

/* A quarter of it, and of what comes next into the first cache. */
KERNEL_INLINE void fetch_quarter(const uint32_t kind, const uint8_t *fetched, const uint8_t *near,
                                 uint32_t at) {
    const uint32_t lines = (gguf_block_bytes(kind) / LORA_LINE_BYTES + 15) / 16;
    UNROLLED
    for (uint32_t i = 0; i < lines; i++)
        _mm_prefetch((const char *)(fetched + (at / 8 * lines + i) * LORA_LINE_BYTES), _MM_HINT_T1);
    const uint32_t nearer = gguf_is_bytes(kind) ? 4 : 2;
    UNROLLED
    for (uint32_t i = 0; i < nearer; i++)
        _mm_prefetch((const char *)(near + i * LORA_LINE_BYTES), _MM_HINT_T0);
}

/* Kinds whose weights are an integer times an FP16 number d. */
KERNEL_INLINE int is_product(const uint32_t kind) {
    return !lora_gguf_is_super(kind) && !lora_gguf_has_minima(kind);
}

/* FP32(FP16(f)), |f| below 65520, of every weight X before it is rounded; of zero the sign may
 * differ. RN(-8191*X) + 8192*X is X rounded to 11 bits, nearest even (Dekker 1971, section 5). For
 * the first sum's last place is 2^13 times that of X, or half of it where X is just above a power
 * of two, to which both round it; and of a tie X's last 12 bits are 0. FP16's subnormal numbers
 * have fewer bits, but there X is one of them: d, m and so all of X are multiples of 2^-24. */
KERNEL_INLINE float_vec rounded(float_vec x) {
    return fused(x, splat(8192.0f), mul(x, splat(-8191.0f)));
}

/* The same of MXFP4, whose weights are v times a power of two: sums are divided by it, v*x is
 * added, and they are multiplied again. No bit changes: sums are multiples of 2^-48 and stay below
 * 2^60. */
KERNEL_INLINE void add_power_unit(const uint8_t *values, uint32_t k, const float *x,
                                  const uint8_t *fetched, float_vec sum[VECTORS]) {
    const uint32_t kind = LORA_GGUF_MXFP4;
    const uint8_t *powers = values + gguf_scales(kind) + k / LORA_UNIT_COLUMNS * N;
    vec e[VECTORS];
    UNROLLED
    for (int j = 0; j < VECTORS; j++) {
        e[j] = unsigned_bytes(powers + j * LANES);
        sum[j] = mul(sum[j], with_exponent(from_255(e[j])));
    }
    UNROLLED
    for (uint32_t at = 0; at < LORA_UNIT_COLUMNS; at += 8) {
        float_vec v[8][VECTORS];
        fetch_quarter(kind, fetched, values + (k + at + NEAR) * N / 2, at);
        eight_values(kind, values, k + at, at, v);
        UNROLLED
        for (uint32_t i = 0; i < 8 * VECTORS; i++)
            sum[i % VECTORS] = fused(splat(x[at + i / VECTORS]), v[i / VECTORS][i % VECTORS],
                                     sum[i % VECTORS]);
    }
    UNROLLED
    for (int j = 0; j < VECTORS; j++) sum[j] = mul(sum[j], with_exponent(sub_vec(e[j], 1)));
}

KERNEL_INLINE void add_unit(const uint32_t kind, const struct gguf_pair *block, uint32_t k,
                            const float *x, const uint8_t *fetched, float_vec sum[VECTORS]) {
    const uint8_t *values = block->pair[block->which];
    const uint32_t each = gguf_is_bytes(kind) ? 1 : 2; /* values a byte */
    if (kind == LORA_GGUF_MXFP4) {
        add_power_unit(values, k, x, fetched, sum);
        return;
    }
    struct gguf_scaling scaling;
    float_vec down[VECTORS], up[VECTORS];
    read_gguf_scaling(kind, block, k / LORA_UNIT_COLUMNS, &scaling);
    UNROLLED
    for (int j = 0; j < VECTORS; j++) { /* both are exact where d is FP16 */
        down[j] = mul(scaling.scale[0][j], splat(-8191.0f));
        up[j] = mul(scaling.scale[0][j], splat(8192.0f));
    }
    UNROLLED
    for (uint32_t at = 0; at < LORA_UNIT_COLUMNS; at += 8) {
        float_vec v[8][VECTORS];
        fetch_quarter(kind, fetched, values + (k + at + NEAR) * N / each, at);
        eight_values(kind, values, k + at, at, v);
        UNROLLED
        for (uint32_t i = 0; i < 8 * VECTORS; i++) {
            const uint32_t j = i % VECTORS;
            float_vec q = v[i / VECTORS][j];
            float_vec w = is_product(kind) ? fused(q, up[j], mul(q, down[j]))
                                           : rounded(weight(kind, &scaling, at, (int)j, q));
            sum[j] = fused(splat(x[at + i / VECTORS]), w, sum[j]);
        }
    }
}

KERNEL_INLINE void row_kind(const uint32_t kind, const struct gguf_tile *tile, float *out) {
    float_vec sums[LORA_SEGMENTS][VECTORS];
    for (uint32_t s = 0; s < LORA_SEGMENTS; s++) {
        float_vec sum[VECTORS];
        UNROLLED
        for (int v = 0; v < VECTORS; v++) sum[v] = zero_floats();
        for (uint32_t k = tile->starts[s]; k < tile->starts[s + 1]; k += LORA_UNIT_COLUMNS) {
            const struct gguf_pair block = gguf_pair_of(kind, tile->blocks, k / LORA_BLOCK_K);
            add_unit(kind, &block, k % LORA_BLOCK_K, tile->x + k, fetched_unit(kind, tile, k), sum);
        }
        UNROLLED
        for (int v = 0; v < VECTORS; v++) sums[s][v] = sum[v];
    }
    for (int v = 0; v < VECTORS; v++)
        store_floats(out + v * LANES,
                     add(add(add(sums[0][v], sums[1][v]), add(sums[2][v], sums[3][v])),
                         add(add(sums[4][v], sums[5][v]), add(sums[6][v], sums[7][v]))));
}

#define OF_KIND(name)                                                                              \
    KERNEL static void widen_##name(const struct gguf_pair *block, uint16_t *wide) {               \
        widen_kind(LORA_GGUF_##name, block, wide);                                                 \
    }                                                                                              \
    KERNEL static void row_##name(const struct gguf_tile *tile, float *out) {                      \
        row_kind(LORA_GGUF_##name, tile, out);                                                     \
    }
OF_KIND(Q8_0)
OF_KIND(Q5_0)
OF_KIND(Q4_1)
OF_KIND(Q5_1)
OF_KIND(Q4_K)
OF_KIND(Q5_K)
OF_KIND(Q6_K)
OF_KIND(K_MIXED)
OF_KIND(Q4_0)
OF_KIND(IQ4_NL)
OF_KIND(MXFP4)

#define TABLE(which)                                                                               \
    {[LORA_GGUF_Q8_0] = which##_Q8_0,  [LORA_GGUF_Q5_0] = which##_Q5_0,                            \
     [LORA_GGUF_Q4_1] = which##_Q4_1,  [LORA_GGUF_Q5_1] = which##_Q5_1,                            \
     [LORA_GGUF_Q4_K] = which##_Q4_K,  [LORA_GGUF_Q5_K] = which##_Q5_K,                            \
     [LORA_GGUF_Q6_K] = which##_Q6_K,  [LORA_GGUF_K_MIXED] = which##_K_MIXED,                      \
     [LORA_GGUF_Q4_0] = which##_Q4_0,  [LORA_GGUF_IQ4_NL] = which##_IQ4_NL,                        \
     [LORA_GGUF_MXFP4] = which##_MXFP4}

static void widen(uint32_t kind, const struct gguf_pair *block, uint16_t *wide) {
    static void (*const of[])(const struct gguf_pair *, uint16_t *) = TABLE(widen);
    of[kind](block, wide);
}

static void row(uint32_t kind, const struct gguf_tile *tile, float *out) {
    static void (*const of[])(const struct gguf_tile *, float *) = TABLE(row);
    of[kind](tile, out);
}
