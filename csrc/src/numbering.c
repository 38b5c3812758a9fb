/* Which step comes next when a run of many steps did not end well. */
#include "internal.h"

int lora_renumber(struct lora_cluster *cluster, struct lora_failure *failure) {
    uint32_t lowest = 0;
    for (uint32_t b = 0; b < cluster->count; b++) {
        uint32_t last = 0;
        int status = lora_register_read(cluster, b, LORA_BLOCK_CONTROL, LORA_REG_LAST_STEP, &last,
                                        failure);
        if (status) return status;
        if (last == LORA_NONE) { /* no step has this number, but a bus that nobody answers on */
            failure->board = (int32_t)b;
            return lora_fail(failure, LORA_ERR_TRANSPORT,
                             "board %u (%s): its registers read as ones; reset it, or look at its "
                             "slot",
                             b, cluster->boards[b].info.address);
        }
        if ((int32_t)(last + 1 - cluster->step) < 0) { /* before the run they were further */
            failure->board = (int32_t)b;
            failure->found = last;
            failure->expected = cluster->step - 1;
            return lora_fail(failure, LORA_ERR_COMPLETION,
                             "board %u (%s): its last step is %u, at least %u expected: its "
                             "firmware has begun anew",
                             b, cluster->boards[b].info.address, last, cluster->step - 1);
        }
        if (b == 0 || (int32_t)(last - lowest) < 0) lowest = last;
    }
    cluster->step = lowest + 1;
    cluster->dirty = 1;
    cluster->uncounted = 0;
    return LORA_OK;
}
