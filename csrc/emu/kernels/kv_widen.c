/* INT8 keys and values with a scale a position, as the FP16 values that they stand for. */
#include "kv_widen.h"

#define TILE LORA_TILE_POSITIONS
#define RUN 64 /* values widened at once */

static float scale_at(const struct lora_variant *variant, const uint8_t *scales, uint32_t lane) {
    uint16_t half;
    float scale;
    memcpy(&half, scales + 2 * lane, sizeof(half));
    variant->halves_to_floats(&half, 1, &scale);
    return scale;
}

void lora_kv_widen_keys(const struct lora_variant *variant, const uint8_t *block,
                        uint32_t head_dim, uint16_t *wide) {
    const int8_t *values = (const int8_t *)block;
    float scales[TILE], row[TILE];
    for (uint32_t lane = 0; lane < TILE; lane++)
        scales[lane] = scale_at(variant, block + (uint64_t)TILE * head_dim, lane);
    for (uint32_t d = 0; d < head_dim; d++, values += TILE, wide += TILE) {
        for (uint32_t lane = 0; lane < TILE; lane++)
            row[lane] = (float)values[lane] * scales[lane];
        variant->floats_to_halves(row, TILE, wide);
    }
}

void lora_kv_widen_value(const struct lora_variant *variant, const uint8_t *block,
                         uint32_t head_dim, uint32_t lane, uint16_t *wide) {
    const int8_t *values = (const int8_t *)block + (uint64_t)lane * head_dim;
    float scale = scale_at(variant, block + (uint64_t)TILE * head_dim, lane), run[RUN];
    for (uint32_t d = 0; d < head_dim; d += RUN) {
        uint32_t count = head_dim - d < RUN ? head_dim - d : RUN;
        for (uint32_t i = 0; i < count; i++)
            run[i] = (float)values[d + i] * scale;
        variant->floats_to_halves(run, count, wide + d);
    }
}
