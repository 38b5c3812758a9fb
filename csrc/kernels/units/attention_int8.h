/* Query heads of rows that attend on INT8 K and V, and where these are read. */
#ifndef LORA_KERNELS_ATTENTION_INT8_H
#define LORA_KERNELS_ATTENTION_INT8_H

#include <stdbool.h>

#include "attention_bias.h"
#include "attention_groups.h"
#include "isa/integer.h"
#include "job.h"
#include "visible.h"

#define TILE LORA_TILE_POSITIONS

/* A row of the call. */
struct int8_row {
    const struct lora_unit_call *call;
    const struct lora_attention *command;
    struct visible seen;
    uint32_t row;
    bool straight; /* the path's slots follow one another */
};

/* One query head of a row. */
struct int8_query {
    const struct int8_row *a;
    const int8_t *q;
    int32_t total;  /* of q */
    float *s, *y;   /* [positions], [head_dim] */
    int32_t *sums;  /* [head_dim] */
    uint8_t *e;     /* [positions], 0 where the row sees nothing of a tile */
    float max, sum; /* of the scores; of the weights */
};

/* Query heads of one KV head, of rows that share their tiles before `parting`: each is read once
 * for all of them. */
struct int8_group {
    struct lora_job *job;
    const struct lora_integer *integer;
    struct int8_row *rows;
    struct int8_query *queries; /* head after head, of each all rows */
    uint32_t count, query_count, from, parting;
    uint32_t kv_head, kv_end;       /* which is read now; behind the last one of this item */
    const struct int8_row *longest; /* whose path all rows' begin; NULL: none */
    int8_t *tail;                   /* [TILE][head_dim] */
};

static inline uint32_t row_positions(const struct int8_row *a) {
    return a->seen.committed + a->seen.depth;
}

static inline uint32_t row_first(const struct int8_row *a) {
    return attention_first(a->command, row_positions(a));
}

/* Fetches the first INTEGER_AHEAD blocks that this item reads. While these are read, others are. */
void lora_int8_fetch_first(const struct int8_group *g);

/* Scores of all queries: q.k as FP32, times the command's scale. An enum lora_status. */
int lora_int8_score(const struct int8_group *g);

/* Adds weight times V to the sums of all queries. An enum lora_status. */
int lora_int8_weigh(const struct int8_group *g);

#endif
