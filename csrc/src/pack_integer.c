/* Tiles of INT8 and 4-bit matrices: words of four or eight inputs, scales and zero points. */
#include <inttypes.h>
#include <string.h>

#include "pack.h"

#define INT8_INPUTS 4u /* of a word */
#define INT4_INPUTS 8u

static uint64_t min(uint64_t a, uint64_t b) { return a < b ? a : b; }

static uint32_t load_word(const uint8_t *at) {
    uint32_t word;
    memcpy(&word, at, sizeof word);
    return word;
}

/* Eight values of a byte each as a word, lowest bits first. */
static uint32_t word_of_bytes(const uint8_t *at, uint64_t *beyond) {
    uint64_t bytes = 0;
    memcpy(&bytes, at, sizeof bytes);
    *beyond |= bytes & 0xf0f0f0f0f0f0f0f0u;
    bytes &= 0x0f0f0f0f0f0f0f0fu;
    bytes = (bytes | bytes >> 4) & 0x00ff00ff00ff00ffu;
    bytes = (bytes | bytes >> 8) & 0x0000ffff0000ffffu;
    return (uint32_t)(bytes | bytes >> 16);
}

/* Eight inputs of a row of little-endian words, in an order of their own. */
static uint32_t word_in_order(const uint8_t *row, const uint32_t *order) {
    uint32_t word = 0;
    for (uint32_t i = 0; i < INT4_INPUTS; i++)
        word |= (row[order[i] / 2] >> order[i] % 2 * 4 & 15u) << 4 * i;
    return word;
}

/* The block's words of one column from a row of the file, `depth` inputs from input k on. */
static int column_words(uint32_t *words, const struct lora_pack_part *part, uint64_t output,
                        uint64_t k, uint64_t depth, struct lora_failure *failure) {
    uint64_t beyond = 0, count = depth / INT4_INPUTS;
    const uint8_t *row = (const uint8_t *)part->data +
                         output * part->columns * pack_element_bytes(part->element);
    if (part->element == LORA_SOURCE_I8) memcpy(words, row + k, depth);
    else if (part->element == LORA_SOURCE_NIBBLES)
        for (uint64_t w = 0; w < count; w++)
            words[w] = word_of_bytes(row + k + w * INT4_INPUTS, &beyond);
    else if (part->order)
        for (uint64_t w = 0; w < count; w++)
            words[w] = word_in_order(row, part->order + k + w * INT4_INPUTS);
    else memcpy(words, row + k / 2, depth / 2);
    if (!beyond) return LORA_OK;
    return lora_fail(failure, LORA_ERR_ARGUMENT,
                     "%.120s: output %" PRIu64 " has a value beyond 15 among inputs %" PRIu64
                     " .. %" PRIu64 "; expected 4 bits",
                     part->name, output, k, k + depth - 1);
}

/* A block whose columns are rows of the file, through a copy in which they are padded. */
static int block_oi(const struct lora_pack_part *parts, const struct lora_pack_task *task,
                    uint64_t tile, uint64_t k, uint32_t *block, struct lora_failure *failure) {
    uint32_t columns[LORA_BLOCK_N][LORA_BLOCK_K / INT8_INPUTS];
    uint64_t column = tile * LORA_BLOCK_N, width = min(task->n - column, LORA_BLOCK_N);
    uint64_t depth = min(task->k - k, LORA_BLOCK_K);
    memset(columns, 0, sizeof columns);
    for (uint64_t c = 0; c < width; c++) {
        const struct lora_pack_part *part;
        uint64_t output;
        pack_run(parts, task, column + c, 1, &part, &output);
        int status = column_words(columns[c], part, output, k, depth, failure);
        if (status) return status;
    }
    if (task->weight_type == LORA_WEIGHT_INT8)
        pack_words_int8(block, (const uint8_t *)columns, sizeof columns[0]);
    else pack_words_int4(block, (const uint8_t *)columns, sizeof columns[0]);
    return LORA_OK;
}

/* Inputs input .. input+7 of `count` outputs, of which the file holds eight inputs a word. */
static void words_io(uint32_t *out, const struct lora_pack_part *part, uint64_t input,
                     uint64_t output, uint64_t count) {
    const uint8_t *data = (const uint8_t *)part->data + output * sizeof *out;
    uint64_t stride = part->columns * sizeof *out;
    if (!part->order) {
        const uint8_t *row = data + input / INT4_INPUTS * stride;
        for (uint64_t c = 0; c < count; c++) out[c] = pack_spread(load_word(row + 4 * c));
        return;
    }
    memset(out, 0, count * sizeof *out);
    for (uint32_t i = 0; i < INT4_INPUTS; i++) {
        uint32_t from = part->order[input + i], shift = from % INT4_INPUTS * 4, to = 4 * i;
        const uint8_t *row = data + from / INT4_INPUTS * stride;
        for (uint64_t c = 0; c < count; c++)
            out[c] |= (load_word(row + 4 * c) >> shift & 15u) << to;
    }
    for (uint64_t c = 0; c < count; c++) out[c] = pack_spread(out[c]);
}

/* Value j of word i becomes value i of word j. */
static void transpose_nibbles(uint32_t words[8]) {
    static const uint32_t masks[] = {0x0f0f0f0fu, 0x00ff00ffu, 0x0000ffffu};
    for (uint32_t step = 0; step < 3; step++) {
        uint32_t apart = 1u << step, shift = 4 * apart;
        for (uint32_t i = 0; i < 8; i++) {
            if (i & apart) continue;
            uint32_t changed = (words[i] >> shift ^ words[i + apart]) & masks[step];
            words[i + apart] ^= changed;
            words[i] ^= changed << shift;
        }
    }
}

/* The same of eight outputs a word. AWQ's order in a word is undone by what blocks do to theirs. */
static void words_awq(uint32_t *out, const struct lora_pack_part *part, uint64_t input,
                      uint64_t output, uint64_t count) {
    const uint8_t *data = part->data;
    for (uint64_t c = 0; c < count;) {
        uint64_t from = output + c, skipped = from % 8, end = c + min(count - c, 8 - skipped);
        uint32_t words[INT4_INPUTS];
        for (uint32_t i = 0; i < INT4_INPUTS; i++) {
            uint64_t row = part->order ? part->order[input + i] : input + i;
            words[i] = pack_spread(load_word(data + (row * part->columns + from / 8) * 4));
        }
        transpose_nibbles(words);
        for (uint64_t j = skipped; c < end; c++, j++) out[c] = pack_spread(words[j]);
    }
}

/* A block whose inputs are rows of the file. */
static void block_io(const struct lora_pack_part *parts, const struct lora_pack_task *task,
                     uint64_t tile, uint64_t k, uint32_t *block) {
    uint64_t width = min(task->n - tile * LORA_BLOCK_N, LORA_BLOCK_N);
    uint64_t depth = min(task->k - k, LORA_BLOCK_K);
    if (width < LORA_BLOCK_N || depth < LORA_BLOCK_K) memset(block, 0, LORA_BLOCK_BYTES_INT4);
    for (uint64_t c = 0; c < width;) {
        const struct lora_pack_part *part;
        uint64_t output;
        uint64_t run = pack_run(parts, task, tile * LORA_BLOCK_N + c, width - c, &part, &output);
        for (uint64_t w = 0; w < depth / INT4_INPUTS; w++)
            (part->element == LORA_SOURCE_AWQ ? words_awq : words_io)(
                block + w * LORA_BLOCK_N + c, part, k + w * INT4_INPUTS, output, run);
        c += run;
    }
}

#define MAX_GROUPS (LORA_BLOCK_K / 32) /* of a block */

/* Scales and zero points of a block's groups, behind its values. */
static void block_groups(const struct lora_pack_part *parts, const struct lora_pack_task *task,
                         uint64_t tile, uint64_t k, uint8_t *block) {
    uint64_t group = pack_group(task), groups = task->k / group, first = k / group;
    uint64_t each = LORA_BLOCK_K / group, count = min(each, groups - first);
    uint64_t width = min(task->n - tile * LORA_BLOCK_N, LORA_BLOCK_N);
    uint16_t *scales = (uint16_t *)(void *)(block + LORA_BLOCK_BYTES_INT4);
    uint8_t *pairs = (uint8_t *)(scales + each * LORA_BLOCK_N);
    uint8_t zeros[MAX_GROUPS * LORA_BLOCK_N] = {0};
    memset(scales, 0, lora_pack_block_bytes(task->weight_type) - LORA_BLOCK_BYTES_INT4);
    for (uint64_t c = 0; c < width;) {
        const struct lora_pack_part *part;
        uint64_t output, end = c;
        end += pack_run(parts, task, tile * LORA_BLOCK_N + c, width - c, &part, &output);
        for (uint64_t at = (output - part->first) * groups + first; c < end; c++, at += groups)
            for (uint64_t g = 0; g < count; g++) {
                scales[g * LORA_BLOCK_N + c] = part->scales[at + g];
                zeros[g * LORA_BLOCK_N + c] = part->zeros[at + g];
            }
    }
    for (uint64_t i = 0; i < each * LORA_BLOCK_N / 2; i++)
        pairs[i] = (uint8_t)((zeros[2 * i] & 15) | zeros[2 * i + 1] << 4);
}

/* Row of the file with the tile's first column where all its columns are rows of one part, as
 * blocks hold their words; NULL else. */
static const uint8_t *direct(const struct lora_pack_part *parts, const struct lora_pack_task *task,
                             uint64_t tile, uint64_t *stride) {
    const struct lora_pack_part *part;
    uint64_t output, column = tile * LORA_BLOCK_N;
    if (task->n - column < LORA_BLOCK_N ||
        pack_run(parts, task, column, LORA_BLOCK_N, &part, &output) < LORA_BLOCK_N ||
        part->axes != LORA_AXES_OI || part->element == LORA_SOURCE_NIBBLES || part->order)
        return NULL;
    *stride = part->columns * pack_element_bytes(part->element);
    return (const uint8_t *)part->data + output * *stride;
}

int pack_integer(const struct lora_pack_part *parts, const struct lora_pack_task *task,
                 uint64_t tile, void *const *blocks, struct lora_failure *failure) {
    int eight = task->weight_type == LORA_WEIGHT_INT8, status = LORA_OK;
    uint64_t stride = 0;
    const uint8_t *at = direct(parts, task, tile, &stride);
    for (uint64_t k = 0; k < task->k && !status; k += LORA_BLOCK_K, blocks++) {
        if (at && task->k - k >= LORA_BLOCK_K)
            (eight ? pack_words_int8 : pack_words_int4)(*blocks, at + (eight ? k : k / 2), stride);
        else if (parts[task->part_first].axes == LORA_AXES_OI)
            status = block_oi(parts, task, tile, k, *blocks, failure);
        else block_io(parts, task, tile, k, *blocks);
        if (!eight) block_groups(parts, task, tile, k, *blocks);
    }
    return status;
}
