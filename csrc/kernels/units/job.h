/* A kernel call cut into items that threads may take in any order: none reads what another
 * writes. */
#ifndef LORA_KERNELS_JOB_H
#define LORA_KERNELS_JOB_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "operands.h"
#include "isa/variant.h"

#define JOB_WORKSPACE_BYTES 131072

struct lora_job;
struct lora_pool;

struct matrix_job {
    const struct lora_matrix *command;
    struct rows x_rows, y;  /* in board memory */
    bool own_row;           /* a single one, which each thread widens for itself */
    float *x;               /* [k] of a single row, panels of several; unless own_row */
    const uint16_t **lists; /* of blocks: two a thread, one block longer than a tile */
    const uint16_t *bias;   /* NULL without */
    uint32_t starts[LORA_SEGMENTS + 1];
    uint32_t tiles_apart; /* matrix_blocks.h: of tiles in the same banks */
    uint64_t tile_step;   /* bytes between the blocks of such tiles; 0: there are none */
    bool inside;          /* all blocks lie in their banks */
    struct rows h;        /* of the rows' adapters, where the command has a number for them */
    uint32_t type, group, block_bytes; /* of the weights; group 1 where they have none */
    const uint16_t *const *after; /* blocks that its only thread reads first in the next matmul */
    uint32_t after_count;         /* 0: not known */
    const float *scales;          /* [n] of INT8 activations */
    bool scaled_rows;             /* a struct lora_row_scale lies behind each row of x */
    void *quantized;              /* matrix_quantized.c */
};

struct adapter_job {
    const struct lora_adapter *command;
    float *x; /* [rows][k] of the rows that name an adapter */
    struct rows h;
};

struct experts_job {
    const struct lora_experts *command;
    struct rows x, y, chosen;
    struct expert *all; /* that some row has chosen, `count` of them, ascending */
    uint32_t count, k_blocks, tiles;
    uint32_t x_bytes, block_bytes; /* of a value of x; of a weight block */
    const uint8_t *table; /* of expert 0: scales (INT8, W4A8), then a bias; NULL: neither */
    uint32_t starts[LORA_SEGMENTS + 1];
    const uint16_t **lists; /* of blocks: two a thread, one block longer than a tile */
    float *totals;          /* of an item's tiles, a thread: COMBINE */
};

struct vector_job {
    const struct lora_vector *command;
    float *x, *z; /* [columns] of thread 0, the others' follow */
    struct rows x_rows, y_rows, z_rows;
    const uint16_t *gamma, *beta; /* of a norm; NULL without */
    const uint32_t *order;        /* of PERMUTE */
    const float *bias;            /* of ROUTE_SIGMOID; NULL in the other routes */
    uint32_t rows;                /* an item */
    int (*run_row)(struct lora_job *job, uint32_t row, uint32_t thread); /* quantize.c */
};

struct attention_job {
    const struct lora_attention *command;
    struct rows q, y;
    uint64_t positions;                   /* room for so many scores a thread */
    float *scratch;                       /* of all threads */
    const struct lora_head_slope *slopes; /* of the local query heads; NULL without */
    uint32_t heads;                       /* an item; all groups have the same cuts */
    bool together;                        /* some rows can be done at once */
    uint32_t widest;                      /* rows of the largest group */
    uint8_t order[LORA_MAX_ROWS];         /* the call's rows, group after group */
    uint8_t firsts[LORA_MAX_ROWS + 1];    /* where each group begins in `order`, then the end */
};

struct recurrence_job {
    const struct lora_recurrence *command;
    struct rows x, y;
    const uint8_t *table;
    float *memory;   /* of all threads */
    uint64_t floats; /* of one */
};

/* Working memory of the jobs of one batch: steps of one row need no allocation. */
struct job_workspace {
    uint32_t used;
    _Alignas(LORA_LINE_BYTES) uint8_t bytes[JOB_WORKSPACE_BYTES];
};

struct lora_job {
    struct lora_unit_call *call;
    const struct lora_variant *variant;
    uint32_t rows, threads;
    struct lora_pool *pool;           /* that may also help to begin it; NULL: none */
    const struct lora_job *following; /* the batch's next job, NULL for the last */
    uint32_t items;
    uint64_t work; /* about nanoseconds on one thread */
    int (*run)(struct lora_job *job, uint32_t item, uint32_t thread);
    struct job_workspace *workspace;
    void *memory; /* what the workspace did not hold */
    union {
        struct matrix_job matrix;
        struct vector_job vector;
        struct attention_job attention;
        struct adapter_job adapter;
        struct experts_job experts;
        struct recurrence_job recurrence;
    };
    _Atomic uint64_t failed; /* lowest item that failed, times 2^16, and its status; ~0 none */
    _Atomic uint32_t nonfinite_count, nonfinite_row;
};

/* Memory until the job is closed; NULL where there is none. Once a job. */
void *lora_job_memory(struct lora_job *job, uint64_t bytes);
/* While a job is begun: calls task(job, item, thread) for each of `count` items that take so many
 * values together, on all threads where that pays. */
void lora_job_share(struct lora_job *job, uint64_t values, uint32_t count,
                    void (*task)(void *job, uint32_t item, uint32_t thread));
/* Cuts a vector call, whose command is set, into items of whole rows: `rows`, items and work. */
void lora_vector_cut(struct lora_job *job, uint32_t columns_per_ns);
/* Finds x and y of a vector call, rows of values so many bytes wide. LORA_ERR_ADDRESS: one is not
 * in its bank. */
int lora_vector_rows(struct lora_job *job, uint32_t x_width, uint32_t y_width);
/* Check a call and cut it: an enum lora_status. `threads` may run items at once. */
int lora_matrix_begin(struct lora_job *job);
int lora_vector_begin(struct lora_job *job);
/* elementwise.c; the job's command is set. */
int lora_elementwise_begin(struct lora_job *job);
/* quantize.c: vector operations with items of their own; the job's command is set. */
int lora_quantize_begin(struct lora_job *job);
int lora_quantize_heads_begin(struct lora_job *job);
int lora_row_max_begin(struct lora_job *job);
int lora_quantize_row_begin(struct lora_job *job);
int lora_permute_begin(struct lora_job *job);
int lora_route_begin(struct lora_job *job); /* route.c */
int lora_add_gated_begin(struct lora_job *job);
int lora_join_heads_begin(struct lora_job *job); /* join_heads.c */
int lora_attention_begin(struct lora_job *job);
int lora_attention_int8_begin(struct lora_job *job); /* KV_INT8 */
int lora_adapter_begin(struct lora_job *job);
int lora_experts_begin(struct lora_job *job);
int lora_recurrence_begin(struct lora_job *job);
/* gated_delta.c; the job's command, x and y are set. */
int lora_recurrent_state_begin(struct lora_job *job);
/* adapter.c: what the rows' adapters add to sums[row][32] of one column tile. */
int lora_adapter_up(const struct lora_job *job, uint32_t tile, uint32_t columns, float *sums);
/* LORA_VEC_LN_SUMS .. LORA_VEC_RMS_APPLY; x and z hold `columns` floats each. */
int lora_norm_begin(struct lora_job *job);
void lora_norm_sums(struct lora_job *job, uint32_t row);
void lora_norm_apply(struct lora_job *job, uint32_t row, float *x, float *z);
/* head_norm.c: LORA_VEC_RMS_HEADS .. LORA_VEC_RMS_ROW, in the same way. */
int lora_head_norm_begin(struct lora_job *job); /* RMS_HEADS */
int lora_head_row_begin(struct lora_job *job);  /* HEAD_SUMS, RMS_ROW */
void lora_head_norm_each(struct lora_job *job, uint32_t row, float *x, float *z);
void lora_head_norm_sums(struct lora_job *job, uint32_t row, float *x);
void lora_head_norm_row(struct lora_job *job, uint32_t row, float *x, float *z);

/* The lowest of what several threads find. */
static inline void job_min_row(struct lora_job *job, uint32_t row) {
    uint32_t before = atomic_load(&job->nonfinite_row);
    while (row < before && !atomic_compare_exchange_weak(&job->nonfinite_row, &before, row)) {
    }
}

static inline void job_count_nonfinite(struct lora_job *job, uint32_t i, uint32_t count) {
    if (count == 0) return;
    atomic_fetch_add(&job->nonfinite_count, count);
    job_min_row(job, call_step_row(job->call, i));
}

#endif
