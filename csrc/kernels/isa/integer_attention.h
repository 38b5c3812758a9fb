/* Attention's sums over INT8, 32 positions or columns at a time, ATTENTION_ROWS rows together.
 * Included after `dot_start`, `dot_weights`, `dot_values`, `dot_signed` (integer_matrix.h) and
 * dot_bytes(acc, e, v), e unsigned and at most 127, for vectors of 256 bits. docs/numbers.md, 6.6.
 */

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

ATTENTION_INLINE __m256i load_row(const int8_t *row) {
    return _mm256_loadu_si256((const __m256i *)(const void *)row);
}

/* Sums of interleaved quads, in the columns' own order. */
ATTENTION_INLINE void in_order(const __m256i sums[4], __m256i ordered[4]) {
    for (int j = 0; j < 2; j++) {
        ordered[j] = _mm256_permute2x128_si256(sums[2 * j], sums[2 * j + 1], 0x20);
        ordered[2 + j] = _mm256_permute2x128_si256(sums[2 * j], sums[2 * j + 1], 0x31);
    }
}

/* 128 bytes of a block that is read later. */
ATTENTION_INLINE void fetch_ahead(const int8_t *next) {
    _mm_prefetch((const char *)next, _MM_HINT_T1);
    _mm_prefetch((const char *)next + LORA_LINE_BYTES, _MM_HINT_T1);
}

/* Four columns of q, +0 past the end. */
ATTENTION_INLINE void score_quads(const __m256i quads[4], const int8_t *const *q, uint32_t d,
                                  const int rows, __m256i sums[][4]) {
    UNROLLED
    for (int r = 0; r < rows; r++) {
        UNROLLED
        for (int j = 0; j < 4; j++) sums[r][j] = attention_signed(sums[r][j], quads[j], q[r] + d);
    }
}

/* One block for `rows` rows, a constant. */
ATTENTION_INLINE void score_block(const int8_t *k, const int8_t *next, uint32_t head_dim,
                                  const int8_t *const *q, const int32_t *totals, const int rows,
                                  __m256i sums[][4]) {
    __m256i row[4], quads[4];
    uint32_t d = 0;
    UNROLLED
    for (int r = 0; r < rows; r++) {
        UNROLLED
        for (int j = 0; j < 4; j++) sums[r][j] = attention_start(totals[r]);
    }
    for (; d + 4 <= head_dim; d += 4, k += 4 * LORA_TILE_POSITIONS) {
        fetch_ahead(next + d * LORA_TILE_POSITIONS);
        for (int i = 0; i < 4; i++) row[i] = load_row(k + i * LORA_TILE_POSITIONS);
        interleave(row, quads);
        score_quads(quads, q, d, rows, sums);
    }
    if (d == head_dim) return;
    int8_t rest[ATTENTION_ROWS][4] = {{0}};
    const int8_t *last[ATTENTION_ROWS];
    for (int r = 0; r < rows; r++) {
        memcpy(rest[r], q[r] + d, head_dim - d);
        last[r] = rest[r];
    }
    for (uint32_t i = 0; i < 4; i++)
        row[i] = d + i < head_dim ? load_row(k + i * LORA_TILE_POSITIONS) : _mm256_setzero_si256();
    interleave(row, quads);
    score_quads(quads, last, 0, rows, sums);
}

ATTENTION_INLINE void score_rows(const struct integer_tiles *k, const int8_t *const *q,
                                 const int32_t *totals, float scale, float *const *s,
                                 const int rows) {
    const __m256 by = _mm256_set1_ps(scale);
    for (uint32_t t = 0; t < k->tiles; t++) {
        __m256i sums[ATTENTION_ROWS][4], ordered[4];
        score_block(k->blocks[t], k->blocks[t + INTEGER_AHEAD], k->head_dim, q, totals, rows, sums);
        UNROLLED
        for (int r = 0; r < rows; r++) {
            in_order(sums[r], ordered);
            UNROLLED
            for (int j = 0; j < 4; j++)
                _mm256_storeu_ps(s[r] + t * LORA_TILE_POSITIONS + 8 * j,
                                 _mm256_mul_ps(_mm256_cvtepi32_ps(ordered[j]), by));
        }
    }
}

ATTENTION_TARGET static void scores(const struct integer_tiles *k, const int8_t *const *q,
                                    const int32_t *totals, float scale, float *const *s) {
    uint32_t r = 0;
    for (; r + ATTENTION_ROWS <= k->rows; r += ATTENTION_ROWS)
        score_rows(k, q + r, totals + r, scale, s + r, ATTENTION_ROWS);
    for (; r < k->rows; r++) score_rows(k, q + r, totals + r, scale, s + r, 1);
}

/* 32 columns from d on, for `rows` rows, a constant. */
ATTENTION_INLINE void weigh_columns(const struct integer_tiles *v, const uint8_t *const *e,
                                    uint32_t d, const int rows, int32_t *const *sums) {
    __m256i total[ATTENTION_ROWS][4], row[4], quads[4];
    UNROLLED
    for (int r = 0; r < rows; r++) {
        UNROLLED
        for (int j = 0; j < 4; j++) total[r][j] = _mm256_setzero_si256();
    }
    for (uint32_t t = 0; t < v->tiles; t++)
        for (uint32_t i = 0; i < LORA_TILE_POSITIONS; i += 4) {
            const int8_t *at = v->blocks[t] + (uint64_t)i * v->head_dim + d;
            const int8_t *next = v->blocks[t + INTEGER_AHEAD] + (uint64_t)i * v->head_dim + d;
            for (uint32_t j = 0; j < 4; j++) {
                row[j] = load_row(at + (uint64_t)j * v->head_dim);
                _mm_prefetch((const char *)next + (uint64_t)j * v->head_dim, _MM_HINT_T1);
            }
            interleave(row, quads);
            UNROLLED
            for (int r = 0; r < rows; r++) {
                int32_t four;
                memcpy(&four, e[r] + t * LORA_TILE_POSITIONS + i, sizeof(four));
                UNROLLED
                for (int j = 0; j < 4; j++)
                    total[r][j] = dot_bytes(total[r][j], _mm256_set1_epi32(four), quads[j]);
            }
        }
    UNROLLED
    for (int r = 0; r < rows; r++) {
        __m256i ordered[4];
        in_order(total[r], ordered);
        for (int j = 0; j < 4; j++) {
            __m256i *target = (__m256i *)(void *)(sums[r] + d + 8 * j);
            _mm256_storeu_si256(target, _mm256_add_epi32(_mm256_loadu_si256(target), ordered[j]));
        }
    }
}

ATTENTION_INLINE void weigh_rows(const struct integer_tiles *v, const uint8_t *const *e,
                                 const int rows, int32_t *const *sums) {
    uint32_t d = 0;
    for (; d + 32 <= v->head_dim; d += 32) weigh_columns(v, e, d, rows, sums);
    for (uint32_t i = 0; d < v->head_dim && i < v->tiles * LORA_TILE_POSITIONS; i++) {
        const int8_t *values = v->blocks[i / LORA_TILE_POSITIONS] +
                               (uint64_t)(i % LORA_TILE_POSITIONS) * v->head_dim;
        for (int r = 0; r < rows; r++)
            for (uint32_t rest = d; rest < v->head_dim; rest++)
                sums[r][rest] += e[r][i] * values[rest];
    }
}

ATTENTION_TARGET static void weigh(const struct integer_tiles *v, const uint8_t *const *e,
                                   int32_t *const *sums) {
    uint32_t r = 0;
    for (; r + ATTENTION_ROWS <= v->rows; r += ATTENTION_ROWS)
        weigh_rows(v, e + r, ATTENTION_ROWS, sums + r);
    for (; r < v->rows; r++) weigh_rows(v, e + r, 1, sums + r);
}
