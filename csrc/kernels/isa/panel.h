/* Matmuls of many rows. Rows are stored in panels, [k][PANEL_ROWS] each: what one step along K
 * reads lies together; the sums of a panel and one column tile stay in registers.
 * docs/numbers.md, 3.3. */
#ifndef LORA_KERNELS_PANEL_H
#define LORA_KERNELS_PANEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lora/abi.h"
#include "rows.h"

#define PANEL_ROWS 12  /* at most; a call's rows are shared evenly */
#define PASS_ROWS 3    /* of a panel, that the AVX2 loop takes at once */
#define PANEL_LEVELS 4 /* sums that wait for their partner in the tree over eight segments */

_Static_assert(PANEL_ROWS % PASS_ROWS == 0, "whole passes fill a panel");

struct lora_variant;

/* sums[row][32] (+)= sum over `steps` of x[step][row]*weights[step][32]. Both hold FP16 values. */
struct panel_step {
    const float *x;           /* [steps][PANEL_ROWS] */
    const uint16_t *halves;   /* [steps][32]: converted into `weights` on the way; NULL: they are */
    uint32_t halves_step;     /* values from one step's to the next */
    float *weights;           /* [steps][32], aligned to a line */
    const uint16_t *prefetch; /* fetched meanwhile, `prefetch_step` values further each step */
    float *sums;              /* [rows][32] */
    uint64_t level;           /* floats from one level of sums to the next */
    uint32_t rows, steps, prefetch_step;
    uint32_t joins; /* at the end so many levels below are added; the result goes to the last */
    bool begins;    /* from +0, not from what `sums` holds */
    bool alone;     /* no other panel needs `weights` */
};

static inline uint32_t panel_count(uint32_t rows) { return (rows + PANEL_ROWS - 1) / PANEL_ROWS; }

/* First row of a panel; that of panel_count(rows) is the end. Panels hold whole passes,
 * shared evenly, but for the last one. */
static inline uint32_t panel_first(uint32_t rows, uint32_t panel) {
    uint32_t count = panel_count(rows), passes = (rows + PASS_ROWS - 1) / PASS_ROWS;
    uint32_t longer = passes % count;
    uint32_t first = PASS_ROWS * (passes / count * panel + (panel < longer ? panel : longer));
    return first < rows ? first : rows;
}

/* First row of each panel, then the end. */
struct panel_cut {
    uint32_t count, first[LORA_MAX_ROWS / PANEL_ROWS + 2];
};

static inline struct panel_cut panel_cut_of(uint32_t rows) {
    struct panel_cut cut = {.count = panel_count(rows)};
    for (uint32_t panel = 0; panel <= cut.count; panel++)
        cut.first[panel] = panel_first(rows, panel);
    return cut;
}

static inline uint64_t panel_floats(uint32_t rows, uint32_t columns) {
    return (uint64_t)panel_count(rows) * columns * PANEL_ROWS;
}

/* FP16 rows of `columns` values become panels of FP32: the rows of one panel, or all. */
void lora_panel_fill(const struct lora_variant *variant, struct rows x, uint32_t rows,
                     uint32_t columns, uint32_t panel, float *panels);
void lora_panels_fill(const struct lora_variant *variant, struct rows x, uint32_t rows,
                      uint32_t columns, float *panels);

/* One step of every panel; what is to be prefetched is shared among them. x of the step: of the
 * first panel, [columns] long; sums: [rows][32]. */
void lora_panels_add(const struct lora_variant *variant, const float *x, uint32_t columns,
                     const struct panel_cut *cut, struct panel_step step, float *sums);

/* All rows times one column tile, tree included, into the first of sums[PANEL_LEVELS][rows][32].
 * Segments without columns are left out of the tree: no sum that began at +0 is -0, so adding their
 * +0 changes none.
 * starts and blocks as lora_variant.row has them; fetched[i] is fetched while block i is read; work
 * holds LORA_BLOCK_K*32 floats. */
void lora_panels_multiply(const struct lora_variant *variant, const float *panels, uint32_t rows,
                          const uint32_t starts[LORA_SEGMENTS + 1], const uint16_t *const *blocks,
                          const uint16_t *const *fetched, float *work, float *sums);

#endif
