#include "reference.h"

#include <string.h>

enum {
    FETCH = 1,
    ILLEGAL = 2,
    BREAK = 3,
    LOAD_ALIGN = 4,
    LOAD = 5,
    STORE_ALIGN = 6,
    STORE = 7,
    CALL = 11
};

static uint32_t bits(uint32_t word, int high, int low) {
    return word >> low & (uint32_t)((2ull << (high - low)) - 1);
}

/* `word`'s low `count` bits, the highest one a sign. */
static uint32_t sign(uint32_t word, int count) {
    return (uint32_t)((int32_t)(word << (32 - count)) >> (32 - count));
}

static uint32_t half_at(const struct machine *m, uint32_t at) {
    return m->memory[at] | (uint32_t)m->memory[at + 1] << 8;
}

struct context {
    struct machine *m;
    struct retired *done;
    uint32_t next;
};

static uint32_t write(struct context *c, uint32_t rd, uint32_t value) {
    c->done->writes = rd != 0;
    c->done->rd = rd;
    c->done->value = value;
    if (rd) c->m->x[rd] = value;
    return 0;
}

static uint32_t load(struct context *c, uint32_t rd, uint32_t address, uint32_t funct) {
    uint32_t size = 1u << (funct & 3), word;
    if (funct == 3 || funct > 5) return ILLEGAL;
    if (address % size) return LOAD_ALIGN;
    if (address < LOCAL_BYTES) {
        memcpy(&word, c->m->memory + (address & ~3u), 4);
    } else {
        struct bus_access access = {address, 0, 0};
        if (!c->m->bus || !c->m->bus(c->m->context, &access)) return LOAD;
        word = access.data;
    }
    word >>= 8 * (address & 3);
    if (size < 4)
        word = funct & 4 ? bits(word, (int)(8 * size) - 1, 0) : sign(word, (int)(8 * size));
    return write(c, rd, word);
}

static uint32_t store(struct context *c, uint32_t address, uint32_t value, uint32_t funct) {
    uint32_t size = 1u << funct;
    if (funct > 2) return ILLEGAL;
    if (address % size) return STORE_ALIGN;
    if (address < LOCAL_BYTES) {
        memcpy(c->m->memory + address, &value, size);
        c->m->code_stores += address < c->m->code_end;
        return 0;
    }
    struct bus_access access = {address, ((1u << size) - 1) << (address & 3), 0};
    access.data = size == 4   ? value
                  : size == 2 ? (value & 0xffff) * 0x10001
                              : (value & 0xff) * 0x1010101;
    return c->m->bus && c->m->bus(c->m->context, &access) ? 0 : STORE;
}

static uint32_t jump(struct context *c, uint32_t rd, uint32_t to) {
    uint32_t link = c->next;
    c->next = to & ~1u;
    return write(c, rd, link);
}

static uint32_t branch(struct context *c, uint32_t funct, uint32_t a, uint32_t b, uint32_t by) {
    int taken;
    switch (funct >> 1) {
    case 0: taken = a == b; break;
    case 2: taken = (int32_t)a < (int32_t)b; break;
    case 3: taken = a < b; break;
    default: return ILLEGAL;
    }
    if (taken != (int)(funct & 1)) c->next = c->m->pc + by;
    return 0;
}

static uint32_t product(uint32_t funct, uint32_t a, uint32_t b) {
    int64_t sa = (int32_t)a, sb = (int32_t)b;
    switch (funct) {
    case 0: return a * b;
    case 1: return (uint32_t)((uint64_t)(sa * sb) >> 32);
    case 2: return (uint32_t)((uint64_t)(sa * (int64_t)b) >> 32);
    case 3: return (uint32_t)((uint64_t)a * b >> 32);
    case 4: return b == 0 ? ~0u : (uint32_t)(sa / sb);
    case 5: return b == 0 ? ~0u : a / b;
    case 6: return b == 0 ? a : (uint32_t)(sa % sb);
    default: return b == 0 ? a : a % b;
    }
}

static uint32_t arithmetic(uint32_t funct, uint32_t other, uint32_t a, uint32_t b) {
    switch (funct) {
    case 0: return other ? a - b : a + b;
    case 1: return a << (b & 31);
    case 2: return (int32_t)a < (int32_t)b;
    case 3: return a < b;
    case 4: return a ^ b;
    case 5: return other ? (uint32_t)((int32_t)a >> (b & 31)) : a >> (b & 31);
    case 6: return a | b;
    default: return a & b;
    }
}

static uint32_t system_call(uint32_t word) {
    return word == 0x73 ? CALL : word == 0x100073 ? BREAK : ILLEGAL;
}

static uint32_t step_long(struct context *c, uint32_t word) {
    uint32_t rd = bits(word, 11, 7), funct = bits(word, 14, 12), high = word >> 25, pc = c->m->pc;
    uint32_t a = c->m->x[bits(word, 19, 15)], b = c->m->x[bits(word, 24, 20)];
    uint32_t i = sign(word >> 20, 12), s = sign(high << 5 | rd, 12);
    switch (word & 0x7f) {
    case 0x37: return write(c, rd, word & 0xfffff000);
    case 0x17: return write(c, rd, pc + (word & 0xfffff000));
    case 0x6f:
        return jump(c, rd,
                    pc + sign(bits(word, 31, 31) << 20 | bits(word, 19, 12) << 12 |
                                  bits(word, 20, 20) << 11 | bits(word, 30, 21) << 1,
                              21));
    case 0x67: return funct ? ILLEGAL : jump(c, rd, a + i);
    case 0x63:
        return branch(c, funct, a, b,
                      sign(bits(word, 31, 31) << 12 | bits(word, 7, 7) << 11 |
                               bits(word, 30, 25) << 5 | bits(word, 11, 8) << 1,
                           13));
    case 0x03: return load(c, rd, a + i, funct);
    case 0x23: return store(c, a + s, b, funct);
    case 0x13:
        if (funct % 4 == 1 && high != 0 && !(high == 0x20 && funct == 5)) return ILLEGAL;
        return write(c, rd, arithmetic(funct, funct == 5 && high, a, i));
    case 0x33:
        if (high == 1) return write(c, rd, product(funct, a, b));
        if (high != 0 && !(high == 0x20 && (funct == 0 || funct == 5))) return ILLEGAL;
        return write(c, rd, arithmetic(funct, high, a, b));
    case 0x0f: return funct ? ILLEGAL : 0;
    case 0x73: return system_call(word);
    default: return ILLEGAL;
    }
}

/* Directly from the encodings, not by way of 32-bit instructions as the hardware does. */
static uint32_t step_quadrant_0(struct context *c, uint32_t h) {
    uint32_t *x = c->m->x, rd = 8 + bits(h, 4, 2), base = x[8 + bits(h, 9, 7)];
    uint32_t word = bits(h, 5, 5) << 6 | bits(h, 12, 10) << 3 | bits(h, 6, 6) << 2;
    uint32_t wide = bits(h, 10, 7) << 6 | bits(h, 12, 11) << 4 | bits(h, 5, 5) << 3 |
                    bits(h, 6, 6) << 2;
    switch (h >> 13) {
    case 0: return wide ? write(c, rd, x[2] + wide) : ILLEGAL;
    case 2: return load(c, rd, base + word, 2);
    case 6: return store(c, base + word, x[rd], 2);
    default: return ILLEGAL;
    }
}

static uint32_t short_arithmetic(struct context *c, uint32_t h, uint32_t value) {
    uint32_t rd = 8 + bits(h, 9, 7), a = c->m->x[rd], b = c->m->x[8 + bits(h, 4, 2)];
    uint32_t kind = bits(h, 11, 10), extra = bits(h, 12, 12);
    if (kind == 2) return write(c, rd, a & value);
    if (extra) return ILLEGAL;
    if (kind < 2) return write(c, rd, arithmetic(5, kind, a, value));
    switch (bits(h, 6, 5)) {
    case 0: return write(c, rd, a - b);
    case 1: return write(c, rd, a ^ b);
    case 2: return write(c, rd, a | b);
    default: return write(c, rd, a & b);
    }
}

static uint32_t step_quadrant_1(struct context *c, uint32_t h) {
    uint32_t *x = c->m->x, rd = bits(h, 11, 7), pc = c->m->pc;
    uint32_t value = sign(bits(h, 12, 12) << 5 | bits(h, 6, 2), 6);
    uint32_t far = sign(bits(h, 12, 12) << 11 | bits(h, 8, 8) << 10 | bits(h, 10, 9) << 8 |
                            bits(h, 6, 6) << 7 | bits(h, 7, 7) << 6 | bits(h, 2, 2) << 5 |
                            bits(h, 11, 11) << 4 | bits(h, 5, 3) << 1,
                        12);
    uint32_t near = sign(bits(h, 12, 12) << 8 | bits(h, 6, 5) << 6 | bits(h, 2, 2) << 5 |
                             bits(h, 11, 10) << 3 | bits(h, 4, 3) << 1,
                         9);
    uint32_t stack = sign(bits(h, 12, 12) << 9 | bits(h, 4, 3) << 7 | bits(h, 5, 5) << 6 |
                              bits(h, 2, 2) << 5 | bits(h, 6, 6) << 4,
                          10);
    switch (h >> 13) {
    case 0: return write(c, rd, x[rd] + value);
    case 1: return jump(c, 1, pc + far);
    case 2: return write(c, rd, value);
    case 3:
        if (value == 0) return ILLEGAL;
        return rd == 2 ? write(c, 2, x[2] + stack) : write(c, rd, value << 12);
    case 4: return short_arithmetic(c, h, value);
    case 5: return jump(c, 0, pc + far);
    default: return branch(c, h >> 13 & 1, x[8 + bits(h, 9, 7)], 0, near);
    }
}

static uint32_t step_quadrant_2(struct context *c, uint32_t h) {
    uint32_t *x = c->m->x, rd = bits(h, 11, 7), rs = bits(h, 6, 2), extra = bits(h, 12, 12);
    switch (h >> 13) {
    case 0: return extra ? ILLEGAL : write(c, rd, x[rd] << rs);
    case 2:
        return rd ? load(c, rd, x[2] + (bits(h, 3, 2) << 6 | extra << 5 | bits(h, 6, 4) << 2), 2)
                  : ILLEGAL;
    case 4:
        if (rs) return write(c, rd, extra ? x[rd] + x[rs] : x[rs]);
        if (rd) return jump(c, extra, x[rd]);
        return extra ? BREAK : ILLEGAL;
    case 6: return store(c, x[2] + (bits(h, 8, 7) << 6 | bits(h, 12, 9) << 2), x[rs], 2);
    default: return ILLEGAL;
    }
}

uint32_t reference_step(struct machine *m, struct retired *done) {
    struct context c = {m, done, 0};
    uint32_t cause, half;
    *done = (struct retired){m->pc, 0, 0, 0};
    if (m->pc >= LOCAL_BYTES) return FETCH;
    half = half_at(m, m->pc);
    if ((half & 3) == 3 && m->pc + 2 >= LOCAL_BYTES) return FETCH;
    c.next = m->pc + ((half & 3) == 3 ? 4 : 2);
    switch (half & 3) {
    case 0: cause = step_quadrant_0(&c, half); break;
    case 1: cause = step_quadrant_1(&c, half); break;
    case 2: cause = step_quadrant_2(&c, half); break;
    default: cause = step_long(&c, half | half_at(m, m->pc + 2) << 16);
    }
    if (!cause) m->pc = c.next;
    return cause;
}

uint64_t reference_run(struct machine *m, uint64_t count, uint32_t *cause) {
    struct retired done;
    for (uint64_t i = 0; i < count; i++)
        if ((*cause = reference_step(m, &done)) || m->code_stores) return i + !*cause;
    return count;
}
