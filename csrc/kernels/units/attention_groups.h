/* Rows of a call that attend together, because they see the same pages. */
#ifndef LORA_KERNELS_ATTENTION_GROUPS_H
#define LORA_KERNELS_ATTENTION_GROUPS_H

#include "job.h"

#define GROUP_ROWS (2 * PANEL_ROWS) /* at most */

/* Query heads of one KV head; local numbers. */
struct head_range {
    uint32_t first, count, kv_head;
};

/* Cuts the call's rows into groups: those of one sequence that follow each other, and of the rows
 * alone in their sequence those whose tables name the same pages. Sets the job's `order`, `firsts`
 * and `widest`; returns how many groups there are. A group is a matter of speed: whether its rows
 * share a tile is asked again where that is read. */
uint32_t lora_attention_groups(struct lora_job *job);

#endif
