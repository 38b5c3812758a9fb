#include "programs.h"

#include <string.h>

/* Registers with a purpose, which nothing else writes: calls return to x1 and x5; the others point
 * to data and to the device. */
enum { RA = 1, SP = 2, GP = 3, T0 = 5, S0 = 8, S1 = 9 };
enum { SLOTS = 1500 };

struct program {
    uint64_t random;
    struct machine *m;
    uint32_t slots, at[SLOTS + 1]; /* where instructions begin */
};

static uint32_t any(struct program *p) {
    p->random = p->random * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)(p->random >> 32);
}

static uint32_t below(struct program *p, uint32_t limit) {
    return (uint32_t)((uint64_t)any(p) * limit >> 32);
}

static void put(struct program *p, uint32_t at, uint32_t word, uint32_t bytes) {
    memcpy(p->m->memory + at, &word, bytes);
}

static uint32_t target(struct program *p) { /* a register to write */
    for (;;) {
        uint32_t rd = below(p, 32);
        if (rd != RA && rd != SP && rd != GP && rd != T0 && rd != S0 && rd != S1) return rd;
    }
}

static uint32_t field(uint32_t value, int high, int low, int at) {
    return (value >> low & ((2u << (high - low)) - 1)) << at;
}

/* --- 32-bit instructions --- */

static uint32_t type_i(uint32_t code, uint32_t funct, uint32_t rd, uint32_t rs, uint32_t value) {
    return value << 20 | rs << 15 | funct << 12 | rd << 7 | code;
}

static uint32_t type_r(uint32_t high, uint32_t funct, uint32_t rd, uint32_t a, uint32_t b) {
    return high << 25 | b << 20 | a << 15 | funct << 12 | rd << 7 | 0x33;
}

static uint32_t type_s(uint32_t funct, uint32_t base, uint32_t source, uint32_t value) {
    return field(value, 11, 5, 25) | source << 20 | base << 15 | funct << 12 |
           field(value, 4, 0, 7) | 0x23;
}

static uint32_t type_b(uint32_t funct, uint32_t a, uint32_t b, uint32_t by) {
    return field(by, 12, 12, 31) | field(by, 10, 5, 25) | b << 20 | a << 15 | funct << 12 |
           field(by, 4, 1, 8) | field(by, 11, 11, 7) | 0x63;
}

static uint32_t type_j(uint32_t rd, uint32_t by) {
    return field(by, 20, 20, 31) | field(by, 10, 1, 21) | field(by, 11, 11, 20) |
           field(by, 19, 12, 12) | rd << 7 | 0x6f;
}

/* How far to a slot ahead. */
static uint32_t distance(struct program *p, uint32_t slot, uint32_t reach) {
    uint32_t to = slot + 1 + below(p, reach);
    return p->at[to < p->slots ? to : p->slots - 1] - p->at[slot];
}

/* The same, and sometimes back: not for what always jumps. */
static uint32_t branch_distance(struct program *p, uint32_t slot) {
    uint32_t back = slot < 8 ? slot : 8;
    if (back == 0 || below(p, 20)) return distance(p, slot, 8);
    return p->at[slot - 1 - below(p, back)] - p->at[slot];
}

static uint32_t memory_access(struct program *p, uint32_t funct, uint32_t source, int stores) {
    static const uint32_t bases[] = {SP, S0, S1, S0, S1, S0, S1, GP};
    uint32_t base = bases[below(p, 8)], value = below(p, 4096) & ~((1u << (funct & 3)) - 1);
    if (base == GP) value &= 0x7ff;
    return stores ? type_s(funct, base, source, value)
                  : type_i(0x03, funct, target(p), base, value);
}

/* Three instructions that nothing jumps between: a slot's address, and a call of it; bit 0 is
 * dropped. */
static void make_call(struct program *p, uint32_t slot) {
    uint32_t at = p->at[slot], link = any(p) & 1 ? RA : 0;
    put(p, at, T0 << 7 | 0x17, 4);
    put(p, at + 4, type_i(0x13, 0, T0, T0, distance(p, slot, 12) | (any(p) & 1)), 4);
    if (any(p) & 1) {
        put(p, at + 8, type_i(0x67, 0, any(p) & 1 ? T0 : link, T0, any(p) & 1 ? 0 : 1), 4);
        return;
    }
    put(p, at + 8, 4 << 13 | (link ? 0x1000 : 0) | T0 << 7 | 2, 2); /* c.jr, c.jalr */
    put(p, at + 10, 1, 2);
}

/* Through x0, or back to where a call was. */
static uint32_t rare_call(struct program *p) {
    if (any(p) & 1) return type_i(0x67, 0, T0, RA, 0);
    for (uint32_t slot = below(p, p->slots);; slot /= 2)
        if (p->at[slot] < 2048) return type_i(0x67, 0, RA, 0, p->at[slot] + (any(p) & 1));
}

static uint32_t make_long(struct program *p, uint32_t slot) {
    static const uint32_t sizes[] = {0, 1, 2, 4, 5}, conditions[] = {0, 1, 4, 5, 6, 7};
    uint32_t funct = below(p, 8), rd = target(p), a = below(p, 32), b = below(p, 32),
             value = any(p);
    switch (below(p, 16)) {
    case 0: return (value & 0xfffff000) | rd << 7 | 0x37;
    case 1: return (value & 0xfffff000) | rd << 7 | 0x17;
    case 2: return type_j(any(p) & 1 ? RA : T0, distance(p, slot, 12));
    case 3:
        if (below(p, 40) == 0) return rare_call(p);
        return type_i(0x13, funct & 6, rd, a, value);
    case 4:
    case 5: return type_b(conditions[below(p, 6)], a, b, branch_distance(p, slot));
    case 6:
    case 7: return memory_access(p, sizes[below(p, 5)], 0, 0);
    case 8: return memory_access(p, below(p, 3), b, 1);
    case 9:
    case 10:
        if (funct % 4 == 1) value = (value & 31) | (funct == 5 && (value & 32) ? 0x400 : 0);
        return type_i(0x13, funct, rd, a, value);
    case 11:
    case 12: return type_r((funct == 0 || funct == 5) && (value & 1) ? 0x20 : 0, funct, rd, a, b);
    case 13: return type_r(1, value & 16 ? funct : funct & 3, rd, a, b);
    case 14: return type_r(0, funct, rd, a, a);
    default: return (value & 0xffff8000) | 0x0f; /* fence */
    }
}

/* --- 16-bit instructions --- */

static uint32_t short_jump(uint32_t funct, uint32_t by) {
    return funct << 13 | field(by, 11, 11, 12) | field(by, 4, 4, 11) | field(by, 9, 8, 9) |
           field(by, 10, 10, 8) | field(by, 6, 6, 7) | field(by, 7, 7, 6) | field(by, 3, 1, 3) |
           field(by, 5, 5, 2) | 1;
}

static uint32_t short_branch(struct program *p, uint32_t slot) {
    uint32_t by = branch_distance(p, slot);
    return (6 + (any(p) & 1)) << 13 | field(by, 8, 8, 12) | field(by, 4, 3, 10) | below(p, 8) << 7 |
           field(by, 7, 6, 5) | field(by, 2, 1, 3) | field(by, 5, 5, 2) | 1;
}

static uint32_t stack_move(uint32_t by) { /* c.addi16sp */
    return 3 << 13 | field(by, 9, 9, 12) | SP << 7 | field(by, 4, 4, 6) | field(by, 6, 6, 5) |
           field(by, 8, 7, 3) | field(by, 5, 5, 2) | 1;
}

static uint32_t make_short(struct program *p, uint32_t slot) {
    uint32_t any16 = any(p) & 0xffff, rd = target(p), low = 2 + below(p, 6);
    uint32_t value = (any16 & 0x1000) | (any16 & 0x7c), nonzero = value ? value : 4;
    switch (below(p, 20)) {
    case 0: return (any16 & 0x1fe0 ? any16 & 0x1fe0 : 0x20) | low << 2;      /* addi4spn */
    case 1: return 2 << 13 | (any16 & 0x1c60) | (any16 & 1) << 7 | low << 2; /* lw from s0, s1 */
    case 2: return 6 << 13 | (any16 & 0x1c60) | (any16 & 1) << 7 | (any16 & 0x1c); /* sw */
    case 3: return value | rd << 7 | 1;                                            /* addi */
    case 4: return short_jump(1, distance(p, slot, 12));                           /* jal */
    case 5: return 2 << 13 | value | rd << 7 | 1;                                  /* li */
    case 6:
        if (below(p, 3) == 0) return stack_move((1 + below(p, 15)) << (any(p) & 1 ? 4 : 5));
        return 3 << 13 | nonzero | rd << 7 | 1;                                   /* lui */
    case 7: return 4 << 13 | (any16 & 0x7c) | (any16 >> 15) << 10 | low << 7 | 1; /* srli, srai */
    case 8: return 4 << 13 | value | 2 << 10 | low << 7 | 1;                      /* andi */
    case 9:
    case 10: return 4 << 13 | 3 << 10 | low << 7 | (any16 & 0x7c) | 1; /* sub, xor, or, and */
    case 11: return short_jump(5, distance(p, slot, 12));              /* j */
    case 12:
    case 13: return short_branch(p, slot);
    case 14: return (any16 & 0x7c) | rd << 7 | 2; /* slli */
    case 15:
        if (rd == 0) rd = 6;
        return 2 << 13 | (any16 & 0x107c) | rd << 7 | 2; /* lwsp */
    case 16: return 6 << 13 | (any16 & 0x1ffc) | 2;      /* swsp */
    case 17:
    case 18: return 4 << 13 | rd << 7 | (1 + below(p, 31)) << 2 | 2;          /* mv */
    default: return 4 << 13 | 0x1000 | rd << 7 | (1 + below(p, 31)) << 2 | 2; /* add */
    }
}

/* --- programs --- */

static uint32_t value_of(struct program *p) {
    static const uint32_t special[] = {0, 1, ~0u, 0x80000000, 0x7fffffff, 0xffff8000, 0x10001, 31};
    uint32_t value = any(p);
    return value & 1 ? value : value & 2 ? special[below(p, 8)] : value >> below(p, 32);
}

/* Each register, with two instructions. */
static uint32_t prologue(struct program *p) {
    for (uint32_t rd = 1; rd < 32; rd++) {
        uint32_t value = value_of(p);
        if (rd == SP) value = 0x10000;
        if (rd == S0) value = 0x9000 + 4 * below(p, 64);
        if (rd == S1) value = 0x1a000 + 4 * below(p, 64);
        if (rd == GP) value = DEVICE;
        if (rd == RA || rd == T0) value = 31 * 8;
        put(p, (rd - 1) * 8, ((value + 0x800) & 0xfffff000) | rd << 7 | 0x37, 4);
        put(p, (rd - 1) * 8 + 4, type_i(0x13, 0, rd, rd, value), 4);
    }
    return 31 * 8;
}

/* What stops the core. */
static uint32_t last(struct program *p) {
    static const uint32_t kinds[] = {
        0x73, 0x100073, 0, 0xffffffff, 0x0000100f, 0x30001073, 0x00000513 | 3 << 25 | 1 << 12,
    };
    switch (below(p, 6)) {
    case 0: return type_i(0x03, 1, target(p), S0, 1 + 2 * below(p, 100));
    case 1: return type_i(0x03, 2, target(p), S1, 1 + below(p, 3) + 4 * below(p, 100));
    case 2: return type_s(2, S0, below(p, 32), 2 + 4 * below(p, 100));
    case 3: return type_i(0x67, 0, 0, GP, 0);
    case 4: return type_i(0x03, 2, target(p), 0, 0xf00); /* nothing answers there */
    default: return kinds[below(p, 7)];
    }
}

/* Any bits, of which half are made to look like instructions. */
static void wild(struct program *p, uint32_t at) {
    static const uint8_t codes[] = {0x37, 0x17, 0x6f, 0x67, 0x63, 0x03,
                                    0x23, 0x13, 0x33, 0x13, 0x33};
    for (; at < CODE_BYTES; at += 4) {
        uint32_t word = any(p);
        if (any(p) & 1) word = (word & ~0x7fu) | codes[below(p, sizeof codes)];
        if ((word & 0x7f) == 0x33 && (any(p) & 3)) word &= 0x03ffffff;
        put(p, at, word, 4);
    }
}

void program_make(struct machine *m, uint32_t seed) {
    struct program p = {.random = seed * 0x9e3779b97f4a7c15ull + 1, .m = m};
    memset(m->memory, 0, sizeof m->memory);
    memset(m->x, 0, sizeof m->x);
    m->pc = m->code_stores = 0;
    m->code_end = CODE_BYTES;
    for (uint32_t at = CODE_BYTES; at < LOCAL_BYTES; at += 4) put(&p, at, any(&p), 4);
    uint32_t at = prologue(&p);
    if (seed % 8 == 7) {
        wild(&p, at);
        return;
    }
    p.slots = 20 + below(&p, SLOTS - 20);
    for (uint32_t slot = 0; slot < p.slots; slot++) {
        static const uint32_t sizes[] = {2, 2, 2, 2, 2, 2, 2, 4, 4, 4, 4, 4, 4, 4, 4, 12};
        p.at[slot] = at;
        at += sizes[below(&p, 16)];
    }
    p.at[p.slots] = at;
    for (uint32_t slot = 0; slot + 1 < p.slots; slot++) {
        uint32_t bytes = p.at[slot + 1] - p.at[slot];
        if (bytes == 12) make_call(&p, slot);
        else put(&p, p.at[slot], bytes == 4 ? make_long(&p, slot) : make_short(&p, slot), bytes);
    }
    /* it ends, or begins again behind the registers */
    at = p.at[p.slots - 1];
    put(&p, at, seed % 2 ? last(&p) : type_j(0, p.at[0] - at), 4);
}

uint32_t device_answer(uint32_t n, uint32_t address) {
    uint32_t mixed = (n * 0x9e3779b1u ^ address) * 0x85ebca6bu;
    return mixed ^ mixed >> 15;
}
