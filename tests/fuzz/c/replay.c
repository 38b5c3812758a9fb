/* Runs each file named as an argument through a target once, without a fuzzer: `PROGRAM FILE...`.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "taken.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static int run(const char *path) {
    FILE *file = fopen(path, "rb");
    uint8_t *data = NULL;
    long bytes = -1;
    if (file && !fseek(file, 0, SEEK_END)) bytes = ftell(file);
    if (bytes >= 0) data = malloc((size_t)bytes + !bytes);
    if (data) rewind(file);
    int bad = !data || fread(data, 1, (size_t)bytes, file) != (size_t)bytes;
    if (file) fclose(file);
    if (bad) fprintf(stderr, "%s: cannot be read\n", path);
    else LLVMFuzzerTestOneInput(data, (size_t)bytes);
    free(data);
    return bad;
}

int main(int count, char **paths) {
    int bad = count < 2;
    if (bad) fprintf(stderr, "%s: no input named; expected FILE...\n", paths[0]);
    for (int i = 1; i < count; i++) bad |= run(paths[i]);
    if (!bad) printf("%d inputs, %u taken\n", count - 1, fuzz_taken);
    return bad;
}
