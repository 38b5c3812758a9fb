#include "matrix_blocks.h"

/* Walks a matrix's blocks in the order of their numbers (j, bank, offset) without divisions. */
struct walk {
    const struct lora_job *job;
    uint64_t offset;       /* in blocks from weight_line, within the bank */
    uint32_t bank, within; /* within the request: j mod merge */
};

static struct walk walk_from(const struct lora_job *job, uint64_t j) {
    const struct lora_matrix *c = job->matrix.command;
    uint64_t request = c->first + j / c->merge;
    return (struct walk){.job = job,
                         .offset = request / c->bank_count * c->merge,
                         .bank = (uint32_t)(request % c->bank_count),
                         .within = (uint32_t)(j % c->merge)};
}

static uint64_t walk_offset(const struct walk *walk) {
    const struct matrix_job *m = &walk->job->matrix;
    return (uint64_t)m->command->weight_line * LORA_LINE_BYTES +
           (walk->offset + walk->within) * m->block_bytes;
}

static void walk_on(struct walk *walk) {
    const struct lora_matrix *c = walk->job->matrix.command;
    if (++walk->within < c->merge) return;
    walk->within = 0;
    if (++walk->bank < c->bank_count) return;
    walk->bank = 0;
    walk->offset += c->merge;
}

static const uint16_t *block_at(const struct walk *walk) {
    const struct matrix_job *m = &walk->job->matrix;
    return call_at(walk->job->call, m->command->bank_first + walk->bank, walk_offset(walk),
                   m->block_bytes, sizeof(uint16_t));
}

/* Whether the banks hold all requests that the matrix may have: its blocks need no checks then. */
static bool is_inside(const struct matrix_job *m, const struct lora_unit_call *call) {
    const struct lora_matrix *c = m->command;
    uint64_t blocks = (uint64_t)matrix_tiles(c) * matrix_k_blocks(c);
    uint64_t last = c->first + (blocks ? blocks - 1 : 0) / c->merge,
             rows = last / c->bank_count + 1;
    uint64_t end = (uint64_t)c->weight_line * LORA_LINE_BYTES + rows * c->merge * m->block_bytes;
    if ((uint32_t)c->bank_first + c->bank_count > LORA_BANK_ONCHIP + 1) return false;
    for (uint32_t bank = c->bank_first; bank < (uint32_t)c->bank_first + c->bank_count; bank++)
        if (!call->banks[bank] || end > call->bank_bytes[bank]) return false;
    return true;
}

static uint32_t common_divisor(uint32_t a, uint32_t b) { return b ? common_divisor(b, a % b) : a; }

void lora_matrix_order(struct matrix_job *m, const struct lora_unit_call *call) {
    const struct lora_matrix *c = m->command;
    uint32_t requests = c->bank_count * c->merge; /* blocks until the same bank comes again */
    uint32_t shared = common_divisor(requests, matrix_k_blocks(c));
    bool apart = requests / shared < matrix_tiles(c);
    m->tiles_apart = apart ? requests / shared : 1;
    m->inside = is_inside(m, call);
    m->tile_step = apart ? (uint64_t)matrix_k_blocks(c) / shared * c->merge * m->block_bytes : 0;
}

uint32_t lora_matrix_tile_at(const struct matrix_job *m, uint32_t index) {
    uint32_t apart = m->tiles_apart, tiles = matrix_tiles(m->command);
    uint32_t length = tiles / apart, longer = tiles % apart, in_longer = longer * (length + 1);
    if (index < in_longer) return index / (length + 1) + index % (length + 1) * apart;
    index -= in_longer;
    return longer + index / length + index % length * apart;
}

uint32_t lora_matrix_some_blocks(const struct lora_job *job, uint32_t tile, const uint16_t **blocks,
                                 uint32_t max) {
    uint32_t count = matrix_k_blocks(job->matrix.command);
    struct walk walk = walk_from(job, (uint64_t)tile * count);
    count = count < max ? count : max;
    for (uint32_t i = 0; i < count; i++, walk_on(&walk)) blocks[i] = block_at(&walk);
    return count;
}

int lora_matrix_find_blocks(const struct lora_job *job, uint32_t tile, const uint16_t **blocks) {
    const struct lora_matrix *c = job->matrix.command;
    uint32_t count = matrix_k_blocks(c);
    if (tile >= matrix_tiles(c)) return LORA_OK;
    struct walk walk = walk_from(job, (uint64_t)tile * count);
    uint8_t *const *banks = job->call->banks + c->bank_first;
    for (uint32_t i = 0; i < count; i++, walk_on(&walk)) {
        blocks[i] = job->matrix.inside
                        ? (const uint16_t *)(const void *)(banks[walk.bank] + walk_offset(&walk))
                        : block_at(&walk);
        if (!blocks[i]) return LORA_ERR_ADDRESS;
    }
    return LORA_OK;
}

int lora_matrix_next_blocks(const struct lora_job *job, uint32_t before,
                            const uint16_t *const *blocks, uint32_t tile, const uint16_t **next) {
    const struct matrix_job *m = &job->matrix;
    if (!m->inside || m->tile_step == 0 || tile != before + m->tiles_apart)
        return lora_matrix_find_blocks(job, tile, next);
    uint64_t step = m->tile_step / sizeof(uint16_t);
    for (uint32_t i = 0; i < matrix_k_blocks(m->command); i++) next[i] = blocks[i] + step;
    return LORA_OK;
}
