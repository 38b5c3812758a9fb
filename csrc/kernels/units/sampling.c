/* What the host does with logits: random numbers, weights, draws, the largest ones.
 * docs/numbers.md, 8, 9.1, 9.2. Sums are FP64 in id order; what is selected is the same whatever
 * the method. */
#include "lora/sampling.h"

#include <math.h>
#include <string.h>

#include "isa/variant.h"

#define BLOCK 1024 /* of exponentials at a time */

/* --- keys: a value and its id in one number, the better the larger; equal values: lower ids first
 */

static uint64_t key_of(float value, uint32_t id) {
    uint32_t bits;
    value += 0.0f; /* -0 is +0 */
    memcpy(&bits, &value, sizeof(bits));
    bits ^= bits >> 31 ? UINT32_MAX : 1u << 31;
    return (uint64_t)bits << 32 | (UINT32_MAX - id);
}

static uint32_t id_of(uint64_t key) { return UINT32_MAX - (uint32_t)key; }

/* Heaps have their largest number first. */
static void sift(uint64_t *heap, uint32_t count, uint32_t at) {
    uint64_t moved = heap[at];
    for (uint64_t child; (child = 2 * (uint64_t)at + 1) < count; at = (uint32_t)child) {
        if (child + 1 < count && heap[child + 1] > heap[child]) child++;
        if (heap[child] <= moved) break;
        heap[at] = heap[child];
    }
    heap[at] = moved;
}

static void make_heap(uint64_t *heap, uint32_t count) {
    for (uint32_t i = count / 2; i-- > 0;) sift(heap, count, i);
}

/* A heap of the inverted keys of the `wanted` largest of `values`: the least of them is first. */
static void take_largest(const float *values, uint32_t count, uint32_t wanted, uint64_t *heap) {
    for (uint32_t i = 0; i < wanted; i++) heap[i] = ~key_of(values[i], i);
    make_heap(heap, wanted);
    float least = values[id_of(~heap[0])];
    for (uint32_t i = wanted; i < count; i++) {
        if (!(values[i] > least)) continue; /* equal ones have a higher id */
        heap[0] = ~key_of(values[i], i);
        sift(heap, wanted, 0);
        least = values[id_of(~heap[0])];
    }
}

void lora_top_tokens(const float *logits, uint32_t count, uint32_t wanted, uint64_t *keys,
                     uint32_t *ids) {
    if (!wanted) return;
    take_largest(logits, count, wanted, keys);
    for (uint32_t left = wanted; left-- > 0;) {
        ids[left] = id_of(~keys[0]);
        keys[0] = keys[left];
        sift(keys, left, 0);
    }
}

/* --- random numbers --------------------------------------------------------------------------- */

__extension__ typedef unsigned __int128 wide;

/* Philox4x64-10 (Salmon et al., 2011). */
static void philox(uint64_t counter[4], uint64_t k0, uint64_t k1) {
    for (int round = 0; round < 10; round++) {
        wide p0 = (wide)0xD2E7470EE14C6C93u * counter[0];
        wide p1 = (wide)0xCA5A826395121157u * counter[2];
        counter[0] = (uint64_t)(p1 >> 64) ^ counter[1] ^ k0;
        counter[2] = (uint64_t)(p0 >> 64) ^ counter[3] ^ k1;
        counter[1] = (uint64_t)p1;
        counter[3] = (uint64_t)p0;
        k0 += 0x9E3779B97F4A7C15u;
        k1 += 0xBB67AE8584CAA73Bu;
    }
}

void lora_uniforms(uint64_t seed, uint64_t sample, uint64_t position, uint64_t stream,
                   uint32_t count, double *uniforms) {
    for (uint32_t i = 0; i < count; i += 4) {
        uint64_t words[4] = {position, stream, i / 4, 0};
        philox(words, seed, sample);
        for (uint32_t j = 0; j < 4 && i + j < count; j++)
            uniforms[i + j] = (double)(words[j] >> 11) * 0x1p-53;
    }
}

/* --- weights --------------------------------------------------------------------------------- */

static float largest(const float *x, uint32_t count) {
    float lanes[16], top = -INFINITY;
    for (uint32_t j = 0; j < 16; j++) lanes[j] = -INFINITY;
    uint32_t i = 0;
    for (; i + 16 <= count; i += 16)
        for (uint32_t j = 0; j < 16; j++) lanes[j] = x[i + j] > lanes[j] ? x[i + j] : lanes[j];
    for (; i < count; i++) top = x[i] > top ? x[i] : top;
    for (uint32_t j = 0; j < 16; j++) top = lanes[j] > top ? lanes[j] : top;
    return top;
}

/* x[i] = `dropped` where its key is below `last`. */
static void drop_below(float *x, uint32_t count, uint64_t last, float dropped) {
    const uint32_t id = id_of(last);
    const float least = x[id];
    for (uint32_t i = 0; i < count; i++)
        if ((x[i] < least) | ((x[i] == least) & (i > id))) x[i] = dropped;
}

static double total_of(const float *weights, uint32_t count) {
    double total = 0.0;
    for (uint32_t i = 0; i < count; i++) total += weights[i];
    return total;
}

/* Drops all but the shortest prefix, the largest weights first, that reaches `top_p` of the total.
 * Weights below `threshold` sum to less than the rest of 1, so that others are enough; where
 * rounding breaks this, none is left out. */
static void keep_top_p(float *weights, uint32_t count, double top_p, uint64_t *heap) {
    const double total = total_of(weights, count), wanted = top_p * total;
    double threshold = total * (1.0 - top_p) / count;
    uint64_t last = 0;
    for (int tries = 0; tries < 2 && !last; tries++, threshold = -1.0) {
        uint32_t left = 0;
        for (uint32_t i = 0; i < count; i++)
            if (weights[i] >= threshold) heap[left++] = key_of(weights[i], i);
        make_heap(heap, left);
        double running = 0.0;
        while (left && !last) {
            running += weights[id_of(heap[0])];
            if (running >= wanted) last = heap[0];
            heap[0] = heap[--left];
            sift(heap, left, 0);
        }
    }
    if (last) drop_below(weights, count, last, 0.0f);
}

static void temper(const float *logits, uint32_t count, float temperature, float *scaled) {
    const float top = largest(logits, count);
    for (uint32_t i = 0; i < count; i++) scaled[i] = (logits[i] - top) / temperature;
}

/* Weights of what `temper` gave, by the filters but top-k. */
static void weigh(const struct lora_filters *filters, uint32_t count, uint64_t *keys,
                  float *weights) {
    lora_variant_current()->exps(weights, count);
    if (filters->top_p < 1.0) keep_top_p(weights, count, filters->top_p, keys);
    if (filters->min_p > 0.0) {
        const double least = filters->min_p * (double)largest(weights, count);
        for (uint32_t i = 0; i < count; i++)
            if (weights[i] < least) weights[i] = 0.0f;
    }
}

void lora_token_weights(const float *logits, uint32_t count, const struct lora_filters *filters,
                        uint64_t *keys, float *weights) {
    temper(logits, count, filters->temperature, weights);
    if (filters->top_k && filters->top_k < count) {
        take_largest(weights, count, filters->top_k, keys);
        drop_below(weights, count, ~keys[0], -INFINITY);
    }
    weigh(filters, count, keys, weights);
}

uint32_t lora_draw_token(const float *weights, uint32_t count, double u) {
    const double wanted = u * total_of(weights, count);
    double running = 0.0;
    uint32_t last = 0;
    for (uint32_t i = 0; i < count; i++) {
        running += weights[i];
        if (running > wanted) return i;
        if (weights[i] > 0.0f) last = i;
    }
    return last; /* u*total was rounded up to the total */
}

/* Whether a draw is possible: no NaN, and a finite maximum. */
static int drawable(const float *logits, uint32_t count) {
    uint32_t nan = 0;
    for (uint32_t i = 0; i < count; i++) nan |= logits[i] != logits[i];
    return !nan && isfinite(largest(logits, count));
}

/* Moves the values whose keys are `last` or above to the front, in order; their ids. Sums over them
 * are those over all: what is left out would weigh +0. */
static uint32_t keep_from(float *values, uint32_t count, uint64_t last, uint32_t *ids) {
    const uint32_t id = id_of(last);
    const float least = values[id];
    uint32_t kept = 0;
    for (uint32_t i = 0; i < count; i++) {
        const float value = values[i];
        values[kept] = value;
        ids[kept] = i;
        kept += (value > least) | ((value == least) & (i <= id));
    }
    return kept;
}

static uint32_t draw_one(const struct lora_draw *draw, uint32_t count, uint64_t *keys,
                         float *weights, uint32_t *ids) {
    const uint32_t wanted = draw->filters.top_k;
    double u;
    lora_uniforms(draw->seed, draw->sample, draw->position, 0, 1, &u);
    temper(draw->logits, count, draw->filters.temperature, weights);
    if (!wanted || wanted >= count) {
        weigh(&draw->filters, count, keys, weights);
        return lora_draw_token(weights, count, u);
    }
    take_largest(weights, count, wanted, keys);
    const uint32_t kept = keep_from(weights, count, ~keys[0], ids);
    weigh(&draw->filters, kept, keys, weights);
    return ids[lora_draw_token(weights, kept, u)];
}

void lora_draw_tokens(struct lora_draw *draws, uint32_t draw_count, uint32_t count, uint64_t *keys,
                      float *weights, uint32_t *ids) {
    for (struct lora_draw *draw = draws; draw < draws + draw_count; draw++) {
        draw->failed = !drawable(draw->logits, count);
        if (!draw->failed) draw->token = draw_one(draw, count, keys, weights, ids);
    }
}

double lora_exp_total(const float *logits, uint32_t count) {
    const float top = largest(logits, count);
    const struct lora_variant *variant = lora_variant_current();
    double total = 0.0;
    float block[BLOCK];
    for (uint32_t first = 0; first < count; first += BLOCK) {
        const uint32_t size = count - first < BLOCK ? count - first : BLOCK;
        for (uint32_t i = 0; i < size; i++) block[i] = logits[first + i] - top;
        variant->exps(block, size);
        for (uint32_t i = 0; i < size; i++) total += block[i];
    }
    return total;
}
