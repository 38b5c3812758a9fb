/* Threads that begin at once, timed. */
#ifndef BENCH_THREADS_H
#define BENCH_THREADS_H

#include <stddef.h>
#include <stdint.h>

/* Runs `work` on each of the `threads` (1 to LORA_BENCH_THREADS) parts of `size` bytes, the first
 * in the caller. Returns nanoseconds, without those of making threads; 0 if not all could be made.
 */
uint64_t lora_bench_run(void (*work)(void *part), void *parts, size_t size, uint32_t threads);

#endif
