/* Recurrences with a state: positions one after another, from the last state that a page holds. The
 * gated delta rule, and the selective scan, whose C, B, x and dt take the places of q, k, v and a.
 * docs/numbers.md, 3.18 to 3.20. */
#include <math.h>
#include <string.h>

#include "isa/exponential.h"
#include "isa/half.h"
#include "kept.h"
#include "lora/recurrence_layout.h"

#define TILE LORA_TILE_POSITIONS
#define MULTIPLICATIONS_PER_NS 2
#define NORM_EPS 1e-6f
#define SOFTPLUS_LINEAR 20.0f

/* One key head and its value heads. */
struct delta {
    const struct lora_unit_call *call;
    const struct lora_variant *variant;
    const struct lora_recurrence *c;
    struct kept kept;
    uint32_t key, group;       /* the key head in its KV head; value heads of it */
    uint32_t keys, values;     /* columns of a head */
    uint32_t columns;          /* that go through the convolution: q, k, v */
    const float *decay, *bias; /* of the value heads */
    const uint16_t *gamma;     /* [values]; of the delta rule */
    const float *skip;         /* of the value heads; of the scan, as what follows */
    const struct lora_scan_constants *constants;
    float *biases, *steps;         /* [columns]; [values], x times the time step */
    float *taps, *history, *mixed; /* [kernel][columns], likewise by position, [columns] */
    float *gates;                  /* a, b [2][group] of the position at hand */
    float *state, *base;           /* [group][keys][values]; behind the committed positions */
    float *output;                 /* [values] */
};

static uint64_t state_floats(const struct delta *d) {
    return (uint64_t)d->group * d->keys * d->values;
}

/* ln of a normal number from 1 on: docs/numbers.md, 4.3. */
static double ln(double x) {
    int exponent = 0;
    double m = frexp(x, &exponent);
    if (m < lora_sqrt_half) {
        m = 2.0 * m;
        exponent--;
    }
    double s = (m - 1.0) / (m + 1.0), z = s * s, p = lora_log2_c[0];
    for (int i = 1; i < 11; i++) p = p * z + lora_log2_c[i];
    double log2 = (double)exponent + s * p;
    return log2 * lora_ln2;
}

static float softplus(float t) {
    return t > SOFTPLUS_LINEAR ? t : (float)ln(1.0 + (double)exp32(t));
}

/* --- a position's columns --------------------------------------------------------------------- */
struct range {
    uint32_t first, count;
};

#define PARTS 5

static bool scans(const struct delta *d) { return d->c->form == LORA_RECURRENCE_SELECTIVE_SCAN; }
static uint32_t parts_of(const struct delta *d) { return 3 + recurrence_gates(d->c); }

/* q, k, v, a and b of this key head among those of its KV head. */
static void find_parts(const struct delta *d, struct range parts[PARTS]) {
    const struct lora_recurrence *c = d->c;
    uint32_t keys = (uint32_t)c->key_heads * d->keys, values = recurrence_values(c);
    uint32_t head = d->key * d->group;
    parts[0] = (struct range){d->key * d->keys, d->keys};
    parts[1] = (struct range){keys + d->key * d->keys, d->keys};
    parts[2] = (struct range){2 * keys + head * d->values, d->group * d->values};
    parts[3] = (struct range){2 * keys + values + head, d->group};
    parts[4] = (struct range){2 * keys + values + c->value_heads + head, d->group};
}

/* Where they begin in a row of x, whose parts are those of all KV heads; the first three of them
 * in the convolution's weights, too. */
static void find_firsts(const struct delta *d, uint32_t firsts[PARTS]) {
    const struct lora_list *list = d->call->list;
    const uint32_t all_keys = recurrence_key_heads(list, d->c) * d->keys;
    const uint32_t values = recurrence_row_convolved(list, d->c);
    const uint32_t head = d->kept.head * d->c->value_heads + d->key * d->group;
    firsts[0] = recurrence_key_head(d->c, d->kept.head, d->key) * d->keys;
    firsts[1] = all_keys + firsts[0];
    firsts[2] = 2 * all_keys + head * d->values;
    firsts[3] = values + head;
    firsts[4] = values + (uint32_t)list->kv_heads * d->c->value_heads + head;
}

/* A row's columns into its slot. */
static int keep(const struct delta *d, const uint16_t *x, uint32_t slot) {
    struct range parts[PARTS];
    uint32_t firsts[PARTS];
    int status = LORA_OK;
    find_parts(d, parts);
    find_firsts(d, firsts);
    for (uint32_t i = 0; i < parts_of(d) && status == LORA_OK; i++)
        status = lora_kept_write(&d->kept, kept_slot(slot), parts[i].first, parts[i].count,
                                 x + firsts[i]);
    return status;
}

static float *history_of(const struct delta *d, uint32_t p) {
    return d->history + (size_t)(p % d->c->kernel) * d->columns;
}

static int load(const struct delta *d, const struct visible *seen, uint32_t p) {
    struct range parts[PARTS];
    float *to = history_of(d, p);
    int status = LORA_OK;
    find_parts(d, parts);
    for (uint32_t i = 0; i < parts_of(d) && status == LORA_OK; i++) {
        if (i == 3) to = d->gates;
        status = lora_kept_read(&d->kept, kept_at(seen, p), parts[i].first, parts[i].count, to);
        to += parts[i].count;
    }
    return status;
}

/* The positions before p that its convolution reads. */
static int load_before(const struct delta *d, const struct visible *seen, uint32_t p) {
    uint32_t first = p + 1 > d->c->kernel ? p + 1 - d->c->kernel : 0;
    int status = LORA_OK;
    for (; first < p && status == LORA_OK; first++) status = load(d, seen, first);
    return status;
}

static void add_biases(const struct delta *d, float *sum) {
    const struct lora_scan_constants *of = d->constants;
    for (uint32_t i = 0; i < d->columns; i++) {
        float factor = i < d->keys ? of->of_c : i < 2 * d->keys ? of->of_b : of->of_x;
        sum[i] = sum[i] * factor + d->biases[i];
    }
}

static void convolve(const struct delta *d, uint32_t p) {
    float *sum = d->mixed;
    for (uint32_t i = 0; i < d->columns; i++) sum[i] = 0.0f;
    for (uint32_t t = 0; t < d->c->kernel; t++) {
        if (p + 1 + t < d->c->kernel) continue;
        const float *held = history_of(d, p + 1 + t - d->c->kernel);
        const float *taps = d->taps + (size_t)t * d->columns;
        for (uint32_t i = 0; i < d->columns; i++) sum[i] = sum[i] + taps[i] * held[i];
    }
    if (scans(d)) add_biases(d, sum);
    for (uint32_t i = 0; i < d->columns; i++) sum[i] = silu32(sum[i]);
}

static float inverse_length(const float *x, uint32_t count) {
    float sum = 0.0f;
    for (uint32_t i = 0; i < count; i++) sum = sum + x[i] * x[i];
    return 1.0f / sqrtf(sum + NORM_EPS);
}

static void norm_keys(const struct delta *d) {
    float *q = d->mixed, *k = q + d->keys;
    float scale = (float)(1.0 / sqrt((double)d->keys));
    float of_q = inverse_length(q, d->keys), of_k = inverse_length(k, d->keys);
    for (uint32_t i = 0; i < d->keys; i++) {
        q[i] = (q[i] * of_q) * scale;
        k[i] = k[i] * of_k;
    }
}

/* --- the state -------------------------------------------------------------------------------- */
static float *values_of(const struct delta *d, uint32_t head) {
    return d->mixed + 2 * d->keys + (size_t)head * d->values;
}

/* The same with the scan's rule. */
static void scan_head(const struct delta *d, uint32_t head) {
    const struct lora_scan_constants *of = d->constants;
    float time = softplus(d->gates[head] * of->of_dt + d->bias[head]);
    if (time < of->low) time = of->low;
    if (time > of->high) time = of->high;
    const float *x = values_of(d, head);
    for (uint32_t j = 0; j < d->values; j++) d->steps[j] = x[j] * time;
    const struct delta_step step = {
        .state = d->state + (size_t)head * d->keys * d->values,
        .output = d->output,
        .q = d->mixed,
        .k = d->mixed + d->keys,
        .v = d->steps,
        .decay = exp32(d->decay[head] * time),
        .keys = d->keys,
        .values = d->values,
    };
    d->variant->scan(&step);
}

/* d->output becomes o of value head `head` of the group. */
static void advance_head(const struct delta *d, uint32_t head) {
    if (scans(d)) {
        scan_head(d, head);
        return;
    }
    const struct delta_step step = {
        .state = d->state + (size_t)head * d->keys * d->values,
        .output = d->output,
        .q = d->mixed,
        .k = d->mixed + d->keys,
        .v = values_of(d, head),
        .decay = exp32(d->decay[head] * softplus(d->gates[head] + d->bias[head])),
        .beta = 1.0f / (1.0f + exp32(-d->gates[d->group + head])),
        .keys = d->keys,
        .values = d->values,
    };
    d->variant->delta(&step);
}

static int load_state(const struct delta *d, uint32_t page, float *state, bool store) {
    uint64_t count = state_floats(d);
    return lora_kept_state(&d->kept, page, count * d->key, count, state, store);
}

/* The position's columns, ready to advance by. */
static int prepare(const struct delta *d, const struct visible *seen, uint32_t p) {
    int status = load(d, seen, p);
    if (status != LORA_OK) return status;
    convolve(d, p);
    if (!scans(d)) norm_keys(d);
    return LORA_OK;
}

/* d->state, which is that before position `first`, becomes that before `end`. */
static int replay(const struct delta *d, const struct visible *seen, uint32_t first, uint32_t end) {
    int status = load_before(d, seen, first);
    for (uint32_t p = first; p < end && status == LORA_OK; p++) {
        status = prepare(d, seen, p);
        for (uint32_t head = 0; head < d->group && status == LORA_OK; head++) advance_head(d, head);
    }
    return status;
}

/* d->state becomes that behind the last full page of `positions` committed ones. */
static int begin_page(const struct delta *d, const struct visible *seen, uint32_t positions) {
    uint32_t tiles = positions / TILE;
    if (tiles) return load_state(d, seen->pages[tiles - 1], d->state, false);
    memset(d->state, 0, state_floats(d) * sizeof(float));
    return LORA_OK;
}

/* --- pages that a step has filled ------------------------------------------------------------- */
static bool fills_page(const struct lora_kv_op *op) {
    return op->kind == LORA_KV_COMMIT && ((uint64_t)op->a + op->c) / TILE != op->a / TILE;
}

static int save(const struct delta *d, const struct lora_kv_op *op) {
    uint32_t start = op->a / TILE * TILE, end = op->a + op->c;
    struct visible seen = {.committed = end};
    if (!fills_page(op)) return LORA_OK;
    if (op->sequence >= LORA_MAX_SEQUENCES) return LORA_ERR_KV;
    if (op->a > (uint64_t)d->call->list->max_tiles * TILE ||
        end > (uint64_t)d->call->list->max_tiles * TILE)
        return LORA_ERR_KV;
    seen.pages = lora_visible_pages(d->call, op->sequence);
    if (!seen.pages) return LORA_ERR_ADDRESS;
    int status = begin_page(d, &seen, start);
    for (; start + TILE <= end && status == LORA_OK; start += TILE) {
        status = replay(d, &seen, start, start + TILE);
        if (status == LORA_OK) status = load_state(d, seen.pages[start / TILE], d->state, true);
    }
    return status;
}

/* Whether an operation behind a commit maps anew one of the tiles up to the commit's end, whose
 * pages could no more be found. (Firmware refuses it of the tiles that the commit writes.) */
static bool is_mapped_anew(const uint8_t *ops, uint32_t count, const struct lora_kv_op *commit) {
    for (uint32_t i = 0; i < count; i++) {
        struct lora_kv_op op;
        memcpy(&op, ops + i * sizeof op, sizeof op);
        if (op.kind == LORA_KV_TABLE && op.sequence == commit->sequence &&
            op.a < ((uint64_t)commit->a + commit->c) / TILE)
            return true;
    }
    return false;
}

static int save_all(const struct delta *d) {
    const struct lora_step_state *state = d->call->state;
    const uint8_t *ops = call_at(d->call, d->call->list->control_bank, state->kv_ops_offset,
                                 (uint64_t)state->kv_op_count * sizeof(struct lora_kv_op), 1);
    int status = state->kv_op_count && !ops ? LORA_ERR_ADDRESS : LORA_OK;
    for (uint32_t i = 0; i < state->kv_op_count && status == LORA_OK; i++) {
        struct lora_kv_op op;
        const uint8_t *behind = ops + (i + 1) * sizeof op;
        memcpy(&op, ops + i * sizeof op, sizeof op);
        if (fills_page(&op) && is_mapped_anew(behind, state->kv_op_count - i - 1, &op))
            return LORA_ERR_KV;
        status = save(d, &op);
    }
    return status;
}

/* --- rows ------------------------------------------------------------------------------------- */
/* o of the columns `own`, gated by their z; the delta rule's is normed. */
static void finish_delta(const struct delta *d, struct range own, const uint16_t *z) {
    float sum = 0.0f, *o = d->output;
    for (uint32_t j = 0; j < d->values; j++) sum = sum + o[j] * o[j];
    float r = 1.0f / sqrtf(sum / (float)d->values + float_of_bits(d->c->eps));
    o += own.first;
    for (uint32_t i = 0; i < own.count; i++)
        o[i] = ((o[i] * r) * half_to_float(d->gamma[own.first + i])) * silu32(half_to_float(z[i]));
}

static void finish_scan(const struct delta *d, uint32_t head, struct range own, const uint16_t *z) {
    const float *x = values_of(d, head) + own.first, factor = d->constants->of_z;
    float *o = d->output + own.first;
    for (uint32_t i = 0; i < own.count; i++)
        o[i] = (o[i] + d->skip[head] * x[i]) * silu32(half_to_float(z[i]) * factor);
}

/* y of value head `head` of the group, from d->output. */
static void finish(struct lora_job *job, const struct delta *d, uint32_t row, uint32_t head) {
    const struct lora_recurrence *c = d->c;
    uint32_t number = d->kept.head * c->value_heads + d->key * d->group + head;
    uint32_t base = number * d->values, end = c->y_first + c->y_columns;
    uint32_t first = base > c->y_first ? base : c->y_first;
    uint32_t stop = base + d->values < end ? base + d->values : end;
    if (first >= stop) return;
    const uint16_t *z = half_row(job->recurrence.x, row) + recurrence_row(job->call->list, c) +
                        (first - c->y_first);
    struct range own = {first - base, stop - first};
    if (scans(d)) finish_scan(d, head, own, z);
    else finish_delta(d, own, z);
    uint16_t *y = half_row(job->recurrence.y, row) + (first - c->y_first);
    job_count_nonfinite(job, row,
                        job->variant->floats_to_halves(d->output + own.first, own.count, y));
}

struct walk { /* where the state at hand is: behind which row, and which one's base is known */
    int64_t sequence, slot;
    uint32_t depth;
};

/* d->state becomes that before the row: behind its parent, if that was the row before, or by the
 * row's path from the state behind the committed positions. */
static int reach(const struct delta *d, const struct lora_row *row, const struct visible *seen,
                 struct walk *walk) {
    uint64_t bytes = state_floats(d) * sizeof(float);
    uint32_t page_start = seen->committed / TILE * TILE;
    int status = LORA_OK;
    bool same = walk->sequence == (int64_t)row->sequence;
    if (same && seen->depth > 1 && walk->slot == row->parent && walk->depth + 1 == seen->depth)
        return LORA_OK;
    if (!same) {
        status = begin_page(d, seen, seen->committed);
        if (status == LORA_OK) status = replay(d, seen, page_start, seen->committed);
        memcpy(d->base, d->state, bytes);
        walk->sequence = row->sequence;
    }
    memcpy(d->state, d->base, bytes);
    if (status != LORA_OK) return status;
    return replay(d, seen, seen->committed, seen->committed + seen->depth - 1);
}

static int run_row(struct lora_job *job, const struct delta *d, uint32_t index, struct walk *walk) {
    const struct lora_row *row = call_row(job->call, index);
    struct visible seen;
    int status = lora_visible_find(job->call, row, &seen);
    if (status == LORA_OK)
        status = keep(d, half_row(job->recurrence.x, index), (uint32_t)row->slot);
    if (status == LORA_OK) status = reach(d, row, &seen, walk);
    if (status == LORA_OK) status = prepare(d, &seen, seen.committed + seen.depth - 1);
    for (uint32_t head = 0; head < d->group && status == LORA_OK; head++) {
        advance_head(d, head);
        finish(job, d, index, head);
    }
    walk->slot = row->slot;
    walk->depth = seen.depth;
    return status;
}

/* A row of the table over this head's columns, as FP32. */
static void widen_row(const struct delta *d, const uint8_t *table, float *to) {
    const uint16_t *row = (const uint16_t *)(const void *)table;
    const uint32_t counts[3] = {d->keys, d->keys, d->group * d->values};
    uint32_t firsts[PARTS];
    find_firsts(d, firsts);
    for (uint32_t part = 0; part < 3; part++)
        for (uint32_t i = 0; i < counts[part]; i++) *to++ = half_to_float(row[firsts[part] + i]);
}

static uint64_t floats_of(const struct lora_recurrence *c, struct delta *d) {
    d->keys = c->key_columns;
    d->values = c->value_columns;
    d->group = c->value_heads / c->key_heads;
    d->columns = 2 * d->keys + d->group * d->values;
    uint64_t floats = (2ull * c->kernel + 2) * d->columns + 2 * state_floats(d);
    return (floats + 2ull * d->group + 2ull * d->values + 15) / 16 * 16;
}

static void open_delta(const struct lora_job *job, uint32_t item, uint32_t thread,
                       struct delta *d) {
    const struct recurrence_job *r = &job->recurrence;
    const struct lora_recurrence *c = r->command;
    struct recurrence_table table = recurrence_table(job->call->list, c);
    d->call = job->call;
    d->variant = job->variant;
    d->c = c;
    floats_of(c, d);
    d->key = item % c->key_heads;
    d->kept = (struct kept){job->call, c, item / c->key_heads};
    uint32_t head = d->kept.head * c->value_heads + d->key * d->group;
    d->decay = (const float *)(const void *)(r->table + table.decay) + head;
    d->bias = (const float *)(const void *)(r->table + table.bias) + head;
    d->gamma = (const uint16_t *)(const void *)(r->table + table.gamma);
    d->taps = r->memory + r->floats * thread;
    d->history = d->taps + (size_t)c->kernel * d->columns;
    d->mixed = d->history + (size_t)c->kernel * d->columns;
    d->state = d->mixed + d->columns;
    d->base = d->state + state_floats(d);
    d->gates = d->base + state_floats(d);
    d->output = d->gates + 2 * d->group;
    d->steps = d->output + d->values;
    d->biases = d->steps + d->values;
    for (uint32_t t = 0; t < c->kernel; t++)
        widen_row(d, r->table + (size_t)t * table.row, d->taps + (size_t)t * d->columns);
    if (!scans(d)) return;
    d->skip = (const float *)(const void *)(r->table + table.skip) + head;
    d->constants = (const struct lora_scan_constants *)(const void *)(r->table + table.constants);
    widen_row(d, r->table + table.biases, d->biases);
}

static int run(struct lora_job *job, uint32_t item, uint32_t thread) {
    struct delta d;
    struct walk walk = {.sequence = -1, .slot = -1};
    open_delta(job, item, thread, &d);
    int status = save_all(&d);
    for (uint32_t row = 0; row < job->rows && status == LORA_OK; row++)
        status = run_row(job, &d, row, &walk);
    return status;
}

int lora_recurrent_state_begin(struct lora_job *job) {
    struct recurrence_job *r = &job->recurrence;
    const struct lora_recurrence *c = r->command;
    struct delta d;
    if (c->key_heads == 0 || c->value_heads % c->key_heads || c->value_heads == 0 ||
        c->key_columns > LORA_MAX_RECURRENT_COLUMNS ||
        (c->sharing && (c->form != LORA_RECURRENCE_SELECTIVE_SCAN || c->key_heads != 1 ||
                        c->sharing_first >= c->sharing)) ||
        c->value_columns > LORA_MAX_RECURRENT_COLUMNS)
        return LORA_ERR_SIZE;
    r->floats = floats_of(c, &d);
    r->memory = lora_job_memory(job, r->floats * job->threads * sizeof(float));
    if (!r->memory) return LORA_ERR_MEMORY;
    job->items = (uint32_t)job->call->list->kv_heads * c->key_heads;
    job->work = (uint64_t)(job->rows + TILE) * job->items * 4 * state_floats(&d) /
                MULTIPLICATIONS_PER_NS;
    job->run = run;
    return LORA_OK;
}
