#include "panel.h"

#include "variant.h"

#define FILLED_COLUMNS 256 /* at a time: their lines stay in the first cache for all rows */

void lora_panel_fill(const struct lora_variant *variant, struct rows x, uint32_t rows,
                     uint32_t columns, uint32_t panel, float *panels) {
    uint32_t end = panel_first(rows, panel + 1), first = panel_first(rows, panel);
    float *target = panels + (uint64_t)panel * columns * PANEL_ROWS;
    for (uint32_t k = 0; k < columns; k += FILLED_COLUMNS)
        for (uint32_t row = first; row < end; row += 4) {
            const uint16_t *four[4];
            uint32_t left = columns - k, count = left < FILLED_COLUMNS ? left : FILLED_COLUMNS;
            for (uint32_t i = 0; i < 4; i++) /* what is no row is not used */
                four[i] = half_row(x, row + i < end ? row + i : row) + k;
            variant->pack_panel(four, count, target + (uint64_t)k * PANEL_ROWS + (row - first));
        }
}

void lora_panels_fill(const struct lora_variant *variant, struct rows x, uint32_t rows,
                      uint32_t columns, float *panels) {
    for (uint32_t panel = 0; panel < panel_count(rows); panel++)
        lora_panel_fill(variant, x, rows, columns, panel, panels);
}

void lora_panels_add(const struct lora_variant *variant, const float *x, uint32_t columns,
                     const struct panel_cut *cut, struct panel_step step, float *sums) {
    step.alone = cut->count == 1;
    step.prefetch_step = step.prefetch ? (LORA_BLOCK_N + cut->count - 1) / cut->count : 0;
    step.x = x;
    for (uint32_t panel = 0; panel < cut->count; panel++) {
        step.rows = cut->first[panel + 1] - cut->first[panel];
        step.sums = sums + (uint64_t)cut->first[panel] * LORA_BLOCK_N;
        variant->panel(&step);
        step.halves = NULL;
        step.x += (uint64_t)columns * PANEL_ROWS;
        step.prefetch += (uint64_t)step.steps * step.prefetch_step;
    }
}

/* How many earlier sums are added to segment s's: its complete partners in the tree that have
 * columns. If s itself has none, there is at most one partner, whose sum then stands for both. */
static uint32_t joins_of(const uint32_t starts[LORA_SEGMENTS + 1], uint32_t s) {
    uint32_t joins = 0, end = s;
    for (uint32_t size = 1; s & size; end -= size, size *= 2)
        joins += starts[end] != starts[end - size];
    return joins;
}

void lora_panels_multiply(const struct lora_variant *variant, const float *panels, uint32_t rows,
                          const uint32_t starts[LORA_SEGMENTS + 1], const uint16_t *const *blocks,
                          const uint16_t *const *fetched, float *work, float *sums) {
    struct panel_step step = {
        .halves_step = LORA_BLOCK_N, .weights = work, .level = (uint64_t)rows * LORA_BLOCK_N};
    const struct panel_cut cut = panel_cut_of(rows);
    uint32_t waiting = 0;
    for (uint32_t s = 0; s < LORA_SEGMENTS; s++) {
        uint32_t end = starts[s + 1], joins = joins_of(starts, s);
        if (starts[s] == end) continue;
        for (uint32_t k = starts[s]; k < end; k += step.steps) {
            uint32_t offset = k % LORA_BLOCK_K, left = LORA_BLOCK_K - offset;
            uint32_t block = k / LORA_BLOCK_K;
            step.steps = end - k < left ? end - k : left;
            step.begins = k == starts[s];
            step.joins = k + step.steps == end ? joins : 0;
            step.halves = blocks[block] + offset * LORA_BLOCK_N;
            step.prefetch = fetched[block] + offset * LORA_BLOCK_N;
            lora_panels_add(variant, panels + (uint64_t)k * PANEL_ROWS, starts[LORA_SEGMENTS], &cut,
                            step, sums + waiting * step.level);
        }
        waiting += 1 - joins;
    }
}
