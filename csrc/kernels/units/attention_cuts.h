/* How attention's heads are shared among threads. */
#ifndef LORA_KERNELS_ATTENTION_CUTS_H
#define LORA_KERNELS_ATTENTION_CUTS_H

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
    heads = heads > whole ? heads : whole;
    return heads ? heads : 1;
}

#endif
