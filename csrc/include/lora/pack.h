/* From a checkpoint's tensors to bytes of board memory: conversion to FP16, transposition, weight
 * blocks of every type (abi.h), writing and checksums, on several threads and without a copy of the
 * model. */
#ifndef LORA_PACK_H
#define LORA_PACK_H

#include <stdint.h>

struct lora_cluster;
struct lora_failure;

enum lora_source_type {
    LORA_SOURCE_F16 = 0, /* for FP16 blocks and tables, as BF16 and F32 */
    LORA_SOURCE_BF16 = 1,
    LORA_SOURCE_F32 = 2,
    LORA_SOURCE_I8 = 3, /* for INT8 blocks; outputs as rows */
    LORA_SOURCE_NIBBLES =
        4,                 /* for 4-bit blocks, as all below: a byte each, 0..15; outputs as rows */
    LORA_SOURCE_WORDS = 5, /* eight inputs a 32-bit word, lowest bits first */
    LORA_SOURCE_AWQ = 6,   /* eight outputs a 32-bit word, in the order 0 2 4 6 1 3 5 7; IO */
    LORA_SOURCE_Q4_0 =
        7, /* for GGUF's blocks, as all below: bytes of its blocks; outputs as rows */
    LORA_SOURCE_IQ4_NL = 8,
    LORA_SOURCE_Q5_0 = 9,
    LORA_SOURCE_Q8_0 = 10,
    LORA_SOURCE_Q4_1 = 11,
    LORA_SOURCE_Q5_1 = 12,
    LORA_SOURCE_Q2_K = 13,
    LORA_SOURCE_Q3_K = 14,
    LORA_SOURCE_Q4_K = 15,
    LORA_SOURCE_Q5_K = 16,
    LORA_SOURCE_Q6_K = 17,
    LORA_SOURCE_MXFP4 = 18
};
enum lora_axes {
    LORA_AXES_IO = 0, /* the file's rows are inputs; tables: their rows; vectors: one row */
    LORA_AXES_OI = 1  /* the file's rows are outputs */
};

struct lora_pack_part { /* outputs first .. first+count-1 of a file's tensor [rows, columns] */
    const char *name;   /* the file's, for messages */
    const void *data;   /* the whole tensor, C order, of any alignment */
    uint64_t bytes;
    uint64_t rows, columns; /* of elements: of words or bytes where it holds these */
    uint64_t first, count;
    uint32_t element, axes;
    /* Of 4-bit blocks: a scale (FP16) and a zero point (0..15) of each group of each output, output
     * `first` first, [count, k/group]; bytes of both. */
    const uint16_t *scales;
    const uint8_t *zeros;
    uint64_t scale_bytes, zero_bytes;
    /* Which input of the file lies at each of the k inputs; NULL: in the file's order. */
    const uint32_t *order;
    uint64_t order_bytes;
};

enum lora_pack_kind { LORA_PACK_MATRIX = 0, LORA_PACK_TABLE = 1 };

/* Parts side by side are a matrix [k, n], or where `partial` its columns column_first .., of which
 * column tiles first .. first+count-1 are placed, or a table [k, n], of which rows first ..
 * first+count-1 are. */
struct lora_pack_task {
    uint32_t kind, board;
    uint32_t part_first, part_count;
    uint64_t k, n;
    uint64_t first, count;         /* tiles or rows */
    uint32_t bank, bank_count;     /* tables: bank_count 1 */
    uint32_t merge, request_first; /* matrices: blocks a request, first request */
    uint64_t offset;               /* bytes in the bank, of the whole matrix or table */
    uint64_t row_bytes;            /* tables: whole lines, what is padded is zero */
    uint64_t column_first;         /* matrices: 0 but of partial ones */
    uint32_t weight_type, partial; /* matrices: weight_type of a matrix command */
};

struct lora_range { /* bytes of one bank that were written without a gap, and their CRC-32 */
    uint32_t board, bank;
    uint64_t offset, bytes;
    uint32_t crc, reserved;
};

struct lora_placing {
    uint32_t size;
    uint32_t threads; /* 1..LORA_PACK_THREADS */
    const struct lora_pack_part *parts;
    const struct lora_pack_task *tasks;
    uint32_t part_count, task_count;
    struct lora_range *ranges; /* out, by board, bank, offset */
    uint32_t range_capacity;   /* the sum of the tasks' bank_count is enough */
    uint32_t range_count;      /* out */
    void *scratch;             /* scratch_bytes / threads for each, in whole lines */
    uint64_t scratch_bytes;    /* holds at least a column tile with a request's padding, or a row */
};
#define LORA_PACK_THREADS 64
#define LORA_PACK_K_BLOCKS 4096 /* 524288 inputs */

/* Places all tasks. A part whose tile range ends the matrix also fills its last request with zero
 * blocks. LORA_ERR_NAN names the first weight, in the order of tasks, that FP16 cannot hold: NaN,
 * infinity, or a magnitude of 65520 or more. */
int lora_cluster_place(struct lora_cluster *cluster, struct lora_placing *placing,
                       struct lora_failure *failure);

/* The blocks of a whole matrix, K fastest, into memory of `bytes` bytes. One thread. */
int lora_pack_blocks(const struct lora_pack_part *parts, uint32_t part_count, uint64_t k,
                     uint64_t n, uint32_t weight_type, void *blocks, uint64_t bytes,
                     struct lora_failure *failure);

/* Bytes of a block of this weight_type, 0 where there is no such type. */
uint64_t lora_pack_block_bytes(uint32_t weight_type);

/* CRC-32 of two ranges one behind the other, from theirs and the second one's length. */
uint32_t lora_crc32_combine(uint32_t first, uint32_t second, uint64_t second_bytes);

/* Conversion in use: "plain" or "f16c". Forcing one is for tests: 0, or -1 where the machine has it
 * not; NULL goes back to the fastest. */
const char *lora_pack_variant(void);
int lora_pack_force(const char *variant);

#endif
