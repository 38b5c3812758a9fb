/* A pool of threads that stays: work is cut into items, which the caller and the workers take in
 * turn. Workers spin briefly between two runs, then sleep. */
#ifndef LORA_POOL_H
#define LORA_POOL_H

#include <stdbool.h>
#include <stdint.h>

#define LORA_POOL_THREADS 64 /* at most, the caller included */

struct lora_pool;

/* `threads` counts the caller; 0 takes one a CPU that this process may use. Workers start with the
 * first run that has work for them. NULL without memory. */
struct lora_pool *lora_pool_create(uint32_t threads);
void lora_pool_free(struct lora_pool *pool);
/* How many threads a run may use, 1 without a pool. */
uint32_t lora_pool_threads(const struct lora_pool *pool);
/* Calls task(context, item, thread) once for every item < count and returns when all are done.
 * thread < lora_pool_threads, the caller is 0. One caller at a time; without a pool, for a single
 * item, or within an item of another run, the caller does it all. Workers compute under nearest
 * rounding with subnormals. */
void lora_pool_run(struct lora_pool *pool, uint32_t count,
                   void (*task)(void *context, uint32_t item, uint32_t thread), void *context);
/* The pool whose item this thread is running, as which of its threads; NULL: none. */
struct lora_pool *lora_pool_running(uint32_t *thread);
/* What threads do while they wait for work, again and again until it returns false: a few tens of
 * nanoseconds of something that may as well be left undone. Once a pool, which frees `context` with
 * itself. */
void lora_pool_set_idle(struct lora_pool *pool, bool (*task)(void *context, uint32_t thread),
                        void *context);
/* One call of the idle task, or a pause: between two looks of an item that waits for another's. */
void lora_pool_pass_time(struct lora_pool *pool, uint32_t thread);
/* NULL before. */
void *lora_pool_idle_context(const struct lora_pool *pool);

#endif
