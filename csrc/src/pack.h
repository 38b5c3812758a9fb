/* What the packing sources share. */
#ifndef LORA_PACK_INTERNAL_H
#define LORA_PACK_INTERNAL_H

#include <stdint.h>

#include "internal.h"
#include "lora/pack.h"

/* pack_half.c */
uint64_t pack_element_bytes(uint32_t element);
/* `count` elements as FP16; 0, or not 0 where one is not finite afterwards. */
int pack_halves(uint16_t *out, const uint8_t *in, uint64_t count, uint32_t element);
/* Place of the first of `count` elements that FP16 cannot hold, and its value. */
uint64_t pack_find_bad(const uint8_t *in, uint64_t count, uint32_t element, double *value);

/* pack_transpose.c: [32][128] -> [128][32] */
void pack_transpose(uint16_t *block, const uint16_t *columns);

/* pack_blocks.c */
int pack_check(const struct lora_pack_part *parts, uint32_t part_count,
               const struct lora_pack_task *task, struct lora_failure *failure);
/* Tiles first .. first+count-1; block i of them (K fastest) goes to blocks[i]. */
int pack_tiles(const struct lora_pack_part *parts, const struct lora_pack_task *task,
               uint64_t first, uint64_t count, uint16_t *const *blocks,
               struct lora_failure *failure);
/* Rows first .. first+count-1 of a table. */
int pack_rows(const struct lora_pack_part *parts, const struct lora_pack_task *task, uint64_t first,
              uint64_t count, uint8_t *rows, struct lora_failure *failure);

/* pack_ranges.c: sorts and joins ranges that touch. Returns their number. */
uint32_t pack_join(struct lora_range *ranges, uint32_t count);

#endif
