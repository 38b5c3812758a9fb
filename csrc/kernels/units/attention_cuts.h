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

#endif
