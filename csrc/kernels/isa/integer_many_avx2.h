/* Matmuls of many rows of INT8 activations: weights are expanded once for all rows. Every sum is
 * exact, so the bytes are those of integer_matrix.h. For integer_avx2.c alone, after that one. */
#ifndef LORA_KERNELS_INTEGER_MANY_AVX2_H
#define LORA_KERNELS_INTEGER_MANY_AVX2_H

#define INT8_MANY 8 /* rows: from so many on, expanding pays */
#define INT4_MANY 4
#define MANY_AT_ONCE 2
#define BLOCK_PAIRS (LORA_BLOCK_K / 2)
#define PAIRS_AT_ONCE 8
#define UNIT_QUADS (LORA_UNIT_COLUMNS / 4)
#define VEC_BYTES (LANES * 4)
#define TILE_BYTES (VECTORS * VEC_BYTES) /* a vector of each eight columns */

/* Values of a row as words: of every four the even ones, then the odd ones, as weights have them.
 * `stride` words from one block of K to the next. */
LANES_TARGET static void spread(const int8_t *x, uint32_t blocks, uint64_t stride, int16_t *words) {
    for (uint32_t b = 0; b < blocks; b++, words += stride)
        for (int k = 0; k < LORA_BLOCK_K; k += VEC_BYTES, x += VEC_BYTES) {
            vec values = load_vec((const uint8_t *)x);
            vec even = even_words(values), odd = odd_words(values);
            vec low = _mm256_unpacklo_epi32(even, odd), high = _mm256_unpackhi_epi32(even, odd);
            __m256i *to = (__m256i *)(void *)(words + k);
            _mm256_storeu_si256(to, _mm256_permute2x128_si256(low, high, 0x20));
            _mm256_storeu_si256(to + 1, _mm256_permute2x128_si256(low, high, 0x31));
        }
}

/* What stays in a register: GCC would read shared weights again for each row, and order integer
 * sums so that they need more registers than there are. */
LANES_INLINE vec kept(vec v) {
    __asm__("" : "+x"(v));
    return v;
}

LANES_INLINE void store_vec(uint8_t *p, vec v) { _mm256_store_si256((__m256i *)(void *)p, v); }

/* A block of INT8 weights as words: [BLOCK_PAIRS][VECTORS] vectors of pairs. */
LANES_INLINE void expand_words(const uint8_t *block, const uint8_t *prefetch, uint8_t *pairs) {
    for (int q = 0; q < QUADS; q++, pairs += 2 * TILE_BYTES) {
        fetch_quad(prefetch + q * QUAD_BYTES);
        UNROLLED
        for (int v = 0; v < VECTORS; v++) {
            vec weights = load_vec(block + q * QUAD_BYTES + v * VEC_BYTES);
            store_vec(pairs + v * VEC_BYTES, even_words(weights));
            store_vec(pairs + TILE_BYTES + v * VEC_BYTES, odd_words(weights));
        }
    }
}

/* One pair of columns of `rows` rows, a constant. */
LANES_INLINE void add_pair(const uint8_t *pairs, const int16_t *x, const int rows, vec *sum) {
    vec value[MANY_AT_ONCE];
    UNROLLED
    for (int r = 0; r < rows; r++) value[r] = quad((const int8_t *)(x + r * LORA_BLOCK_K));
    UNROLLED
    for (int v = 0; v < VECTORS; v++) {
        vec weights = kept(load_vec(pairs + v * VEC_BYTES));
        UNROLLED
        for (int r = 0; r < rows; r++) {
            vec *to = sum + r * VECTORS + v;
            *to = kept(add_vec(*to, _mm256_madd_epi16(weights, value[r])));
        }
    }
}

/* One block of `rows` rows, a constant: sums[rows][32] go on. */
LANES_INLINE void add_words(const uint8_t *pairs, const int16_t *x, const int rows, int32_t *sums) {
    vec sum[MANY_AT_ONCE * VECTORS];
    UNROLLED
    for (int i = 0; i < rows * VECTORS; i++) sum[i] = load_vec((uint8_t *)(sums + i * LANES));
    for (int p = 0; p < BLOCK_PAIRS; p += PAIRS_AT_ONCE, pairs += PAIRS_AT_ONCE * TILE_BYTES) {
        UNROLLED
        for (int i = 0; i < PAIRS_AT_ONCE; i++)
            add_pair(pairs + i * TILE_BYTES, x + 2 * (p + i), rows, sum);
    }
    UNROLLED
    for (int i = 0; i < rows * VECTORS; i++) store_vec((uint8_t *)(sums + i * LANES), sum[i]);
}

LANES_TARGET static void int8_many(const struct integer_tile *t) {
    _Alignas(LORA_LINE_BYTES) uint8_t pairs[BLOCK_PAIRS * TILE_BYTES];
    _Alignas(LORA_LINE_BYTES) int32_t sums[LORA_MAX_ROWS * LORA_BLOCK_N];
    const int16_t *x = t->words;
    memset(sums, 0, t->rows * LORA_BLOCK_N * sizeof(int32_t));
    for (uint32_t b = 0; b < t->block_count; b++) {
        uint32_t row = 0;
        expand_words(t->blocks[b], integer_prefetched(t, b + INT8_PREFETCH), pairs);
        for (; row + MANY_AT_ONCE <= t->rows; row += MANY_AT_ONCE, x += MANY_AT_ONCE * LORA_BLOCK_K)
            add_words(pairs, x, MANY_AT_ONCE, sums + row * LORA_BLOCK_N);
        for (; row < t->rows; row++, x += LORA_BLOCK_K)
            add_words(pairs, x, 1, sums + row * LORA_BLOCK_N);
    }
    for (uint32_t i = 0; i < t->rows * LORA_BLOCK_N; i += LANES)
        store_floats(t->out + i, to_floats(load_vec((uint8_t *)(sums + i))));
}

/* Columns first..end-1 of K, within one group, of all rows: what they share. */
struct part {
    uint32_t first, end;
    float scales[LORA_BLOCK_N], zeros[LORA_BLOCK_N];
    _Alignas(LORA_LINE_BYTES) uint8_t bytes[LORA_BLOCK_K / 4 * TILE_BYTES]; /* [quad][vector] */
};

LANES_INLINE void expand_part(const struct integer_tile *t, struct part *part) {
    uint32_t b = part->first / LORA_BLOCK_K, k = part->first % LORA_BLOCK_K;
    uint32_t last = k + part->end - part->first;
    const uint8_t *block = t->blocks[b], *prefetch = integer_prefetched(t, b + INT4_PREFETCH);
    uint8_t *bytes = part->bytes, zeros[LORA_BLOCK_N];
    for (uint32_t q = k / 8; q < last / 8; q++, bytes += 2 * TILE_BYTES) {
        fetch_quad(prefetch + q * QUAD_BYTES);
        UNROLLED
        for (int v = 0; v < VECTORS; v++) {
            vec weights = load_vec(block + q * QUAD_BYTES + v * VEC_BYTES);
            store_vec(bytes + v * VEC_BYTES, low_nibbles(weights));
            store_vec(bytes + TILE_BYTES + v * VEC_BYTES, high_nibbles(weights));
        }
    }
    const uint16_t *scales = int4_scales(block, t->group, k);
    fetch_quad((const uint8_t *)int4_scales(prefetch, t->group, k));
    spread_zeros(int4_zeros(block, t->group, k), zeros);
    for (int v = 0; v < VECTORS; v++) {
        store_floats(part->scales + v * LANES, load_halves(scales + v * LANES));
        store_floats(part->zeros + v * LANES, bytes_to_floats(zeros + v * LANES));
    }
}

/* One unit of K: words hold eight times two products of 15*128 at most, without overflow. */
LANES_INLINE void add_unit(const uint8_t *bytes, const int8_t *x, uint64_t stride, const int rows,
                           vec *sum) {
    vec words[MANY_AT_ONCE * VECTORS];
    UNROLLED
    for (int i = 0; i < rows * VECTORS; i++) words[i] = zero_vec();
    UNROLLED
    for (int q = 0; q < UNIT_QUADS; q++) {
        vec value[MANY_AT_ONCE];
        UNROLLED
        for (int r = 0; r < rows; r++) value[r] = quad(x + (uint64_t)r * stride + 4 * q);
        UNROLLED
        for (int v = 0; v < VECTORS; v++) {
            vec weights = kept(load_vec(bytes + q * TILE_BYTES + v * VEC_BYTES));
            UNROLLED
            for (int r = 0; r < rows; r++) {
                vec *to = words + r * VECTORS + v;
                *to = kept(_mm256_add_epi16(*to, _mm256_maddubs_epi16(weights, value[r])));
            }
        }
    }
    UNROLLED
    for (int i = 0; i < rows * VECTORS; i++)
        sum[i] = add_vec(sum[i], _mm256_madd_epi16(words[i], _mm256_set1_epi16(1)));
}

/* `rows` rows, a constant: totals[rows][32] go on. The steps are those of int4_part. */
LANES_INLINE void add_part(const struct integer_tile *t, const struct part *part, uint32_t row,
                           const int rows, float *totals) {
    vec sum[MANY_AT_ONCE * VECTORS];
    const int8_t *x = t->x + row * t->stride + part->first;
    const uint8_t *bytes = part->bytes;
    UNROLLED
    for (int i = 0; i < rows * VECTORS; i++) sum[i] = zero_vec();
    for (uint32_t k = part->first; k < part->end; k += LORA_UNIT_COLUMNS) {
        add_unit(bytes, x, t->stride, rows, sum);
        bytes += UNIT_QUADS * TILE_BYTES;
        x += LORA_UNIT_COLUMNS;
    }
    UNROLLED
    for (int r = 0; r < rows; r++) {
        float_vec of_x = splat(sum_of_x(t, row + (uint32_t)r, part->first, part->end));
        UNROLLED
        for (int v = 0; v < VECTORS; v++, totals += LANES) {
            float_vec zero = load_floats(part->zeros + v * LANES);
            float_vec scale = load_floats(part->scales + v * LANES);
            float_vec all = to_floats(sum[r * VECTORS + v]);
            store_floats(totals, add(load_floats(totals), mul(sub(all, mul(zero, of_x)), scale)));
        }
    }
}

LANES_TARGET static void int4_many(const struct integer_tile *t) {
    float parts[LORA_SEGMENTS][LORA_MAX_ROWS * LORA_BLOCK_N];
    const uint32_t floats = t->rows * LORA_BLOCK_N;
    struct part part;
    for (uint32_t s = 0; s < LORA_SEGMENTS; s++) {
        memset(parts[s], 0, floats * sizeof(float));
        for (part.first = t->starts[s]; part.first < t->starts[s + 1]; part.first = part.end) {
            uint32_t row = 0;
            part.end = int4_part_end(part.first, t->starts[s + 1], t->group);
            expand_part(t, &part);
            for (; row + MANY_AT_ONCE <= t->rows; row += MANY_AT_ONCE)
                add_part(t, &part, row, MANY_AT_ONCE, parts[s] + row * LORA_BLOCK_N);
            for (; row < t->rows; row++) add_part(t, &part, row, 1, parts[s] + row * LORA_BLOCK_N);
        }
    }
    for (uint32_t i = 0; i < floats; i += LANES) {
        float_vec p[LORA_SEGMENTS];
        for (int s = 0; s < LORA_SEGMENTS; s++) p[s] = load_floats(parts[s] + i);
        store_floats(t->out + i, add(add(add(p[0], p[1]), add(p[2], p[3])),
                                     add(add(p[4], p[5]), add(p[6], p[7]))));
    }
}

LANES_TARGET static void int8_tile(const struct integer_tile *t) {
    if (t->words) int8_many(t);
    else int8(t);
}

LANES_TARGET static void int4_tile(const struct integer_tile *t) {
    if (t->rows >= INT4_MANY) int4_many(t);
    else int4(t);
}

#endif
