/* One row, or a few, times one column tile: memory's speed is what counts. Included once by each
 * implementation, after it has defined:
 *   KERNEL, KERNEL_INLINE  attributes of functions
 *   VECTORS                of a tile's columns; LANES and their operations are of lanes_*.h
 *   fused(a, b, sum)       a*b + sum
 *   SUMS                   vectors of sums that registers hold beside weights and values
 *   STREAMS                segments of a row on its own that are read together
 *   PREFETCH               units of 2 KiB that each stream is prefetched
 *   NEAR                   lines that a row on its own has in the first cache early; 0: none
 *   FEW_ROWS               1, 3 or 4 */
#ifndef LORA_KERNELS_STREAMS_H
#define LORA_KERNELS_STREAMS_H

#include "panel.h"
#include "segments.h"
#include "unrolled.h"

#define FITTING(rows, streams) ((rows) * (streams) * VECTORS <= SUMS)
#define STREAMS_OF(rows) (FITTING(rows, 8) ? 8 : FITTING(rows, 4) ? 4 : FITTING(rows, 2) ? 2 : 1)

/* The number of rows, of segments read together, and of those whose sums are in registers at once.
 * All are constants. */
struct few {
    int rows, streams, at_once;
    uint32_t x_step; /* floats from one column's values to the next's */
};

_Static_assert(STREAMS % STREAMS_OF(1) == 0, "streams are read in whole rounds");

/* Where a segment is in a tile's blocks, and its values of x. */
struct stream {
    const float *x;
    const uint16_t *weights, *prefetch;
};

/* x, where its segments begin, its tile's blocks, and those that are read after them. */
struct tile {
    const float *x;
    const uint32_t *starts;
    const uint16_t *const *blocks, *const *next;
};

/* Columns of one segment, each weight converted on the way. */
KERNEL_INLINE void add_columns(const struct few few, const float *x, uint32_t columns,
                               const uint16_t *weights, float_vec *sum) {
    float_vec s[FEW_ROWS * VECTORS];
    UNROLLED
    for (int i = 0; i < few.rows * VECTORS; i++) s[i] = sum[i];
    for (uint32_t k = 0; k < columns; k++, weights += LORA_BLOCK_N, x += few.x_step) {
        UNROLLED
        for (int i = 0; i < few.rows * VECTORS; i++)
            s[i] = fused(splat(x[i / VECTORS]), load_halves(weights + i % VECTORS * LANES), s[i]);
    }
    UNROLLED
    for (int i = 0; i < few.rows * VECTORS; i++) sum[i] = s[i];
}

/* One unit of several segments at once. They lie in different parts of memory, and what follows
 * each of them is prefetched meanwhile: more requests are in flight than one stream allows. The
 * sums are local to one loop, which is unrolled early enough for them to become registers; through
 * the caller's array every iteration would store them. */
KERNEL_INLINE void add_units(const struct few few, const struct stream *all, int first,
                             float_vec *sum) {
    const struct stream *streams = all + first;
    const uint32_t rounds = (uint32_t)(few.streams / few.at_once);
    const uint32_t round = (uint32_t)(first / few.at_once), lines = LORA_UNIT_COLUMNS / rounds;
    const int near = NEAR && few.rows == 1 ? few.at_once : 0;
    float_vec s[SUMS];
    UNROLLED
    for (int i = 0; i < few.at_once * few.rows * VECTORS; i++) s[i] = sum[i];
    for (uint32_t line = 0; line < lines; line++) {
        UNROLLED
        for (uint32_t part = 0; part < rounds; part++) {
            const struct stream *fetched = all + part * (uint32_t)few.at_once;
            const uint32_t k = line * rounds + part;
            UNROLLED
            for (int i = 0; i < few.at_once; i++)
                _mm_prefetch(
                    (const char *)(fetched[i].prefetch + (round * lines + line) * LORA_BLOCK_N),
                    _MM_HINT_T1);
            UNROLLED
            for (int i = 0; i < near; i++)
                _mm_prefetch((const char *)(streams[i].weights + (k + NEAR) * LORA_BLOCK_N),
                             _MM_HINT_T0);
            UNROLLED
            for (int i = 0; i < few.at_once * few.rows * VECTORS; i++) {
                const struct stream *stream = &streams[i / VECTORS / few.rows];
                const uint16_t *weights = stream->weights + k * LORA_BLOCK_N + i % VECTORS * LANES;
                uint32_t row = (uint32_t)(i / VECTORS % few.rows);
                s[i] = fused(splat(stream->x[k * few.x_step + row]), load_halves(weights), s[i]);
            }
        }
    }
    UNROLLED
    for (int i = 0; i < few.at_once * few.rows * VECTORS; i++) sum[i] = s[i];
}

KERNEL_INLINE const uint16_t *unit_at(const uint16_t *const *blocks, uint32_t k) {
    return blocks[k / LORA_BLOCK_K] + k % LORA_BLOCK_K * LORA_BLOCK_N;
}

/* The columns of segments s .. s+streams-1 from `whole` on, which not all of them have. */
KERNEL_INLINE void add_rest(const struct few few, const struct tile *t, uint32_t s, uint32_t whole,
                            float_vec *sum) {
    for (int i = 0; i < few.streams; i++, s++, sum += few.rows * VECTORS)
        for (uint32_t at = t->starts[s] + whole; at < t->starts[s + 1]; at += LORA_UNIT_COLUMNS) {
            uint32_t left = t->starts[s + 1] - at;
            add_columns(few, t->x + at * few.x_step,
                        left < LORA_UNIT_COLUMNS ? left : LORA_UNIT_COLUMNS, unit_at(t->blocks, at),
                        sum);
        }
}

/* Sums of the segments from s on. The segments read next are the following ones, or at the end the
 * next tile's from 0 on. */
KERNEL_INLINE void add_segments(const struct few few, const struct tile *t, uint32_t s,
                                float_vec *sum) {
    uint32_t units = common_units(t->starts, s, (uint32_t)few.streams);
    uint32_t whole = units * LORA_UNIT_COLUMNS,
             prefetch_units = units < PREFETCH ? units : PREFETCH;
    uint32_t following = (s + (uint32_t)few.streams) % LORA_SEGMENTS;
    const uint16_t *const *after = following ? t->blocks : t->next;
    for (int i = 0; i < few.streams * few.rows * VECTORS; i++) sum[i] = zero_floats();
    for (uint32_t u = 0; u < units; u++) {
        struct stream streams[LORA_SEGMENTS];
        uint32_t at = u * LORA_UNIT_COLUMNS, then = at + prefetch_units * LORA_UNIT_COLUMNS;
        for (uint32_t i = 0; i < (uint32_t)few.streams; i++) {
            uint32_t start = t->starts[s + i];
            streams[i].x = t->x + (start + at) * few.x_step;
            streams[i].weights = unit_at(t->blocks, start + at);
            streams[i].prefetch = then < whole
                                      ? unit_at(t->blocks, start + then)
                                      : unit_at(after, t->starts[following + i] + then - whole);
        }
        for (int i = 0; i < few.streams; i += few.at_once)
            add_units(few, streams, i, sum + i * few.rows * VECTORS);
    }
    add_rest(few, t, s, whole, sum);
}

/* The sums of the eight segments are `apart` vectors from each other. */
KERNEL_INLINE float_vec tree(const float_vec *sums, int apart) {
    float_vec a = add(add(sums[0], sums[apart]), add(sums[2 * apart], sums[3 * apart]));
    float_vec b = add(add(sums[4 * apart], sums[5 * apart]), add(sums[6 * apart], sums[7 * apart]));
    return add(a, b);
}

/* out[row][32] */
KERNEL_INLINE void multiply(const struct few few, const struct tile *t, float *out) {
    const int width = few.rows * VECTORS;
    float_vec sums[LORA_SEGMENTS * FEW_ROWS * VECTORS];
    for (uint32_t s = 0; s < LORA_SEGMENTS; s += (uint32_t)few.streams)
        add_segments(few, t, s, sums + s * (uint32_t)width);
    for (int i = 0; i < width; i++) store_floats(out + i * LANES, tree(sums + i, width));
}

#define ROW_ALONE ((struct few){1, STREAMS, STREAMS_OF(1), 1})

#endif
