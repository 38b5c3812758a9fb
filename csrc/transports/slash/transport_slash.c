/* The transport of V80 boards, "slash:BDF": the table, and running the control kernel. There is no
 * interrupt for users: completion is polled, with timeouts of the library's own. */
#define _GNU_SOURCE
#include "transport_slash.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static int slash_open(const char *address, void **opened, struct lora_failure *failure) {
    struct slash_handle *handle;
    if (!address || !address[0] || strlen(address) >= sizeof handle->bdf)
        return lora_fail(failure, LORA_ERR_URI, "slash:%.40s: expected slash:BDF, as 0000:21:00.0",
                         address ? address : "");
    handle = calloc(1, sizeof *handle);
    if (!handle) return lora_fail(failure, LORA_ERR_MEMORY, "slash:%s: no host memory", address);
    snprintf(handle->bdf, sizeof handle->bdf, "%s", address);
    int status = slash_board_open(handle, failure);
    if (status) free(handle);
    else *opened = handle;
    return status;
}

static void slash_close(void *opened) {
    struct slash_handle *handle = opened;
    if (!handle) return;
    slash_board_close(handle);
    free(handle);
}

/* The serial is the overlay's to tell. */
static int slash_info(void *opened, struct lora_board_info *info, struct lora_failure *failure) {
    struct slash_handle *handle = opened;
    *info = (struct lora_board_info){.size = sizeof *info,
                                     .board_kind = LORA_BOARD_V80,
                                     .bank_count = SLASH_BANKS,
                                     .name = "v80"};
    for (uint32_t bank = 0; bank < SLASH_HBM_BANKS; bank++)
        info->bank_bytes[bank] = SLASH_HBM_BYTES;
    info->bank_bytes[SLASH_DDR_BANK] = SLASH_DDR_BYTES;
    snprintf(info->address, sizeof info->address, "%s", handle->bdf);
    if (!handle->programmed) return LORA_OK;
    return slash_register_read(handle, LORA_BLOCK_CONTROL, LORA_REG_IDENTITY_SERIAL, &info->serial,
                               failure);
}

static int slash_submit(void *opened, const uint32_t arguments[11], struct lora_failure *failure) {
    struct slash_handle *handle = opened;
    return lora_doorbell_ring(&handle->bell, &lora_transport_slash, opened, arguments, failure);
}

static void slash_accesses(void *opened, struct lora_accesses *found) {
    lora_accesses_of(&((struct slash_handle *)opened)->counts, found);
}

static int slash_poll_register(void *opened, uint32_t offset, uint32_t *value,
                               struct lora_failure *failure) {
    return slash_register_read(opened, LORA_BLOCK_CONTROL, offset, value, failure);
}

static int slash_poll(void *opened, uint32_t *run_state, struct lora_failure *failure) {
    struct slash_handle *handle = opened;
    uint32_t control = 0;
    int status = slash_register_read(opened, LORA_BLOCK_CONTROL, LORA_REG_AP_CTRL, &control,
                                     failure);
    if (!status) *run_state = lora_doorbell_polled(&handle->bell, control);
    return status;
}

/* Where waits pass: a daemon that has died is told at once, not after the wait's timeout. */
static int slash_sleep(void *opened, uint32_t microseconds, struct lora_failure *failure) {
    const struct slash_handle *handle = opened;
    if (!slash_alive(&handle->wire))
        return lora_fail(failure, LORA_ERR_TRANSPORT,
                         "board %s: vrtd at %.100s is gone; start it and open the boards again",
                         handle->bdf, slash_socket_path());
    struct timespec time = {microseconds / 1000000, (long)(microseconds % 1000000) * 1000};
    nanosleep(&time, NULL);
    return LORA_OK;
}

const struct lora_transport lora_transport_slash = {
    .size = sizeof(struct lora_transport),
    .scheme = "slash",
    .real_time = 1,
    .open = slash_open,
    .close = slash_close,
    .info = slash_info,
    .program = slash_program,
    .reserve = slash_reserve,
    .release = slash_release,
    .register_read = slash_register_read,
    .register_write = slash_register_write,
    .memory_read = slash_memory_read,
    .memory_write = slash_memory_write,
    .submit = slash_submit,
    .poll = slash_poll,
    .poll_register = slash_poll_register,
    .sleep = slash_sleep,
    .reset = slash_reset,
    .accesses = slash_accesses,
    .ecc = NULL, /* the runtime tells nothing of it */
};
