/* K and V of a row's sequence as FP16. Blocks with a scale a position (KV_INT8_HEADS) are widened:
 * FP16(FP32(value)*FP32(scale)). docs/numbers.md, 6.7. */
#include "attend.h"

#include <string.h>

#define RUN 64 /* values widened at once */

static float scale_at(const struct lora_variant *variant, const uint8_t *scales, uint32_t lane) {
    uint16_t half;
    float scale;
    memcpy(&half, scales + 2 * lane, sizeof(half));
    variant->halves_to_floats(&half, 1, &scale);
    return scale;
}

void lora_attend_widen_keys(const struct lora_variant *variant, const uint8_t *block,
                            uint32_t head_dim, uint16_t *wide) {
    const int8_t *values = (const int8_t *)block;
    float scales[TILE], row[TILE];
    for (uint32_t lane = 0; lane < TILE; lane++)
        scales[lane] = scale_at(variant, block + (uint64_t)TILE * head_dim, lane);
    for (uint32_t d = 0; d < head_dim; d++, values += TILE, wide += TILE) {
        for (uint32_t lane = 0; lane < TILE; lane++) row[lane] = (float)values[lane] * scales[lane];
        variant->floats_to_halves(row, TILE, wide);
    }
}

/* One position of a block of V: wide[head_dim]. */
static void widen_value(const struct lora_variant *variant, const uint8_t *block, uint32_t head_dim,
                        uint32_t lane, uint16_t *wide) {
    const int8_t *values = (const int8_t *)block + (uint64_t)lane * head_dim;
    float scale = scale_at(variant, block + (uint64_t)TILE * head_dim, lane), run[RUN];
    for (uint32_t d = 0; d < head_dim; d += RUN) {
        uint32_t count = head_dim - d < RUN ? head_dim - d : RUN;
        for (uint32_t i = 0; i < count; i++) run[i] = (float)values[d + i] * scale;
        variant->floats_to_halves(run, count, wide + d);
    }
}

/* One position of a block of V as FP16, widened into row i. */
static const uint16_t *value(const struct attend *a, const uint8_t *block, uint32_t lane,
                             uint32_t i) {
    uint32_t head_dim = a->command->head_dim;
    if (!a->wide) return (const uint16_t *)(const void *)block + (uint64_t)lane * head_dim;
    uint16_t *wide = a->wide + (uint64_t)i * head_dim;
    widen_value(a->variant, block, head_dim, lane, wide);
    return wide;
}

int lora_attend_values(const struct attend *a, uint32_t kv_head, uint32_t start, uint32_t count,
                       const uint16_t *v[TILE]) {
    uint32_t layer = a->command->kv_layer;
    const uint8_t *block = NULL;
    if (start < a->seen.committed) {
        block = kv_block_at(a->call, layer, a->seen.pages[start / TILE], kv_head, 1);
        if (!block) return LORA_ERR_ADDRESS;
    }
    uint32_t first = block && !a->wide ? a->seen.committed - start : 0;
    first = first < count ? first : count;
    const uint16_t *row = (const uint16_t *)(const void *)block;
    for (uint32_t i = 0; i < first; i++, row += a->command->head_dim) v[i] = row;
    for (uint32_t i = first; i < count; i++) {
        if (start + i < a->seen.committed) {
            v[i] = value(a, block, i, i);
            continue;
        }
        uint32_t slot = a->seen.path[start + i - a->seen.committed];
        const uint8_t *scratch = kv_block_at(a->call, layer, slot / TILE, kv_head, 1);
        if (!scratch) return LORA_ERR_ADDRESS;
        v[i] = value(a, scratch, slot % TILE, i);
    }
    return LORA_OK;
}
