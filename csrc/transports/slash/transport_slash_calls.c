/* Accesses to a V80, each with a time limit. A board whose access has not ended is stuck: nothing
 * more is asked of it in this process, and what its thread uses is kept for it. */
#define _GNU_SOURCE
#include "bounded.h"
#include "transport_slash.h"

/* Of seconds, not of what an access takes: a loaded computer must not look like a stuck board. */
static const struct {
    const char *name;
    uint32_t limit_ms;
} kinds[] = {
    [SLASH_TRANSFER] = {"a DMA transfer", 10000}, /* of 64 KiB */
    [SLASH_REGISTER] = {"an access to a register", 5000},
};

int slash_check_stuck(struct slash_handle *handle, struct lora_failure *failure) {
    int stuck = atomic_load(&handle->stuck);
    if (!stuck) return LORA_OK;
    return lora_fail(failure, LORA_ERR_TRANSPORT,
                     "board %s: %s has not ended within %u s: its driver or the card is gone; "
                     "start this program again, and reset the card if it stays so",
                     handle->bdf, kinds[stuck].name, kinds[stuck].limit_ms / 1000);
}

int slash_bounded(struct slash_handle *handle, enum slash_access kind, lora_bounded_fn *act,
                  void *call, size_t bytes, struct lora_failure *failure) {
    int none = 0;
    if (lora_bounded(act, call, bytes, kinds[kind].limit_ms)) return LORA_OK;
    atomic_compare_exchange_strong(&handle->stuck, &none, (int)kind);
    return slash_check_stuck(handle, failure);
}
