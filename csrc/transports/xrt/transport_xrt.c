/* The transport of Alveo boards: "xrt:INDEX" or "xrt:BDF". lora_ctrl is driven through its
 * registers, not through the runtime's runs: a run of the runtime's cannot be cancelled, a register
 * can always be read. */
#define _POSIX_C_SOURCE 200809L
#include "transport_xrt_watchdog.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define GONE 0xffffffffu /* what the bus answers for a card that is not there any more */

static struct xrt_handle *open_handles;

static int is_index(const char *address) {
    size_t digits = strspn(address, "0123456789");
    return digits > 0 && digits < 5 && !address[digits];
}

static int open_device(struct xrt_handle *board, struct lora_failure *failure) {
    if (!xrt_api(failure)) return LORA_ERR_TRANSPORT;
    const char *address = board->address;
    struct xrt_signals signals;
    /* An earlier handle's call may still be in the runtime, which would keep this one waiting. */
    unsigned stuck = xrt_place_stuck(board->watch.place);
    struct xrt_call open = {.what = is_index(address) ? XRT_OPEN : XRT_OPEN_BDF,
                            .index = strtoul(address, NULL, 10)};
    memcpy(open.text, address, sizeof board->address);
    if (stuck) atomic_store(&board->stuck, stuck);
    xrt_signals_keep(&signals);
    xrt_call(board, &open);
    xrt_signals_put_back(&signals);
    board->device = open.found;
    int status = xrt_check_stuck(board, failure);
    if (status) return status;
    if (!board->device)
        return lora_fail(failure, LORA_ERR_TRANSPORT,
                         "xrt:%s: the runtime finds no such board; lora list shows those that it "
                         "finds, lora doctor what is missing",
                         address);
    /* The emulation makes up a board of its own for an index too high. */
    if (is_index(address) && strtoul(address, NULL, 10) >= xrt_board_count()) {
        xrt_call(board, &(struct xrt_call){.what = XRT_CLOSE, .object = board->device});
        board->device = NULL;
        return lora_fail(failure, LORA_ERR_TRANSPORT,
                         "xrt:%s: boards found: %u; expected an index below that; lora list shows "
                         "them",
                         address, xrt_board_count());
    }
    for (struct xrt_handle *other = open_handles; other; other = other->next)
        if (other != board && other->device == board->device) {
            board->device = NULL; /* the other one's: closing it would close both */
            return lora_fail(failure, LORA_ERR_URI,
                             "xrt:%s and xrt:%s are one board; name each board once", address,
                             other->address);
        }
    return LORA_OK;
}

/* With the lock held. The runtime gives the same handle for one index twice. */
static int open_locked(struct xrt_handle *board, struct lora_failure *failure) {
    for (struct xrt_handle *other = open_handles; other; other = other->next)
        if (!strcmp(other->address, board->address))
            return lora_fail(failure, LORA_ERR_URI,
                             "xrt:%s: open in this process already; name each board once",
                             board->address);
    return open_device(board, failure);
}

static void forget(struct xrt_handle *board) {
    xrt_unwatch(board);
    pthread_mutex_destroy(&board->sync);
    free(board);
}

static int xrt_open(const char *address, void **handle, struct lora_failure *failure) {
    if (!address || !address[0] || strlen(address) >= sizeof((struct xrt_handle *)0)->address)
        return lora_fail(failure, LORA_ERR_URI,
                         "xrt:%.64s: an index (xrt:0) or a BDF (xrt:0000:3b:00.1) expected",
                         address ? address : "");
    if (!xrt_api(failure)) return LORA_ERR_TRANSPORT; /* before the runtime can end the process */
    struct xrt_handle *board = calloc(1, sizeof *board);
    if (!board) return lora_fail(failure, LORA_ERR_MEMORY, "xrt:%s: no host memory", address);
    memcpy(board->address, address, strlen(address) + 1);
    board->watch.place = xrt_place_of(board->address);
    if (!board->watch.place) {
        free(board);
        return lora_fail(failure, LORA_ERR_MEMORY, "xrt:%s: no host memory", address);
    }
    for (uint32_t port = 0; port < LORA_PORTS; port++) board->link_index[port] = -1;
    pthread_mutex_init(&board->sync, NULL);
    xrt_watch(board);
    xrt_lock();
    int status = open_locked(board, failure);
    if (!status) {
        board->next = open_handles;
        open_handles = board;
    }
    xrt_unlock();
    if (status) {
        forget(board);
        return status;
    }
    *handle = board;
    return LORA_OK;
}

static void close_device(struct xrt_handle *board) {
    xrt_unload(board);
    if (board->device)
        xrt_call(board, &(struct xrt_call){.what = XRT_CLOSE, .object = board->device});
    board->device = board->shim = NULL;
}

static void xrt_close(void *handle) {
    struct xrt_handle *board = handle;
    if (!board) return;
    xrt_lock();
    struct xrt_handle **at = &open_handles;
    while (*at && *at != board) at = &(*at)->next;
    if (*at) *at = board->next;
    close_device(board);
    xrt_unlock();
    forget(board);
}

/* The first overlay says which board it is: until then a kind of 0 and no banks. That the
 * container has all of the board's banks is checked when it is loaded. */
static int xrt_info(void *handle, struct lora_board_info *info, struct lora_failure *failure) {
    const struct xrt_handle *board = handle;
    (void)failure;
    *info = (struct lora_board_info){.size = sizeof *info, .serial = board->serial};
    memcpy(info->address, board->address, sizeof info->address);
    const struct xrt_facts *facts = board->facts;
    if (!facts) return LORA_OK;
    info->board_kind = facts->kind;
    info->bank_count = xrt_bank_count(facts);
    snprintf(info->name, sizeof info->name, "%s", facts->name);
    for (uint32_t bank = 0; bank < info->bank_count; bank++)
        info->bank_bytes[bank] = xrt_bank_usable(facts, bank);
    return LORA_OK;
}

static struct xrt_call register_call(const struct xrt_handle *board, uint32_t block,
                                     uint32_t offset, int write) {
    if (block == LORA_BLOCK_CONTROL)
        return (struct xrt_call){
            .what = write ? XRT_WRITE : XRT_READ, .object = board->kernel, .offset = offset};
    return (struct xrt_call){.what = write ? XRT_WRITE_CORE : XRT_READ_CORE,
                             .object = board->shim,
                             .index = (uint64_t)board->link_index[block - LORA_BLOCK_LINK0],
                             .offset = offset};
}

static int fail_register(struct xrt_handle *board, const struct xrt_call *call, uint32_t block,
                         const char *verb, struct lora_failure *failure) {
    int status = xrt_check_stuck(board, failure);
    if (status) return status;
    return lora_fail(failure, LORA_ERR_TRANSPORT,
                     "register block %u offset 0x%x: the runtime cannot %s it (%d); reset the "
                     "board, then open it again",
                     block, call->offset, verb, call->result);
}

static int check_block(const struct xrt_handle *board, uint32_t block,
                       struct lora_failure *failure) {
    if (block >= LORA_BLOCKS)
        return lora_fail(failure, LORA_ERR_ARGUMENT, "register block %u, 0..%d expected", block,
                         LORA_BLOCKS - 1);
    if (!board->kernel)
        return lora_fail(failure, LORA_ERR_TRANSPORT,
                         "no overlay is loaded, so no register answers");
    return LORA_OK;
}

static int xrt_register_read(void *handle, uint32_t block, uint32_t offset, uint32_t *value,
                             struct lora_failure *failure) {
    struct xrt_handle *board = handle;
    int status = check_block(board, block, failure);
    if (status) return status;
    lora_count(&board->counts.register_reads);
    struct xrt_call call = register_call(board, block, offset, 0);
    int result = xrt_call(board, &call);
    if (result) return fail_register(board, &call, block, "read", failure);
    *value = call.value;
    return LORA_OK;
}

static int xrt_register_write(void *handle, uint32_t block, uint32_t offset, uint32_t value,
                              struct lora_failure *failure) {
    struct xrt_handle *board = handle;
    int status = check_block(board, block, failure);
    if (status) return status;
    lora_count(&board->counts.register_writes);
    struct xrt_call call = register_call(board, block, offset, 1);
    call.value = value;
    return xrt_call(board, &call) ? fail_register(board, &call, block, "write", failure) : LORA_OK;
}

static int read_control(void *handle, uint32_t *control, struct lora_failure *failure) {
    int status = xrt_register_read(handle, LORA_BLOCK_CONTROL, LORA_REG_AP_CTRL, control, failure);
    if (status || *control != GONE) return status;
    return lora_fail_gone(failure, "AP_CTRL", *control);
}

static int xrt_submit(void *handle, const uint32_t arguments[11], struct lora_failure *failure) {
    struct xrt_handle *board = handle;
    return lora_doorbell_ring(&board->bell, &lora_transport_xrt, handle, arguments, failure);
}

static int xrt_poll(void *handle, uint32_t *run_state, struct lora_failure *failure) {
    struct xrt_handle *board = handle;
    uint32_t control = 0;
    int status = read_control(handle, &control, failure);
    if (!status) *run_state = lora_doorbell_polled(&board->bell, control);
    return status;
}

static void xrt_accesses(void *handle, struct lora_accesses *found) {
    lora_accesses_of(&((struct xrt_handle *)handle)->counts, found);
}

static int xrt_poll_register(void *handle, uint32_t offset, uint32_t *value,
                             struct lora_failure *failure) {
    return xrt_register_read(handle, LORA_BLOCK_CONTROL, offset, value, failure);
}

static int xrt_sleep(void *handle, uint32_t microseconds, struct lora_failure *failure) {
    struct timespec left = {microseconds / 1000000, (long)(microseconds % 1000000) * 1000};
    (void)handle;
    (void)failure;
    while (nanosleep(&left, &left)) {
    } /* a signal cuts it short: the rest, too */
    return LORA_OK;
}

/* There is no call that resets one card in every version: closing the device ends all that it
 * holds, and the next load programs it anew. */
static int xrt_reset(void *handle, struct lora_failure *failure) {
    struct xrt_handle *board = handle;
    int status = xrt_check_stuck(board, failure);
    if (status) return status;
    xrt_lock();
    close_device(board);
    status = xrt_check_stuck(board, failure);
    if (!status) status = open_device(board, failure);
    xrt_unlock();
    return status;
}

const struct lora_transport lora_transport_xrt = {
    .size = sizeof(struct lora_transport),
    .scheme = "xrt",
    .real_time = 1,
    .open = xrt_open,
    .close = xrt_close,
    .info = xrt_info,
    .program = xrt_program,
    .reserve = xrt_reserve,
    .release = xrt_release,
    .register_read = xrt_register_read,
    .register_write = xrt_register_write,
    .memory_read = xrt_memory_read,
    .memory_write = xrt_memory_write,
    .submit = xrt_submit,
    .poll = xrt_poll,
    .poll_register = xrt_poll_register,
    .sleep = xrt_sleep,
    .reset = xrt_reset,
    .accesses = xrt_accesses,
    .ecc = NULL, /* the runtime tells nothing of it */
};
