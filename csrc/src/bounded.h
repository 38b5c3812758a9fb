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

/* The same in two halves, so that several calls wait together: the limit counts from the begin.
 * `late` is run on the copy of a call that was left and has returned after all; may be NULL.
 * lora_bounded_begin: NULL where no thread can be had, which lora_bounded_end takes for late. */
struct lora_bounded_acts {
    lora_bounded_fn *act, *late;
};
struct lora_bounded_call;
struct lora_bounded_call *lora_bounded_begin(const struct lora_bounded_acts *acts, const void *call,
                                             size_t bytes, uint32_t limit_ms);
int lora_bounded_end(struct lora_bounded_call *begun, void *call, size_t bytes);

/* How many threads are there for such calls, those that never came back included. */
uint32_t lora_bounded_threads(void);

#endif
