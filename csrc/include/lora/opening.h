/* What the host computes while a model opens: rotary tables, and what a GGUF file's texts are. */
#ifndef LORA_OPENING_H
#define LORA_OPENING_H

#include <stdint.h>

/* cosines and sines of `positions` positions from 0 on, FP32 [positions][2][half]: of position
 * times inverse [rotated], times factor, 1 and 0 for the pairs behind them.
 * docs/numbers.md, 3.6, 4.5. Each |position * inverse| must be below 2^20 * pi/2. */
void lora_rope_table(const float *inverse, uint32_t rotated, uint32_t half, uint64_t positions,
                     double factor, float *table);

/* Where `count` texts end that begin at `start` of a file of `bytes` bytes, each behind 8 bytes
 * that hold its length; 0: not all are there. */
uint64_t lora_texts_end(const uint8_t *file, uint64_t bytes, uint64_t start, uint64_t count);
/* The same texts, all of them there, each with `separator` behind it. Returns 0 where a text has
 * that byte, and nothing was copied from there on. `out` has room for them. */
uint32_t lora_texts_joined(const uint8_t *texts, uint64_t count, uint8_t separator, uint8_t *out);

/* A vocabulary of which pairs of tokens are merged, the best score first. `texts` are UTF-8, none
 * of them twice. */
struct lora_vocabulary {
    const uint8_t *texts; /* each behind 8 bytes that hold its length */
    const double *scores; /* [count], none of them NaN */
    const uint8_t *made;  /* [count], 0 for tokens that merges do not make */
    uint64_t key;         /* of the table of texts: a number that the file does not know */
    uint32_t count;
};
/* The most characters of tokens that merges make, times their lengths. */
#define LORA_MERGE_WORK 16777216
/* Of each token the pair that makes it, [count][2], UINT32_MAX where no text comes to it. Returns
 * 0, or why there are none: 1 where the tokens have more than LORA_MERGE_WORK, 2 without memory. */
int lora_token_merges(const struct lora_vocabulary *vocabulary, uint32_t *pairs);

#endif
