/* Native kernels with a watch around each call. The emulator runs kernels from one thread at a time,
 * and a batch returns when all threads are done, so the sum is the wall clock spent in kernels. */
#define _POSIX_C_SOURCE 199309L
#include <stddef.h>
#include <time.h>

#include "lora/bench.h"
#include "lora/kernels.h"
#include "lora/native.h"

static uint64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static void add(void *context, uint64_t began) {
    struct lora_kernel_time *total = context;
    total->nanoseconds += now() - began;
    total->calls++;
}

static int timed(int (*kernel)(void *, struct lora_unit_call *), void *context,
                 struct lora_unit_call *call) {
    uint64_t began = now();
    int status = kernel(lora_kernels_native.context, call);
    add(context, began);
    return status;
}

static int matrix(void *context, struct lora_unit_call *call) {
    return timed(lora_kernels_native.matrix, context, call);
}

static int vector(void *context, struct lora_unit_call *call) {
    return timed(lora_kernels_native.vector, context, call);
}

static int attention(void *context, struct lora_unit_call *call) {
    return timed(lora_kernels_native.attention, context, call);
}

static int adapter(void *context, struct lora_unit_call *call) {
    return timed(lora_kernels_native.adapter, context, call);
}

static void batch(void *context, struct lora_pool *pool, struct lora_unit_call *calls,
                  int *statuses, uint32_t count) {
    uint64_t began = now();
    lora_kernels_native.batch(lora_kernels_native.context, pool, calls, statuses, count);
    add(context, began);
}

const struct lora_kernels lora_kernels_timed = {
    .size = sizeof(struct lora_kernels),
    .name = "native",
    .matrix = matrix,
    .vector = vector,
    .attention = attention,
    .adapter = adapter,
    .batch = batch,
};
