/* Attention's sums over INT8, 32 positions or columns at a time. Included after `dot_start`,
 * `dot_weights`, `dot_values`, `dot_signed` (integer_matrix.h) and dot_bytes(acc, e, v), e unsigned
 * and at most 127, for vectors of 256 bits. docs/numbers.md, 6.6. */

/* Four rows of 32 bytes as quads: of vector j, the low half has columns 4j..4j+3, the high half
 * those from 16 + 4j on. */
ATTENTION_INLINE void interleave(const __m256i row[4], __m256i quads[4]) {
    __m256i low = _mm256_unpacklo_epi8(row[0], row[1]), high = _mm256_unpackhi_epi8(row[0], row[1]);
    __m256i low2 = _mm256_unpacklo_epi8(row[2], row[3]);
    __m256i high2 = _mm256_unpackhi_epi8(row[2], row[3]);
    quads[0] = _mm256_unpacklo_epi16(low, low2);
    quads[1] = _mm256_unpackhi_epi16(low, low2);
    quads[2] = _mm256_unpacklo_epi16(high, high2);
    quads[3] = _mm256_unpackhi_epi16(high, high2);
}

ATTENTION_INLINE void store_half(int32_t *target, __m128i sums, int adding) {
    __m128i *at = (__m128i *)(void *)target;
    _mm_storeu_si128(at, adding ? _mm_add_epi32(_mm_loadu_si128(at), sums) : sums);
}

/* Sums of interleaved quads, into the columns' own order. */
ATTENTION_INLINE void store_sums(int32_t *target, const __m256i sums[4], const int adding) {
    for (int j = 0; j < 4; j++) {
        store_half(target + 4 * j, _mm256_castsi256_si128(sums[j]), adding);
        store_half(target + 16 + 4 * j, _mm256_extracti128_si256(sums[j], 1), adding);
    }
}

ATTENTION_INLINE __m256i load_row(const int8_t *row) {
    return _mm256_loadu_si256((const __m256i *)(const void *)row);
}

ATTENTION_TARGET static void scores(const int8_t *q, const int8_t *k, uint32_t head_dim,
                                    int32_t out[32]) {
    __m256i sums[4], row[4], quads[4];
    int32_t of_q = 0;
    for (uint32_t d = 0; d < head_dim; d++) of_q += q[d];
    for (int j = 0; j < 4; j++) sums[j] = attention_start(of_q);
    for (uint32_t d = 0; d < head_dim; d += 4, k += 4 * LORA_TILE_POSITIONS) {
        int8_t values[4] = {0};
        for (uint32_t i = 0; i < 4; i++) {
            int inside = d + i < head_dim;
            values[i] = inside ? q[d + i] : 0;
            row[i] = inside ? load_row(k + i * LORA_TILE_POSITIONS) : _mm256_setzero_si256();
        }
        interleave(row, quads);
        for (int j = 0; j < 4; j++) sums[j] = attention_signed(sums[j], quads[j], values);
    }
    store_sums(out, sums, 0);
}

/* 32 columns from d on. */
ATTENTION_INLINE void weigh_columns(const uint8_t *e, const int8_t *const *v, uint32_t count,
                                    uint32_t d, int32_t *sum) {
    __m256i sums[4], row[4], quads[4];
    for (int j = 0; j < 4; j++) sums[j] = _mm256_setzero_si256();
    for (uint32_t i = 0; i < count; i += 4) {
        uint8_t weights[4] = {0};
        for (uint32_t j = 0; j < 4; j++) {
            int inside = i + j < count;
            weights[j] = inside ? e[i + j] : 0;
            row[j] = inside ? load_row(v[i + j] + d) : _mm256_setzero_si256();
        }
        interleave(row, quads);
        int32_t four;
        memcpy(&four, weights, sizeof(four));
        for (int j = 0; j < 4; j++) sums[j] = dot_bytes(sums[j], _mm256_set1_epi32(four), quads[j]);
    }
    store_sums(sum + d, sums, 1);
}

ATTENTION_TARGET static void weigh(const uint8_t *e, const int8_t *const *v, uint32_t count,
                                   uint32_t head_dim, int32_t *sum) {
    uint32_t d = 0;
    for (; d + 32 <= head_dim; d += 32) weigh_columns(e, v, count, d, sum);
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t rest = d; rest < head_dim; rest++) sum[rest] += e[i] * v[i][rest];
}
