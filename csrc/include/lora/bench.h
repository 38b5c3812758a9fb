/* What measurements need: how fast this machine reads and copies memory, and multiplies. */
#ifndef LORA_BENCH_H
#define LORA_BENCH_H

#include <stdint.h>

/* Memory as boards have it: aligned to huge pages, asked for and touched. NULL without memory. */
void *lora_bench_buffer(uint64_t bytes);
void lora_bench_free(void *buffer, uint64_t bytes);

/* Loops that read memory as fast as they can, by index; NULL past the last one. */
const char *lora_bench_reader(uint32_t index);
/* 1 when this machine can run it. */
int lora_bench_reader_supported(uint32_t index);
/* Reads the buffer `passes` times, each thread its own part. Returns nanoseconds of all passes, 0
 * for an argument out of range or without threads. */
uint64_t lora_bench_read(const void *buffer, uint64_t bytes, uint32_t threads, uint32_t passes,
                         uint32_t reader);
/* memcpy into fresh huge pages, which are given back. Returns nanoseconds, 0 as above. */
uint64_t lora_bench_copy(const void *from, uint64_t bytes, uint32_t threads);

/* Products, each added to a sum: FP32 in FP32, INT8 in INT32. */
enum lora_bench_arithmetic { LORA_BENCH_FP32, LORA_BENCH_INT8 };
/* Loops that make products as fast as a core can, by index; NULL past the last one. */
const char *lora_bench_loop(uint32_t index, enum lora_bench_arithmetic *arithmetic);
/* 1 when this machine can run it. */
int lora_bench_loop_supported(uint32_t index);
/* Products a second of all threads together over `passes` runs of some 10^5 steps; 0 for an
 * argument out of range or without threads. */
double lora_bench_products(uint32_t threads, uint32_t passes, uint32_t index);
#define LORA_BENCH_THREADS 64

#endif
