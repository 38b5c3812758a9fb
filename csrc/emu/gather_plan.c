#include "gather_plan.h"

#include <string.h>

#define NONE 255

static uint32_t min(uint32_t a, uint32_t b) { return a < b ? a : b; }

/* Start of part `at` of `parts` when columns are sharded in whole units. */
static uint32_t share_at(uint32_t columns, uint32_t unit, uint32_t at, uint32_t parts) {
    uint64_t units = ((uint64_t)columns + unit - 1) / unit;
    uint64_t start = at * units / parts * unit;
    return start > columns ? columns : (uint32_t)start;
}

static uint32_t overlap(const struct gather_plan *plan, uint32_t source, uint32_t segment) {
    uint32_t first = plan->share_start[source], last = plan->share_start[source + 1];
    if (first < plan->segment_start[segment]) first = plan->segment_start[segment];
    last = min(last, plan->segment_start[segment + 1]);
    return last > first ? last - first : 0;
}

static void add_block(struct gather_source *source, uint32_t group, uint32_t first) {
    struct gather_block *block = &source->blocks[source->block_count];
    *block = (struct gather_block){.group = (uint8_t)group, .first = (uint8_t)first};
    source->number[group][first] = (uint8_t)source->block_count++;
}

static uint32_t column_of(const struct gather_plan *plan, uint32_t source, uint32_t segment) {
    uint32_t share = plan->share_start[source], start = plan->segment_start[segment];
    return share > start ? share : start;
}

/* Greedy from the first segment: the block grows while it still fits one frame. */
static void plan_group(struct gather_plan *plan, uint32_t rank, uint32_t group) {
    struct gather_source *source = &plan->sources[rank];
    uint32_t column_bytes = gather_group_rows(plan, group) * plan->shape.element_bytes;
    struct gather_block *open = NULL;
    for (uint32_t segment = 0; segment < LORA_SEGMENTS; segment++) {
        uint32_t columns = plan->overlap[rank][segment];
        if (columns == 0) continue;
        uint32_t bytes = columns * column_bytes;
        if (!open || open->bytes + bytes > LORA_FRAME_PAYLOAD) {
            add_block(source, group, segment);
            open = &source->blocks[source->block_count - 1];
            open->column = column_of(plan, rank, segment);
        }
        open->segments = (uint8_t)(segment - open->first + 1);
        open->columns += columns;
        open->bytes += bytes;
    }
}

static void plan_wait(struct gather_plan *plan, uint32_t rank) {
    struct gather_wait *wait = &plan->waits[rank];
    for (uint32_t s = 0; s < LORA_SEGMENTS; s++) {
        uint32_t columns = plan->segment_start[s + 1] - plan->segment_start[s];
        columns -= plan->overlap[rank][s];
        for (uint32_t g = 0; g < plan->groups; g++) {
            uint32_t bytes = columns * gather_group_rows(plan, g) * plan->shape.element_bytes;
            wait->missing[g][s] = bytes;
            wait->missing_total += bytes;
            wait->groups_done[s] += bytes == 0;
        }
    }
}

void gather_plan_make(struct gather_plan *plan, const struct gather_shape *shape) {
    memset(plan, 0, sizeof *plan);
    plan->shape = *shape;
    plan->groups = (shape->rows + LORA_ROW_GROUP - 1u) / LORA_ROW_GROUP;
    for (uint32_t s = 0; s <= LORA_SEGMENTS; s++)
        plan->segment_start[s] = share_at(shape->columns, shape->segment_unit, s, LORA_SEGMENTS);
    for (uint32_t b = 0; b <= shape->boards; b++)
        plan->share_start[b] = share_at(shape->columns, shape->share_unit, min(b, shape->owners),
                                        shape->owners);
    for (uint32_t b = 0; b < shape->boards; b++) {
        for (uint32_t s = 0; s < LORA_SEGMENTS; s++) plan->overlap[b][s] = overlap(plan, b, s);
        memset(plan->sources[b].number, NONE, sizeof plan->sources[b].number);
        for (uint32_t group = 0; group < plan->groups; group++) plan_group(plan, b, group);
        plan_wait(plan, b);
        if (plan->sources[b].block_count > plan->max_blocks)
            plan->max_blocks = plan->sources[b].block_count;
    }
}
