/* Adapters (BD-LoRA, section 3): h = FP16(A*x) before a matmul, scale*(B*h) on its FP32
 * accumulator. Sums are cut as those of the dense matrix; absent blocks are not multiplied.
 * docs/numbers.md, 7.2, 7.3. */
#include <string.h>

#include "isa/adapter_lanes.h"
#include "isa/half.h"
#include "isa/segments.h"
#include "job.h"

#define GROUP LORA_ADAPTER_GROUP
#define SHARES 4 /* items a row; groups of ranks go to them round robin */
#define MULTIPLICATIONS_PER_NS 4

/* --- a row's adapter slot, every offset checked ---------------------------------------------- */
struct adapter_slot {
    const struct lora_unit_call *call;
    uint32_t number;
};

/* `bytes` at `offset` of the slot, which may not cross a chunk; NULL where they leave the slot. */
static inline const void *slot_at(struct adapter_slot slot, uint64_t offset, uint64_t bytes,
                                  uint32_t align) {
    const struct lora_list *list = slot.call->list;
    uint64_t chunk = offset / LORA_ADAPTER_CHUNK, within = offset % LORA_ADAPTER_CHUNK;
    if (list->adapter_bank_count == 0 || slot.number >= list->adapter_slots ||
        chunk >= list->adapter_chunks || within + bytes > LORA_ADAPTER_CHUNK)
        return NULL;
    uint64_t request = (uint64_t)slot.number * list->adapter_chunks + chunk;
    uint32_t bank = list->adapter_bank_first + (uint32_t)(request % list->adapter_bank_count);
    uint64_t chunk_offset = request / list->adapter_bank_count * LORA_ADAPTER_CHUNK + within;
    return call_at(slot.call, bank, (uint64_t)list->adapter_line * LORA_LINE_BYTES + chunk_offset,
                   bytes, align);
}

/* Bytes from `offset` to the end of its chunk. */
static inline uint32_t slot_run(uint64_t offset) {
    return LORA_ADAPTER_CHUNK - (uint32_t)(offset % LORA_ADAPTER_CHUNK);
}

static inline const struct lora_adapter_matrix *slot_matrix(struct adapter_slot slot,
                                                            uint32_t matrix) {
    if (matrix >= slot.call->list->adapter_matrices) return NULL;
    return slot_at(slot, sizeof(struct lora_adapter_slot) + 8ull * matrix,
                   sizeof(struct lora_adapter_matrix), 4);
}

/* Factor `index` of a matrix; NULL where its fields contradict the list or themselves. */
static inline const struct lora_adapter_factor *
slot_factor(struct adapter_slot slot, const struct lora_adapter_matrix *matrix, uint32_t index) {
    const uint64_t size = sizeof(struct lora_adapter_factor);
    const struct lora_adapter_factor *f = slot_at(slot, matrix->offset + size * index, size, 4);
    if (!f || f->rank > LORA_MAX_ADAPTER_RANK || f->rank_first + f->rank_count > f->rank ||
        f->h_run == 0 || f->offset % LORA_LINE_BYTES || f->first > MAX_COLUMNS ||
        f->count > MAX_COLUMNS)
        return NULL;
    return f;
}

/* Column of rank j in a row of h; ~0 where it is none. */
static inline uint32_t factor_column(const struct adapter_slot slot,
                                     const struct lora_adapter_factor *f, uint32_t j) {
    uint64_t column = f->h_first + (uint64_t)(j / f->h_run) * f->h_skip + j % f->h_run;
    return column < slot.call->list->adapter_columns ? (uint32_t)column : NO_ROW;
}

/* --- h = FP16(A*x) -------------------------------------------------------------------------- */
static const struct adapter_lanes *lanes_of(const struct lora_job *job) {
#if defined(__x86_64__)
    if (job->variant != &lora_variant_plain) return &adapter_lanes_avx2;
#endif
    (void)job;
    return &adapter_lanes_plain;
}

/* sum[0..7] += x[k]*A[k][0..7], k = 0..count-1 in order; values at `offset` of the slot. */
static int add_group(const struct lora_job *job, struct adapter_slot slot, uint64_t offset,
                     const float *x, uint32_t count, float *sum) {
    const struct adapter_lanes *lanes = lanes_of(job);
    while (count) {
        uint32_t run = slot_run(offset) / (GROUP * 2);
        run = run < count ? run : count;
        const uint16_t *halves = slot_at(slot, offset, run * GROUP * 2ull, 2);
        if (!halves) return LORA_ERR_ADDRESS;
        lanes->down(x, halves, run, sum);
        x += run;
        count -= run;
        offset += run * GROUP * 2ull;
    }
    return LORA_OK;
}

/* Eight ranks of a factor of A, from rank_first + 8*group on, over its columns of x. */
static int group_sums(const struct lora_job *job, struct adapter_slot slot,
                      const struct lora_adapter_factor *f, uint32_t group, const float *x,
                      float out[GROUP]) {
    uint32_t k = job->adapter.command->k;
    uint64_t base = f->offset + (uint64_t)group * f->count * GROUP * 2;
    float part[LORA_SEGMENTS][GROUP];
    memset(part, 0, sizeof part);
    for (uint32_t s = 0; s < LORA_SEGMENTS; s++) {
        uint32_t low = segment_start(k, s), high = segment_start(k, s + 1);
        low = low > f->first ? low : f->first;
        high = high < f->first + f->count ? high : f->first + f->count;
        if (low >= high) continue;
        uint64_t offset = base + (uint64_t)(low - f->first) * GROUP * 2;
        int status = add_group(job, slot, offset, x + low, high - low, part[s]);
        if (status != LORA_OK) return status;
    }
    for (uint32_t j = 0; j < GROUP; j++)
        out[j] = ((part[0][j] + part[1][j]) + (part[2][j] + part[3][j])) +
                 ((part[4][j] + part[5][j]) + (part[6][j] + part[7][j]));
    return LORA_OK;
}

static int store_group(struct lora_job *job, struct adapter_slot slot,
                       const struct lora_adapter_factor *f, uint32_t group, uint32_t row,
                       const float *sums) {
    uint32_t first = group * GROUP;
    uint32_t count = f->rank_count - first < GROUP ? f->rank_count - first : GROUP;
    uint16_t halves[GROUP];
    job_count_nonfinite(job, row, job->variant->floats_to_halves(sums, count, halves));
    for (uint32_t i = 0; i < count; i++) {
        uint32_t column = factor_column(slot, f, f->rank_first + first + i);
        if (column == NO_ROW) return LORA_ERR_SIZE;
        half_row(job->adapter.h, row)[column] = halves[i];
    }
    return LORA_OK;
}

static int run(struct lora_job *job, uint32_t item, uint32_t thread) {
    const struct lora_adapter *c = job->adapter.command;
    uint32_t row = item / SHARES, index = 0;
    int32_t number = call_row(job->call, row)->adapter;
    (void)thread;
    if (number < 0) return LORA_OK;
    struct adapter_slot slot = {job->call, (uint32_t)number};
    const struct lora_adapter_matrix *matrix = slot_matrix(slot, c->adapter);
    for (uint32_t i = 0; matrix && i < matrix->down_count; i++) {
        const struct lora_adapter_factor *f = slot_factor(slot, matrix, i);
        if (!f || f->first + f->count > c->k) return LORA_ERR_SIZE;
        for (uint32_t group = 0; group * GROUP < f->rank_count; group++) {
            float sums[GROUP];
            if (index++ % SHARES != item % SHARES) continue;
            const float *x = job->adapter.x + (uint64_t)row * c->k;
            int status = group_sums(job, slot, f, group, x, sums);
            if (status == LORA_OK) status = store_group(job, slot, f, group, row, sums);
            if (status != LORA_OK) return status;
        }
    }
    return matrix ? LORA_OK : LORA_ERR_ADDRESS;
}

int lora_adapter_begin(struct lora_job *job) {
    const struct lora_adapter *c = (const struct lora_adapter *)(const void *)job->call->command;
    struct adapter_job *a = &job->adapter;
    a->command = c;
    if (c->k == 0 || c->k > MAX_COLUMNS) return LORA_ERR_SIZE;
    struct rows x = call_operand(job->call, LORA_BANK_ONCHIP, c->x_offset, c->x_stride, 2ull * c->k,
                                 2);
    a->h = call_operand(job->call, LORA_BANK_ONCHIP, c->h_offset, c->h_stride,
                        2ull * job->call->list->adapter_columns, 2);
    if (!x.base || !a->h.base) return LORA_ERR_ADDRESS;
    job->run = run;
    for (uint32_t row = 0; row < job->rows; row++)
        if (call_row(job->call, row)->adapter >= 0)
            job->work += (uint64_t)c->k * 2 * GROUP / MULTIPLICATIONS_PER_NS;
    if (job->work == 0) return LORA_OK;
    a->x = lora_job_memory(job, (uint64_t)job->rows * c->k * sizeof(float));
    if (!a->x) return LORA_ERR_MEMORY;
    for (uint32_t row = 0; row < job->rows; row++)
        if (call_row(job->call, row)->adapter >= 0)
            job->variant->halves_to_floats(half_row(x, row), c->k, a->x + (uint64_t)row * c->k);
    job->items = job->rows * SHARES;
    return LORA_OK;
}

/* part[s][32] += h[j]*B[j][32], j in order, of the ranks that the factor holds. */
static int add_ranks(const struct lora_job *job, struct adapter_slot slot,
                     const struct lora_adapter_factor *f, uint64_t offset, const float *h,
                     float parts[LORA_SEGMENTS][LORA_BLOCK_N]) {
    const struct adapter_lanes *lanes = lanes_of(job);
    for (uint32_t s = 0; s < LORA_SEGMENTS; s++) {
        uint32_t j = segment_start(f->rank, s), end = segment_start(f->rank, s + 1);
        j = j > f->rank_first ? j : f->rank_first;
        end = end < f->rank_first + f->rank_count ? end : f->rank_first + f->rank_count;
        while (j < end) {
            uint64_t at = offset + (uint64_t)(j - f->rank_first) * LORA_BLOCK_N * 2;
            uint32_t count = slot_run(at) / (LORA_BLOCK_N * 2);
            count = count < end - j ? count : end - j;
            const uint16_t *halves = slot_at(slot, at, count * LORA_BLOCK_N * 2ull, 2);
            if (!halves) return LORA_ERR_ADDRESS;
            lanes->up(h + (j - f->rank_first), halves, count, parts[s]);
            j += count;
        }
    }
    return LORA_OK;
}

/* sums[n] = sums[n] + scale*total, the tree over the segments included. */
static void add_scaled(float scale, float (*p)[LORA_BLOCK_N], uint32_t low, uint32_t high,
                       float *sums) {
    float total[LORA_BLOCK_N];
    for (uint32_t n = 0; n < LORA_BLOCK_N; n++)
        total[n] = ((p[0][n] + p[1][n]) + (p[2][n] + p[3][n])) +
                   ((p[4][n] + p[5][n]) + (p[6][n] + p[7][n]));
    for (uint32_t n = low; n < high; n++) sums[n] = sums[n] + scale * total[n];
}

/* sums[n] = sums[n] + scale*(B*h) in those of the tile's columns that the factor has. */
static int apply_factor(const struct lora_job *job, struct adapter_slot slot,
                        const struct lora_adapter_factor *f, const uint16_t *h_row, uint32_t tile,
                        uint32_t columns, float *sums) {
    uint32_t first = tile * LORA_BLOCK_N, low = first, high = first + columns;
    float h[LORA_MAX_ADAPTER_RANK], parts[LORA_SEGMENTS][LORA_BLOCK_N];
    low = low > f->first ? low : f->first;
    high = high < f->first + f->count ? high : f->first + f->count;
    if (low >= high) return LORA_OK;
    for (uint32_t i = 0; i < f->rank_count; i++) {
        uint32_t column = factor_column(slot, f, f->rank_first + i);
        if (column == NO_ROW) return LORA_ERR_SIZE;
        h[i] = half_to_float(h_row[column]);
    }
    memset(parts, 0, sizeof parts);
    uint64_t tile_bytes = (uint64_t)f->rank_count * LORA_BLOCK_N * 2;
    uint64_t offset = f->offset + (tile - f->first / LORA_BLOCK_N) * tile_bytes;
    int status = add_ranks(job, slot, f, offset, h, parts);
    if (status == LORA_OK)
        add_scaled(float_of_bits(f->scale), parts, low - first, high - first, sums);
    return status;
}

int lora_adapter_up(const struct lora_job *job, uint32_t tile, uint32_t columns, float *sums) {
    const struct matrix_job *m = &job->matrix;
    for (uint32_t row = 0; row < job->rows; row++, sums += LORA_BLOCK_N) {
        int32_t number = call_row(job->call, row)->adapter;
        if (number < 0) continue;
        struct adapter_slot slot = {job->call, (uint32_t)number};
        const struct lora_adapter_matrix *matrix = slot_matrix(slot, m->command->adapter - 1u);
        if (!matrix) return LORA_ERR_ADDRESS;
        for (uint32_t i = 0; i < matrix->up_count; i++) {
            const struct lora_adapter_factor *f = slot_factor(slot, matrix,
                                                              (uint32_t)matrix->down_count + i);
            if (!f) return LORA_ERR_SIZE;
            int status = apply_factor(job, slot, f, half_row(m->h, row), tile, columns, sums);
            if (status != LORA_OK) return status;
        }
    }
    return LORA_OK;
}
