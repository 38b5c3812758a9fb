/* Which blocks one all-gather consists of: the same pure function on every board. */
#ifndef EMU_GATHER_PLAN_H
#define EMU_GATHER_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include "lora/abi.h"

#define GATHER_GROUPS (LORA_MAX_ROWS / LORA_ROW_GROUP)
#define GATHER_BLOCKS (GATHER_GROUPS * LORA_SEGMENTS) /* 32: a bit each in a word */

struct gather_shape { /* what a plan depends on */
    uint32_t columns;
    uint16_t share_unit, segment_unit, element_bytes;
    uint8_t boards, rows;
    uint8_t owners; /* the first boards, which have all columns; the others receive alone */
    uint8_t reserved[3];
};

struct gather_block {
    uint8_t group, first, segments, reserved;
    uint32_t column, columns; /* of the full-width row */
    uint32_t bytes;           /* whole block: rows of the group, one after another */
};

struct gather_source {
    uint32_t block_count;
    struct gather_block blocks[GATHER_BLOCKS];    /* in the order of their numbers */
    uint8_t number[GATHER_GROUPS][LORA_SEGMENTS]; /* of the block that starts there; 255 none */
};

struct gather_wait { /* what a board has to receive from the others at first */
    uint32_t missing[GATHER_GROUPS][LORA_SEGMENTS]; /* bytes */
    uint32_t missing_total;
    uint32_t groups_done[LORA_SEGMENTS];
};

struct gather_port {                     /* what a gather adds to a port's counters */
    uint32_t sent, received;             /* frames, by the Router's own count */
    uint32_t tx, rx, frames;             /* 64-byte transfers, frames received */
    uint32_t stops;                      /* of the sender, at a full FIFO */
    uint64_t frame_bytes, payload_bytes; /* sent */
};

struct gather_counts { /* of a board: ports to next and to previous */
    struct gather_port ports[2];
};

struct gather_plan {
    struct gather_shape shape;
    bool counted, counted_ring; /* `counts` are known, and of a ring or of a path */
    struct gather_counts counts[LORA_MAX_BOARDS];
    uint32_t groups;
    uint32_t max_blocks; /* of a source */
    uint32_t segment_start[LORA_SEGMENTS + 1];
    uint32_t share_start[LORA_MAX_BOARDS + 1];
    uint32_t overlap[LORA_MAX_BOARDS][LORA_SEGMENTS]; /* columns of a segment that a board owns */
    struct gather_source sources[LORA_MAX_BOARDS];
    struct gather_wait waits[LORA_MAX_BOARDS];
};

void gather_plan_make(struct gather_plan *plan, const struct gather_shape *shape);

static inline uint32_t gather_group_rows(const struct gather_plan *plan, uint32_t group) {
    uint32_t left = plan->shape.rows - group * LORA_ROW_GROUP;
    return left < LORA_ROW_GROUP ? left : LORA_ROW_GROUP;
}

#endif
