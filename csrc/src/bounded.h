/* Calls into libraries of others, which may never return, with a time limit of ours. */
#ifndef LORA_BOUNDED_H
#define LORA_BOUNDED_H

#include <stddef.h>
#include <stdint.h>

#define LORA_BOUNDED_BYTES 512

/* Reads its arguments from `call` and writes its results there; no pointer in it may lead to what
 * the caller frees or leaves. */
typedef void lora_bounded_fn(void *call);

/* Runs `act` on a copy of `call` in a thread of the library's own and waits for it. 1: it has
 * returned, and `call` holds its results. 0: not within the limit; its thread and its copy are
 * left to it, and the process can end without it. */
int lora_bounded(lora_bounded_fn *act, void *call, size_t bytes, uint32_t limit_ms);

/* How many threads are there for such calls, those that never came back included. */
uint32_t lora_bounded_threads(void);

#endif
