/* Merges of a SentencePiece vocabulary. It names scores of tokens, not pairs. A token is made of
 * one pair at most: whatever stands around it, the merges within a token are those that it has
 * alone, in the same order, so the last of them is always the same. */
#include <stdlib.h>
#include <string.h>

#include "lora/opening.h"

#define LEAD 8
#define NONE UINT32_MAX

struct text {
    const uint8_t *at;
    uint64_t bytes;
};

struct slot {
    const uint8_t *at; /* the text, behind its length */
    uint32_t tag;      /* a part of the text's sum */
    uint32_t token;
};

struct symbol {
    uint64_t start, end; /* in the token's bytes */
    uint32_t token, characters;
    uint32_t joined; /* the token that this and the next symbol make, or NONE */
};

struct merges {
    const struct lora_vocabulary *vocabulary;
    struct text *texts;
    struct slot *slots;
    uint64_t mask; /* slots less 1, a power of two less 1 */
    struct symbol *symbols;
};

static uint64_t word(const uint8_t *at, uint64_t bytes) {
    uint64_t found = 0;
    memcpy(&found, at, bytes);
    return found;
}

__extension__ typedef unsigned __int128 wide;

static uint64_t mixed(uint64_t a, uint64_t b) {
    wide product = (wide)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static uint64_t sum_of(const uint8_t *at, uint64_t bytes, uint64_t key) {
    uint64_t sum = key ^ bytes * 0x9e3779b97f4a7c15u;
    for (; bytes > 8; at += 8, bytes -= 8)
        sum = mixed(sum ^ word(at, 8), key ^ 0xa0761d6478bd642fu);
    uint64_t rest = bytes == 8  ? word(at, 8)
                    : bytes > 3 ? word(at, 4) << 32 | word(at + bytes - 4, 4)
                    : bytes     ? (uint64_t)at[0] << 16 | at[bytes / 2] << 8 | at[bytes - 1]
                                : 0;
    return mixed(sum ^ rest, key ^ 0xe7037ed1a0b428dbu);
}

/* The slot of a text, or the empty one where it would be. */
static struct slot *slot_of(const struct merges *merges, const uint8_t *at, uint64_t bytes) {
    uint64_t sum = sum_of(at, bytes, merges->vocabulary->key);
    uint32_t tag = (uint32_t)(sum >> 32);
    for (uint64_t place = sum;; place++) {
        struct slot *slot = &merges->slots[place & merges->mask];
        if (slot->token == NONE) {
            slot->tag = tag;
            return slot;
        }
        if (slot->tag == tag && word(slot->at - LEAD, LEAD) == bytes &&
            memcmp(slot->at, at, bytes) == 0)
            return slot;
    }
}

static uint32_t token_of(const struct merges *merges, const uint8_t *at, uint64_t bytes) {
    return slot_of(merges, at, bytes)->token;
}

static uint64_t characters_of(const struct text *text) {
    uint64_t found = 0;
    for (uint64_t i = 0; i < text->bytes; i++) found += (text->at[i] & 0xc0) != 0x80;
    return found;
}

/* Finds the texts, and room for the symbols of the longest. Returns 1 where they are too long. */
static int read_texts(struct merges *merges, uint64_t *longest) {
    const struct lora_vocabulary *vocabulary = merges->vocabulary;
    const uint8_t *at = vocabulary->texts;
    uint64_t work = 0;
    *longest = 0;
    for (uint32_t token = 0; token < vocabulary->count; token++) {
        struct text *text = &merges->texts[token];
        text->bytes = word(at, LEAD);
        text->at = at + LEAD;
        at = text->at + text->bytes;
        struct slot *slot = slot_of(merges, text->at, text->bytes);
        slot->at = text->at;
        slot->token = token;
        if (!vocabulary->made[token]) continue;
        uint64_t characters = characters_of(text);
        if (characters > LORA_MERGE_WORK) return 1;
        work += characters * characters;
        if (work > LORA_MERGE_WORK) return 1;
        if (characters > *longest) *longest = characters;
    }
    return 0;
}

static void join(const struct merges *merges, const struct text *text, struct symbol *left) {
    const struct symbol *right = left + 1;
    left->joined = token_of(merges, text->at + left->start, right->end - left->start);
    if (left->joined != NONE && !merges->vocabulary->made[left->joined]) left->joined = NONE;
}

/* The symbols of a text's characters; 0 where one is no token. */
static uint32_t spell(const struct merges *merges, const struct text *text) {
    uint32_t count = 0;
    for (uint64_t start = 0, end; start < text->bytes; start = end) {
        for (end = start + 1; end < text->bytes && (text->at[end] & 0xc0) == 0x80;) end++;
        struct symbol *symbol = &merges->symbols[count++];
        *symbol = (struct symbol){.start = start, .end = end, .characters = 1, .joined = NONE};
        symbol->token = token_of(merges, text->at + start, end - start);
        if (symbol->token == NONE) return 0;
    }
    for (uint32_t i = 0; i + 1 < count; i++) join(merges, text, &merges->symbols[i]);
    return count;
}

/* Whether the pair that begins at `a` is merged before that at `b`. */
static int earlier(const struct merges *merges, const struct symbol *a, const struct symbol *b) {
    const double *scores = merges->vocabulary->scores;
    if (scores[a->joined] != scores[b->joined]) return scores[a->joined] > scores[b->joined];
    if (a->characters != b->characters) return a->characters > b->characters;
    if (a[1].characters != b[1].characters) return a[1].characters > b[1].characters;
    return a->joined < b->joined;
}

static struct symbol *first_pair(const struct merges *merges, uint32_t count) {
    struct symbol *best = NULL;
    for (uint32_t i = 0; i + 1 < count; i++) {
        struct symbol *pair = &merges->symbols[i];
        if (pair->joined != NONE && (!best || earlier(merges, pair, best))) best = pair;
    }
    return best;
}

/* The pair that makes a token, by merging its characters. */
static void last_pair(const struct merges *merges, const struct text *text, uint32_t *pair) {
    uint32_t count = spell(merges, text);
    pair[0] = pair[1] = NONE;
    while (count > 1) {
        struct symbol *left = first_pair(merges, count), *right;
        if (!left) return;
        right = left + 1;
        if (count == 2) {
            pair[0] = left->token;
            pair[1] = right->token;
            return;
        }
        left->end = right->end;
        left->token = left->joined;
        left->characters += right->characters;
        memmove(right, right + 1, (size_t)(merges->symbols + count - (right + 1)) * sizeof *right);
        count--;
        if (left + 1 < merges->symbols + count) join(merges, text, left);
        if (left > merges->symbols) join(merges, text, left - 1);
    }
}

static int find_pairs(struct merges *merges, uint32_t *pairs) {
    const struct lora_vocabulary *vocabulary = merges->vocabulary;
    uint64_t longest;
    if (read_texts(merges, &longest)) return 1;
    merges->symbols = malloc((longest + 1) * sizeof *merges->symbols);
    if (!merges->symbols) return 2;
    for (uint32_t token = 0; token < vocabulary->count; token++)
        if (vocabulary->made[token])
            last_pair(merges, &merges->texts[token], pairs + 2 * (uint64_t)token);
        else pairs[2 * (uint64_t)token] = pairs[2 * (uint64_t)token + 1] = NONE;
    free(merges->symbols);
    return 0;
}

int lora_token_merges(const struct lora_vocabulary *vocabulary, uint32_t *pairs) {
    uint64_t slots = 16;
    while (slots < 2 * (uint64_t)vocabulary->count) slots *= 2;
    struct merges merges = {.vocabulary = vocabulary, .mask = slots - 1};
    merges.texts = malloc(((uint64_t)vocabulary->count + 1) * sizeof *merges.texts);
    merges.slots = malloc(slots * sizeof *merges.slots);
    int status = 2;
    if (merges.texts && merges.slots) {
        memset(merges.slots, 0xff, slots * sizeof *merges.slots);
        status = find_pairs(&merges, pairs);
    }
    free(merges.texts);
    free(merges.slots);
    return status;
}
