/* Every call into the runtime, with a time limit. A board whose call has not returned is stuck: the
 * runtime holds locks for it, so nothing more is asked of it in this process. Limits of a dead
 * runtime do not add up over its boards: see transport_xrt_watchdog.h. */
#define _GNU_SOURCE
#include "transport_xrt_calls.h"

#include <errno.h>
#include <string.h>

#include "bounded.h"
#include "transport_xrt_watchdog.h"

/* Of seconds, not of what a call takes: a loaded computer must not look like a stuck board. */
#define REGISTER_MS 5000u
#define OPEN_MS 15000u
#define OBJECT_MS 30000u   /* a buffer's host copy of up to 16 GiB is pinned */
#define LOAD_MS 120000u    /* a container over PCIe, or the start of the software emulation */
#define TRANSFER_MS 10000u /* and what the bytes take */
#define SLOWEST_BYTES_PER_MS 50000u

static const char *const names[] = {"open",
                                    "open a BDF",
                                    "close",
                                    "load",
                                    "uuid",
                                    "shim",
                                    "allocate",
                                    "free",
                                    "map",
                                    "address",
                                    "move bytes",
                                    "open a kernel",
                                    "close a kernel",
                                    "read a register",
                                    "write a register",
                                    "find a core",
                                    "open a core",
                                    "close a core",
                                    "read a core's register",
                                    "write a core's register"};

static const uint32_t limits_ms[] = {
    [XRT_OPEN] = OPEN_MS,           [XRT_OPEN_BDF] = OPEN_MS,       [XRT_CLOSE] = OBJECT_MS,
    [XRT_LOAD] = LOAD_MS,           [XRT_UUID] = OBJECT_MS,         [XRT_SHIM] = OBJECT_MS,
    [XRT_ALLOCATE] = OBJECT_MS,     [XRT_FREE] = OBJECT_MS,         [XRT_MAP] = OBJECT_MS,
    [XRT_ADDRESS] = OBJECT_MS,      [XRT_SYNC] = TRANSFER_MS,       [XRT_OPEN_KERNEL] = OBJECT_MS,
    [XRT_CLOSE_KERNEL] = OBJECT_MS, [XRT_READ] = REGISTER_MS,       [XRT_WRITE] = REGISTER_MS,
    [XRT_FIND_CORE] = OBJECT_MS,    [XRT_OPEN_CORE] = OBJECT_MS,    [XRT_CLOSE_CORE] = OBJECT_MS,
    [XRT_READ_CORE] = REGISTER_MS,  [XRT_WRITE_CORE] = REGISTER_MS,
};

static void act(void *given) {
    struct xrt_call *call = given;
    const struct xrt_api *api = call->api;
    const struct xrt_ip_api *ip = call->ip;
    uint32_t index = (uint32_t)call->index;
    switch (call->what) {
    case XRT_OPEN: call->found = api->device_open(index); break;
    case XRT_OPEN_BDF: call->found = api->device_open_bdf(call->text); break;
    case XRT_CLOSE: call->result = api->device_close(call->object); break;
    case XRT_LOAD: call->result = api->device_load(call->object, call->text); break;
    case XRT_UUID: call->result = api->device_uuid(call->object, call->uuid); break;
    case XRT_SHIM: call->found = api->device_shim(call->object); break;
    case XRT_ALLOCATE: call->found = api->bo_alloc(call->object, call->bytes, 0, index); break;
    case XRT_FREE: call->result = api->bo_free(call->object); break;
    case XRT_MAP: call->found = api->bo_map(call->object); break;
    case XRT_ADDRESS: call->address = api->bo_address(call->object); break;
    case XRT_SYNC:
        call->result = api->bo_sync(call->object, (int)index, call->bytes, call->address);
        break;
    case XRT_OPEN_KERNEL:
        call->found = api->kernel_open(call->object, call->uuid, call->text);
        break;
    case XRT_CLOSE_KERNEL: call->result = api->kernel_close(call->object); break;
    case XRT_READ: call->result = api->kernel_read(call->object, call->offset, &call->value); break;
    case XRT_WRITE:
        call->result = api->kernel_write(call->object, call->offset, call->value);
        break;
    case XRT_FIND_CORE: call->result = ip->index(call->object, call->text); break;
    case XRT_OPEN_CORE: call->result = ip->open(call->object, call->uuid, index, 0); break;
    case XRT_CLOSE_CORE: call->result = ip->close(call->object, call->uuid, index); break;
    case XRT_READ_CORE:
        call->result = ip->read(call->object, index, call->offset, &call->value);
        break;
    case XRT_WRITE_CORE:
        call->result = ip->write(call->object, index, call->offset, call->value);
        break;
    }
    call->error = errno;
}

_Static_assert(sizeof(struct xrt_call) <= LORA_BOUNDED_BYTES, "a helper holds a call");

static void come_back(void *given) { xrt_place_back(((struct xrt_call *)given)->place); }

static const struct lora_bounded_acts acts = {act, come_back};

static struct lora_bounded_call *probe(struct xrt_handle *board, void *kernel, uint32_t limit_ms,
                                       struct xrt_call *call) {
    struct lora_failure ignored;
    *call = (struct xrt_call){.what = XRT_READ,
                              .object = kernel,
                              .offset = LORA_REG_IDENTITY_ABI,
                              .place = board->watch.place,
                              .api = xrt_api(lora_failure_begin(NULL, &ignored))};
    return lora_bounded_begin(&acts, call, sizeof *call, limit_ms);
}

/* The card, or what emulates it, has to answer these. */
static int is_answered(enum xrt_what what) {
    return what == XRT_READ || what == XRT_WRITE || what == XRT_SYNC || what == XRT_READ_CORE ||
           what == XRT_WRITE_CORE;
}

int xrt_call(struct xrt_handle *board, struct xrt_call *call) {
    struct lora_failure ignored, *unused = lora_failure_begin(NULL, &ignored);
    call->api = xrt_api(unused);
    if (call->what >= XRT_FIND_CORE) call->ip = xrt_ip_api(unused);
    call->result = -1;
    if (!call->api || (call->what >= XRT_FIND_CORE && !call->ip)) return -1;
    uint32_t limit = limits_ms[call->what];
    if (call->what == XRT_SYNC) limit += (uint32_t)(call->bytes / SLOWEST_BYTES_PER_MS);
    if (limit > REGISTER_MS) xrt_probe_silent(board, probe, REGISTER_MS);
    if (atomic_load(&board->stuck)) return -1;
    call->place = board->watch.place;
    xrt_enter(board, call);
    struct lora_bounded_call *begun = lora_bounded_begin(&acts, call, sizeof *call, limit);
    int returned = lora_bounded_end(begun, call, sizeof *call);
    if (!returned) {
        xrt_give_up(board, call->what, limit); /* before it is left: a probe would ask it again */
        call->found = NULL;
        call->result = -1;
    }
    xrt_leave(board, call, returned && is_answered(call->what));
    if (returned) errno = call->error;
    return call->result;
}

int xrt_check_stuck(struct xrt_handle *board, struct lora_failure *failure) {
    unsigned stuck = atomic_load(&board->stuck);
    if (!stuck) return LORA_OK;
    return lora_fail(
        failure, LORA_ERR_TRANSPORT,
        "xrt:%.64s: the runtime has not returned from '%s' within %u s: its driver or "
        "the card is gone; start this program again, and reset the card if it stays so",
        board->address, names[(stuck & 0xff) - 1], (stuck >> 8) / 1000);
}
