/* What the packing sources share. */
#ifndef LORA_PACK_INTERNAL_H
#define LORA_PACK_INTERNAL_H

#include <stdint.h>
#include <string.h>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "internal.h"
#include "lora/pack.h"

#define PACK_EXPONENT 0x7c00 /* of FP16: all ones in what is not finite */

/* pack_check.c */
#define PACK_MIN_BLOCK LORA_BLOCK_BYTES_INT4_128 /* bytes of the smallest block */
uint64_t pack_element_bytes(uint32_t element);
uint32_t pack_group(const struct lora_pack_task *task); /* along K, of 4-bit blocks; 0 of others */
int pack_check(const struct lora_pack_part *parts, uint32_t part_count,
               const struct lora_pack_task *task, struct lora_failure *failure);

/* The next run of outputs from `column` of the matrix on that one part holds: the part and the
 * output's index in its file. Returns the run's length, `limit` at most. */
static inline uint64_t pack_run(const struct lora_pack_part *parts,
                                const struct lora_pack_task *task, uint64_t column, uint64_t limit,
                                const struct lora_pack_part **part, uint64_t *output) {
    const struct lora_pack_part *at = parts + task->part_first;
    column -= task->column_first;
    while (column >= at->count) column -= (at++)->count;
    *part = at;
    *output = at->first + column;
    uint64_t left = at->count - column;
    return limit < left ? limit : left;
}

/* pack_half.c */
/* `count` elements as FP16; 0, or not 0 where one is not finite afterwards. Reads and writes
 * nothing else. */
int pack_halves(uint16_t *out, const uint8_t *in, uint64_t count, uint32_t element);
/* Index of the first of `count` elements that FP16 cannot hold, and its value. */
uint64_t pack_find_bad(const uint8_t *in, uint64_t count, uint32_t element, double *value);
/* LORA_ERR_NAN: the element at [row, column] of a part, which FP16 cannot hold. */
int pack_refuse(const struct lora_pack_part *part, uint64_t row, uint64_t column, double value,
                struct lora_failure *failure);

/* PACK_COPY elements that are FP16 already, as pack_halves. Inline: loading spends its time
 * here. */
#define PACK_COPY 32
static inline int pack_copy(uint16_t *out, const uint8_t *in) {
#if defined(__SSE2__) /* part of every x86-64 */
    __m128i max = _mm_setzero_si128();
    for (int i = 0; i < PACK_COPY; i += 8) {
        __m128i eight = _mm_loadu_si128((const __m128i *)(const void *)(in + 2 * i));
        max = _mm_max_epi16(max, _mm_and_si128(eight, _mm_set1_epi16(0x7fff)));
        _mm_storeu_si128((__m128i *)(void *)(out + i), eight);
    }
    return _mm_movemask_epi8(_mm_cmpgt_epi16(max, _mm_set1_epi16(PACK_EXPONENT - 1)));
#else
    int bad = 0;
    memcpy(out, in, PACK_COPY * sizeof *out);
    for (int i = 0; i < PACK_COPY; i++) bad |= (out[i] & PACK_EXPONENT) == PACK_EXPONENT;
    return bad;
#endif
}

/* `lines` times PACK_COPY elements that are FP16 already, `stride` bytes apart, one behind the
 * other; asks early for those that come behind. */
#define PACK_PREFETCH 8
int pack_lines(uint16_t *out, const uint8_t *in, uint64_t stride, uint64_t lines);

/* pack_transpose.c: FP16 [32][128], `stride` bytes a column, -> a block [128][32]. 0, or not 0
 * where an element is not finite. */
int pack_transpose(uint16_t *block, const uint8_t *columns, uint64_t stride);
/* Bytes [32][128], `stride` bytes a column, -> rows [128][32]. */
void pack_transpose_bytes(uint8_t *rows, const int8_t *columns, uint64_t stride);

/* pack_words.c: a block of words from 32 columns, `stride` bytes apart. INT8: 32 words a column. 4
 * bits: 16 words a column, eight inputs a word, lowest bits first. */
void pack_words_int8(uint32_t *block, const uint8_t *columns, uint64_t stride);
void pack_words_int4(uint32_t *block, const uint8_t *columns, uint64_t stride);
/* A word of eight inputs, lowest bits first, as blocks hold it: byte i has inputs i and 4+i. */
static inline uint32_t pack_spread(uint32_t word) {
    uint32_t low = word & 0xffffu, high = word >> 16;
    low = (low | low << 8) & 0x00ff00ffu;
    high = (high | high << 8) & 0x00ff00ffu;
    return ((low | low << 4) & 0x0f0f0f0fu) | ((high | high << 4) & 0x0f0f0f0fu) << 4;
}

/* pack_integer.c: one tile of an INT8 or 4-bit matrix; its k-th block goes to blocks[k]. */
int pack_integer(const struct lora_pack_part *parts, const struct lora_pack_task *task,
                 uint64_t tile, void *const *blocks, struct lora_failure *failure);

/* pack_gguf.c: the same of GGUF's blocks. LORA_ERR_NAN as pack_half.c. */
int pack_gguf(const struct lora_pack_part *parts, const struct lora_pack_task *task, uint64_t tile,
              void *const *blocks, struct lora_failure *failure);
/* Whether a source's numbers fit blocks of weight_type; bytes of its row of k inputs. */
int pack_gguf_fits(uint32_t element, uint32_t weight_type);
uint64_t pack_gguf_row_bytes(uint32_t element, uint64_t k);
uint64_t pack_gguf_inputs(uint32_t element, uint64_t row_bytes); /* 0: no whole blocks */
/* FP16 of numbers first .. first+count-1 of a row of the file. LORA_ERR_NAN as pack_half.c. */
int pack_gguf_halves(uint16_t *out, const struct lora_pack_part *part, uint64_t row, uint64_t first,
                     uint64_t count, struct lora_failure *failure);
static inline int pack_is_gguf(uint32_t element) {
    return element >= LORA_SOURCE_Q4_0 && element <= LORA_SOURCE_MXFP4;
}

/* pack_blocks.c */
/* Tiles first .. first+count-1; block i of them (K fastest) goes to blocks[i]. */
int pack_tiles(const struct lora_pack_part *parts, const struct lora_pack_task *task,
               uint64_t first, uint64_t count, void *const *blocks, struct lora_failure *failure);
/* Rows first .. first+count-1 of a table. */
int pack_rows(const struct lora_pack_part *parts, const struct lora_pack_task *task, uint64_t first,
              uint64_t count, uint8_t *rows, struct lora_failure *failure);

/* crc32_combine.c: what `bytes` more bytes do to a CRC-32, and the CRC-32 of two ranges. */
uint32_t crc32_shift(uint64_t bytes);
uint32_t crc32_join(uint32_t first, uint32_t second, uint32_t shift);

/* pack_ranges.c: sorts and joins ranges that touch. Returns their number. */
uint32_t pack_join(struct lora_range *ranges, uint32_t count);

#endif
