/* Weights in GGUF's blocks, for any width of vectors. Included once by each implementation, after
 * lanes_*.h and
 *   KERNEL, KERNEL_INLINE      attributes of functions
 *   fused(a, b, sum), negated_fused(a, b, sum)   a*b + sum, a*b - sum
 *   unsigned_bytes(p), signed_bytes(p)           LANES of them as integers
 *   signed_floats(bytes, v)    32 of them as v[VECTORS]
 *   right(v, bits)
 *   four_floats(kind, q)       what the lowest four bits mean
 *   store_halves(p, f)         FP16(f)
 *   with_exponent(v), from_255(v)   2^(v - 127), 255 - v
 * Every function is made for a constant kind. */
#include "gguf.h"
#include "segments.h"
#include "unrolled.h"

#define N LORA_BLOCK_N
#define GGUF_AHEAD 4 /* blocks that are fetched before they are read */
#define GROUP 16     /* columns of K that share a scale, at least */
#define NEAR 16      /* steps of K of bytes that are in the first cache early */

/* Of one group of 32 columns of K: by column, of the first and the second 16 of them. */
struct gguf_scaling {
    float_vec scale[2][VECTORS], minimum[2][VECTORS];
};

/* Of a block of a K type, for all its groups of `GROUP` columns along K: made at once, so that no
 * group waits for its own. */
struct gguf_scalings {
    _Alignas(LORA_LINE_BYTES) float scale[LORA_BLOCK_K / GROUP][N],
        minimum[LORA_BLOCK_K / GROUP][N];
};

KERNEL_INLINE float_vec halves_at(const uint8_t *p, const int v) {
    return load_halves((const uint16_t *)(const void *)p + v * LANES);
}

KERNEL_INLINE __m256i bytes_at(const uint8_t *p) {
    return _mm256_loadu_si256((const __m256i *)(const void *)p);
}

KERNEL_INLINE __m256i of_bytes(__m256i bytes, const int mask) {
    return _mm256_and_si256(bytes, _mm256_set1_epi8((char)mask));
}

/* The 6-bit scales and minima of a group: the lower four bits of each from one byte, the upper two
 * from its half of another. */
KERNEL_INLINE void join_six(__m256i four, __m256i two, const uint32_t group, uint8_t scale[N],
                            uint8_t minimum[N]) {
    __m256i upper = of_bytes(group % 2 ? two : _mm256_slli_epi16(two, 4), 0x30);
    __m256i other = of_bytes(group % 2 ? _mm256_srli_epi16(two, 2) : _mm256_slli_epi16(two, 2),
                             0x30);
    upper = _mm256_or_si256(upper, of_bytes(four, 15));
    other = _mm256_or_si256(other, of_bytes(_mm256_srli_epi16(four, 4), 15));
    _mm256_store_si256((__m256i *)(void *)scale, upper);
    _mm256_store_si256((__m256i *)(void *)minimum, other);
}

/* Of Q4_K and Q5_K. */
KERNEL_INLINE void read_sixes(const uint32_t kind, const struct gguf_pair *block,
                              struct gguf_scalings *found) {
    _Alignas(LORA_LINE_BYTES) uint8_t scales[LORA_BLOCK_K / GROUP][N],
        minima[LORA_BLOCK_K / GROUP][N];
    const uint8_t *low = block->block + gguf_scales(kind), *high = low + 4 * N;
    UNROLLED
    for (uint32_t group = 0; group < 4; group++)
        join_six(bytes_at(low + group * N), bytes_at(high + group / 2 * N), group, scales[group],
                 minima[group]);
    UNROLLED
    for (int v = 0; v < VECTORS; v++) {
        float_vec d = halves_at(block->first + gguf_shared(kind), v);
        float_vec dmin = halves_at(block->second + gguf_shared(kind), v);
        UNROLLED
        for (uint32_t group = 0; group < 4; group++) {
            store_floats(found->scale[group] + v * LANES,
                         mul(d, bytes_to_floats(scales[group] + v * LANES)));
            store_floats(found->minimum[group] + v * LANES,
                         mul(dmin, bytes_to_floats(minima[group] + v * LANES)));
        }
    }
}

/* The scales of 8 bits for 16 columns each, and what K_MIXED has more. */
KERNEL_INLINE void read_eights(const uint32_t kind, const struct gguf_pair *block,
                               struct gguf_scalings *found) {
    const uint8_t *d = block->block + gguf_scales(kind);
    const uint8_t *scales = d + 2 * N, *dmin = scales + 8 * N, *minima = dmin + 2 * N;
    UNROLLED
    for (int v = 0; v < VECTORS; v++) {
        float_vec by = halves_at(d, v);
        UNROLLED
        for (uint32_t group = 0; group < 8; group++)
            store_floats(found->scale[group] + v * LANES,
                         mul(by, to_floats(signed_bytes(scales + group * N + v * LANES))));
        if (!lora_gguf_has_minima(kind)) continue;
        by = halves_at(dmin, v);
        UNROLLED
        for (uint32_t group = 0; group < 8; group++)
            store_floats(found->minimum[group] + v * LANES,
                         mul(by, bytes_to_floats(minima + group * N + v * LANES)));
    }
}

KERNEL_INLINE void read_scalings(const uint32_t kind, const struct gguf_pair *block,
                                 struct gguf_scalings *found) {
    if (lora_gguf_has_upper(kind)) read_eights(kind, block, found);
    else if (lora_gguf_is_super(kind)) read_sixes(kind, block, found);
}

/* Of the group of 32 columns `group`; `all` is read for K types alone. */
KERNEL_INLINE void read_gguf_scaling(const uint32_t kind, const struct gguf_pair *block,
                                     const struct gguf_scalings *all, uint32_t group,
                                     struct gguf_scaling *found) {
    const uint8_t *d = block->block + gguf_scales(kind);
    const uint32_t each = lora_gguf_has_upper(kind) ? 2 : 1;
    if (kind == LORA_GGUF_MXFP4) {
        UNROLLED
        for (int v = 0; v < VECTORS; v++)
            found->scale[0][v] = with_exponent(
                sub_vec(unsigned_bytes(d + group * N + v * LANES), 1));
        return;
    }
    UNROLLED
    for (uint32_t i = 0; i < each * VECTORS; i++) {
        const uint32_t half = i / VECTORS, v = i % VECTORS, at = group * each + half;
        if (lora_gguf_is_super(kind)) {
            found->scale[half][v] = load_floats(all->scale[at] + v * LANES);
            if (lora_gguf_has_minima(kind))
                found->minimum[half][v] = load_floats(all->minimum[at] + v * LANES);
        } else {
            found->scale[0][v] = halves_at(d + group * 2 * N, (int)v);
            if (lora_gguf_has_minima(kind))
                found->minimum[0][v] = sub(splat(-0.0f),
                                           halves_at(d + (group + 4) * 2 * N, (int)v));
        }
    }
}

/* v of the step of K at k, of all columns, of kinds with five or six bits: joined while they are
 * bytes. `at` is k within the group, a constant as `kind` is. */
KERNEL_INLINE __m256i joined_bytes(const uint32_t kind, const uint8_t *block, uint32_t k,
                                   const uint32_t at) {
    const int fifth = lora_gguf_has_fifth(kind), mask = fifth ? 0x10 : 0x30;
    const int each = fifth ? 8 : 4; /* steps a byte of what is above four bits */
    const int place = (int)(at % (uint32_t)each) * (8 / each);
    __m256i low = bytes_at(block + k / 2 * N);
    __m256i high = bytes_at(block + GGUF_HIGH + k / (uint32_t)each * N);
    if (at % 2) low = _mm256_srli_epi16(low, 4);
    high = place < 4 ? _mm256_slli_epi16(high, 4 - place) : _mm256_srli_epi16(high, place - 4);
    __m256i v = _mm256_or_si256(of_bytes(low, 15), of_bytes(high, mask));
    if (lora_gguf_offset(kind) == 0) return v;
    return _mm256_sub_epi8(v, _mm256_set1_epi8((char)lora_gguf_offset(kind)));
}

/* v of two steps of K, k even and the next. */
KERNEL_INLINE void two_values(const uint32_t kind, const uint8_t *block, uint32_t k,
                              const uint32_t at, float_vec v[2][VECTORS]) {
    const uint8_t *values = block + (gguf_is_bytes(kind) ? k * N : k / 2 * N);
    if (lora_gguf_has_fifth(kind) || lora_gguf_has_upper(kind)) {
        signed_floats(joined_bytes(kind, block, k, at), v[0]);
        signed_floats(joined_bytes(kind, block, k, at + 1), v[1]);
        return;
    }
    UNROLLED
    for (int j = 0; j < VECTORS; j++) {
        if (gguf_is_bytes(kind)) {
            v[0][j] = to_floats(signed_bytes(values + j * LANES));
            v[1][j] = to_floats(signed_bytes(values + N + j * LANES));
        } else {
            vec pair = unsigned_bytes(values + j * LANES);
            v[0][j] = four_floats(kind, pair);
            v[1][j] = four_floats(kind, right(pair, 4));
        }
    }
}

/* Eight steps of K, of which `at` is the first one's place in its group. */
KERNEL_INLINE void eight_values(const uint32_t kind, const uint8_t *block, uint32_t k,
                                const uint32_t at, float_vec v[8][VECTORS]) {
    UNROLLED
    for (uint32_t i = 0; i < 8; i += 2) two_values(kind, block, k + i, at + i, v + i);
}

/* A weight before it is rounded to FP16. */
KERNEL_INLINE float_vec weight(const uint32_t kind, const struct gguf_scaling *scaling,
                               const uint32_t at, const int j, float_vec v) {
    const uint32_t half = lora_gguf_has_upper(kind) ? at / 16 : 0;
    if (!lora_gguf_has_minima(kind)) return mul(v, scaling->scale[half][j]);
    return negated_fused(v, scaling->scale[half][j], scaling->minimum[half][j]);
}

KERNEL_INLINE void widen_kind(const uint32_t kind, const struct gguf_pair *block, uint16_t *wide) {
    const uint8_t *values = block->block;
    struct gguf_scalings all;
    read_scalings(kind, block, &all);
    for (uint32_t unit = 0; unit < LORA_BLOCK_K; unit += LORA_UNIT_COLUMNS) {
        struct gguf_scaling scaling;
        read_gguf_scaling(kind, block, &all, unit / LORA_UNIT_COLUMNS, &scaling);
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

KERNEL_INLINE void add_unit(const uint32_t kind, const struct gguf_pair *block,
                            const struct gguf_scalings *all, uint32_t k, const float *x,
                            const uint8_t *fetched, float_vec sum[VECTORS]) {
    const uint8_t *values = block->block;
    const uint32_t each = gguf_is_bytes(kind) ? 1 : 2; /* values a byte */
    if (kind == LORA_GGUF_MXFP4) {
        add_power_unit(values, k, x, fetched, sum);
        return;
    }
    struct gguf_scaling scaling;
    float_vec down[VECTORS], up[VECTORS];
    read_gguf_scaling(kind, block, all, k / LORA_UNIT_COLUMNS, &scaling);
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
    struct gguf_scalings all;
    uint32_t read = UINT32_MAX; /* the block whose scales `all` has */
    for (uint32_t s = 0; s < LORA_SEGMENTS; s++) {
        float_vec sum[VECTORS];
        UNROLLED
        for (int v = 0; v < VECTORS; v++) sum[v] = zero_floats();
        for (uint32_t k = tile->starts[s]; k < tile->starts[s + 1]; k += LORA_UNIT_COLUMNS) {
            const struct gguf_pair block = gguf_pair_of(kind, tile->blocks, k / LORA_BLOCK_K);
            if (k / LORA_BLOCK_K != read) read_scalings(kind, &block, &all);
            read = k / LORA_BLOCK_K;
            add_unit(kind, &block, &all, k % LORA_BLOCK_K, tile->x + k, fetched_unit(kind, tile, k),
                     sum);
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
