/* A head's step of the gated delta rule, for any width of vectors: the compiler makes these loops
 * of them. Included once by each implementation, after it has defined COLUMNS_TARGET, attributes of
 * functions. docs/numbers.md, 3.18. */
#include "variant.h"

#define DELTA_COLUMNS 32 /* at a time: their part of the state stays in the first cache */

COLUMNS_TARGET static void delta_columns(const struct delta_step *s, uint32_t first) {
    float recalled[DELTA_COLUMNS] = {0}, output[DELTA_COLUMNS] = {0};
    float *state = s->state + first;
    for (uint32_t i = 0; i < s->keys; i++, state += s->values)
        for (int j = 0; j < DELTA_COLUMNS; j++) {
            state[j] = state[j] * s->decay;
            recalled[j] = recalled[j] + state[j] * s->k[i];
        }
    for (int j = 0; j < DELTA_COLUMNS; j++)
        recalled[j] = (s->v[first + (uint32_t)j] - recalled[j]) * s->beta;
    state = s->state + first;
    for (uint32_t i = 0; i < s->keys; i++, state += s->values)
        for (int j = 0; j < DELTA_COLUMNS; j++) {
            state[j] = state[j] + s->k[i] * recalled[j];
            output[j] = output[j] + state[j] * s->q[i];
        }
    for (int j = 0; j < DELTA_COLUMNS; j++) s->output[first + (uint32_t)j] = output[j];
}

COLUMNS_TARGET static void delta_column(const struct delta_step *s, uint32_t j) {
    float recalled = 0.0f, output = 0.0f;
    float *state = s->state + j;
    for (uint32_t i = 0; i < s->keys; i++, state += s->values) {
        *state = *state * s->decay;
        recalled = recalled + *state * s->k[i];
    }
    recalled = (s->v[j] - recalled) * s->beta;
    state = s->state + j;
    for (uint32_t i = 0; i < s->keys; i++, state += s->values) {
        *state = *state + s->k[i] * recalled;
        output = output + *state * s->q[i];
    }
    s->output[j] = output;
}

COLUMNS_TARGET static void delta(const struct delta_step *s) {
    uint32_t j = 0;
    for (; j + DELTA_COLUMNS <= s->values; j += DELTA_COLUMNS) delta_columns(s, j);
    for (; j < s->values; j++) delta_column(s, j);
}
