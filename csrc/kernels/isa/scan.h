/* A head's step of the selective scan, for any width of vectors, as delta.h, which is included
 * before. docs/numbers.md, 3.20. */

COLUMNS_TARGET static void scan_columns(const struct delta_step *s, uint32_t first) {
    float output[DELTA_COLUMNS] = {0};
    const float *v = s->v + first;
    float *state = s->state + first;
    for (uint32_t i = 0; i < s->keys; i++, state += s->values)
        for (int j = 0; j < DELTA_COLUMNS; j++) {
            state[j] = state[j] * s->decay + s->k[i] * v[j];
            output[j] = output[j] + state[j] * s->q[i];
        }
    for (int j = 0; j < DELTA_COLUMNS; j++) s->output[first + (uint32_t)j] = output[j];
}

COLUMNS_TARGET static void scan_column(const struct delta_step *s, uint32_t j) {
    float output = 0.0f, *state = s->state + j;
    for (uint32_t i = 0; i < s->keys; i++, state += s->values) {
        *state = *state * s->decay + s->k[i] * s->v[j];
        output = output + *state * s->q[i];
    }
    s->output[j] = output;
}

COLUMNS_TARGET static void scan(const struct delta_step *s) {
    uint32_t j = 0;
    for (; j + DELTA_COLUMNS <= s->values; j += DELTA_COLUMNS) scan_columns(s, j);
    for (; j < s->values; j++) scan_column(s, j);
}
