/* Weights in GGUF's blocks in plain C. */
#include "gguf.h"
#include "half.h"
#include "segments.h"

#define N LORA_BLOCK_N

static float value(uint32_t kind, const uint8_t *block, uint32_t k, uint32_t n) {
    static const int8_t meaning[] = LORA_GGUF_CODEBOOK, e2m1[] = LORA_GGUF_E2M1;
    if (gguf_is_bytes(kind)) return (float)(int8_t)block[k * N + n];
    const uint8_t *high = block + GGUF_HIGH;
    uint32_t v = block[k / 2 * N + n] >> k % 2 * 4 & 15;
    if (lora_gguf_has_fifth(kind)) v |= (high[k / 8 * N + n] >> k % 8 & 1u) << 4;
    if (lora_gguf_has_upper(kind)) v |= (high[k / 4 * N + n] >> k % 4 * 2 & 3u) << 4;
    if (kind == LORA_GGUF_IQ4_NL) return (float)meaning[v];
    if (kind == LORA_GGUF_MXFP4) return (float)e2m1[v];
    return (float)((int32_t)v - (int32_t)lora_gguf_offset(kind));
}

static float half(const uint8_t *halves, uint32_t i) {
    return half_to_float(((const uint16_t *)(const void *)halves)[i]);
}

/* Scale and minimum of the weight at (k, n). */
static void scaling(uint32_t kind, const struct gguf_pair *block, uint32_t k, uint32_t n,
                    float *scale, float *minimum) {
    const uint8_t *d = block->block + gguf_scales(kind);
    uint32_t group = k / 32;
    *minimum = 0;
    if (lora_gguf_has_upper(kind)) {
        const uint8_t *scales = d + 2 * N, *dmin = scales + 8 * N, *minima = dmin + 2 * N;
        *scale = half(d, n) * (float)(int8_t)scales[k / 16 * N + n];
        if (lora_gguf_has_minima(kind)) *minimum = half(dmin, n) * (float)minima[k / 16 * N + n];
        return;
    }
    if (kind == LORA_GGUF_MXFP4) {
        *scale = float_of_bits((d[group * N + n] - 1u) << 23);
        return;
    }
    if (!lora_gguf_is_super(kind)) {
        *scale = half(d, group * N + n);
        if (lora_gguf_has_minima(kind)) *minimum = -half(d + 8 * N, group * N + n);
        return;
    }
    const uint8_t *low = d, *high = low + 4 * N;
    uint32_t four = low[group * N + n], two = high[group / 2 * N + n] >> group % 2 * 4;
    *scale = half(block->first + gguf_shared(kind), n) * (float)((four & 15) | (two & 3) << 4);
    *minimum = half(block->second + gguf_shared(kind), n) * (float)(four >> 4 | (two & 12) << 2);
}

static void widen(uint32_t kind, const struct gguf_pair *block, uint16_t *wide) {
    const uint8_t *values = block->block;
    for (uint32_t k = 0; k < LORA_BLOCK_K; k++)
        for (uint32_t n = 0; n < N; n++) {
            float scale, minimum;
            scaling(kind, block, k, n, &scale, &minimum);
            wide[k * N + n] = float_to_half(value(kind, values, k, n) * scale - minimum);
        }
}

static void row(uint32_t kind, const struct gguf_tile *tile, float *out) {
    float parts[LORA_SEGMENTS][N] = {{0}};
    uint16_t wide[LORA_BLOCK_K * N];
    uint32_t s = 0;
    for (uint32_t k = 0; k < tile->starts[LORA_SEGMENTS]; k++) {
        if (k % LORA_BLOCK_K == 0) {
            struct gguf_pair block = gguf_pair_of(kind, tile->blocks, k / LORA_BLOCK_K);
            widen(kind, &block, wide);
        }
        while (k >= tile->starts[s + 1]) s++;
        for (uint32_t n = 0; n < N; n++)
            parts[s][n] = parts[s][n] + tile->x[k] * half_to_float(wide[k % LORA_BLOCK_K * N + n]);
    }
    for (uint32_t n = 0; n < N; n++) {
        float sums[LORA_SEGMENTS];
        for (s = 0; s < LORA_SEGMENTS; s++) sums[s] = parts[s][n];
        out[n] = segment_tree(sums);
    }
}

const struct lora_gguf lora_gguf_plain = {.widen = widen, .row = row};
