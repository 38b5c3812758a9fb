/* Every wait of the library, with the reason for its value. */
#include "internal.h"

void lora_timeouts_default(struct lora_timeouts *timeouts) {
    *timeouts = (struct lora_timeouts){
        .size = sizeof *timeouts,
        /* The Aurora core wants at least 1 s in reset; a tenth more for its clock's tolerance. */
        .core_reset_us = 1100000,
        /* Channel up takes well under 1 s; 3 s is what the core's users wait. */
        .link_up_us = 3000000,
        /* 256 KiB a port at 51.2 Gb/s is 41 us; the rest is the soft core's own pace. */
        .link_test_us = 2000000,
        /* 8192 commands, each checked in about 50 us by a soft core at 200 MHz: 0.4 s. */
        .register_list_us = 3000000,
        /* The longest step, 64 rows of a 7 B model on one board, is modelled below 1 s; more than
         * the watchdog, so that the board itself ends what hangs and says why. */
        .step_us = 5000000,
        .watchdog_ms = 3000,
        /* 16 GiB of DDR at 19 GB/s is 0.9 s; a soft core that sums in slices is slower. */
        .checksum_us = 20000000,
        /* 1% of a decode step of 2 ms, and a register read over PCIe is about 1 us. */
        .poll_us = 20,
    };
}

int lora_cluster_set_timeouts(struct lora_cluster *cluster, const struct lora_timeouts *timeouts) {
    if (!cluster || !timeouts || timeouts->size != sizeof *timeouts) return LORA_ERR_ARGUMENT;
    if (!timeouts->poll_us || !timeouts->watchdog_ms) return LORA_ERR_ARGUMENT;
    if (timeouts->step_us / 1000 <= timeouts->watchdog_ms) return LORA_ERR_ARGUMENT;
    cluster->timeouts = *timeouts;
    return LORA_OK;
}
