/* docs/numbers.md, 3.19. */
#include "kept.h"

#include <string.h>

#include "isa/half.h"
#include "lora/recurrence_layout.h"

#define TILE LORA_TILE_POSITIONS

struct part { /* of a position: columns that lie in one block */
    uint16_t *values;
    uint32_t step, count; /* values apart */
};

/* The part that begins with a column, of `left` columns at most; its values NULL out of range. */
static struct part part_at(const struct kept *kept, struct kept_position at, uint32_t column,
                           uint32_t left) {
    uint32_t size = kept->call->list->head_dim, block = column / size, inside = column % size;
    struct part part = {.count = size - inside < left ? size - inside : left};
    uint32_t plane = kept->command->kv_layer + block / 2;
    uint16_t *base = (uint16_t *)(uintptr_t)kv_block_at(kept->call, plane, at.page, kept->head,
                                                        block % 2);
    if (!base) return part;
    part.step = block % 2 ? 1 : TILE;
    part.values = block % 2 ? base + at.lane * size + inside : base + inside * TILE + at.lane;
    return part;
}

int lora_kept_read(const struct kept *kept, struct kept_position at, uint32_t first, uint32_t count,
                   float *values) {
    for (uint32_t done = 0; done < count;) {
        struct part part = part_at(kept, at, first + done, count - done);
        if (!part.values) return LORA_ERR_ADDRESS;
        for (uint32_t i = 0; i < part.count; i++)
            values[done + i] = half_to_float(part.values[i * part.step]);
        done += part.count;
    }
    return LORA_OK;
}

int lora_kept_write(const struct kept *kept, struct kept_position at, uint32_t first,
                    uint32_t count, const uint16_t *values) {
    for (uint32_t done = 0; done < count;) {
        struct part part = part_at(kept, at, first + done, count - done);
        if (!part.values) return LORA_ERR_ADDRESS;
        for (uint32_t i = 0; i < part.count; i++) part.values[i * part.step] = values[done + i];
        done += part.count;
    }
    return LORA_OK;
}

int lora_kept_state(const struct kept *kept, uint32_t page, uint64_t first, uint64_t count,
                    float *values, bool store) {
    const struct lora_list *list = kept->call->list;
    uint32_t plane = kept->command->kv_layer + recurrence_position_planes(list, kept->command);
    uint64_t size = TILE / 2 * (uint64_t)list->head_dim; /* of a block */
    for (uint64_t done = 0, part; done < count; done += part) {
        uint64_t block = (first + done) / size, inside = (first + done) % size;
        part = size - inside < count - done ? size - inside : count - done;
        float *at = (float *)(uintptr_t)kv_block_at(kept->call, plane + (uint32_t)(block / 2), page,
                                                    kept->head, block % 2);
        if (!at) return LORA_ERR_ADDRESS;
        if (store) memcpy(at + inside, values + done, part * sizeof *at);
        else memcpy(values + done, at + inside, part * sizeof *at);
    }
    return LORA_OK;
}
