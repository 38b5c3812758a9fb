/* How attention's heads are shared among threads. */
#ifndef LORA_KERNELS_ATTENTION_CUTS_H
#define LORA_KERNELS_ATTENTION_CUTS_H

#include "attention_groups.h"
#include "job.h"

#define ITEMS_WANTED 8 /* of a call with few rows */
#define SHORT_NS 20000 /* less work is over before threads could make up for each other */

/* Positions of the longest row, about. */
static inline uint64_t attention_seen(const struct attention_job *t) {
    uint64_t seen = t->positions - LORA_MAX_SCRATCH + LORA_TILE_POSITIONS;
    uint32_t window = t->command->window;
    return window && window < seen ? window : seen;
}

/* How often the heads are cut, for each of `groups` groups of rows. */
static inline uint32_t attention_cuts(const struct lora_job *job, uint32_t groups) {
    uint32_t wanted = job->work <= SHORT_NS ? job->threads : ITEMS_WANTED;
    return groups < wanted ? wanted / groups : 1;
}

/* Heads of an item where heads of one KV head are read together: all of them, unless threads would
 * be idle. */
static inline uint32_t attention_heads(const struct lora_job *job, uint32_t groups) {
    const struct lora_attention *c = job->attention.command;
    uint32_t cuts = attention_cuts(job, groups), heads = (c->q_heads + cuts - 1) / cuts;
    uint32_t whole = c->group < c->q_heads ? c->group : c->q_heads;
    while (whole > heads && (uint64_t)groups * ((c->q_heads + whole - 1) / whole) < job->threads)
        whole = (whole + 1) / 2;
    heads = heads > whole ? (heads + whole - 1) / whole * whole : whole;
    return heads ? heads : 1;
}

/* How many items the heads of a group of rows are. */
static inline uint32_t attention_items(const struct lora_job *job) {
    uint32_t heads = job->attention.command->q_heads;
    return (heads + job->attention.heads - 1) / job->attention.heads;
}

/* Queries that are done at once, at most. */
static inline uint32_t attention_queries(const struct attention_job *t) {
    uint32_t queries = t->widest * t->heads;
    return queries < GROUP_ROWS ? queries : GROUP_ROWS;
}

/* From heads->first on: how many heads before `end` read the same KV head and fit with `rows` rows
 * each into a group. An enum lora_status. */
static inline int attention_heads_together(const struct lora_attention *c, uint32_t end,
                                           uint32_t rows, struct head_range *heads) {
    uint32_t first = c->q_first + heads->first, global = first / c->group;
    if (global < c->kv_first || global - c->kv_first >= c->kv_heads) return LORA_ERR_SIZE;
    heads->kv_head = global - c->kv_first;
    for (heads->count = 1;; heads->count++)
        if (heads->first + heads->count >= end || (heads->count + 1) * rows > GROUP_ROWS ||
            (first + heads->count) / c->group != global)
            return LORA_OK;
}

#endif
