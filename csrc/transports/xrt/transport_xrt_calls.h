/* Calls into the runtime with a time limit: arguments and results in one record, which a call that
 * never returns may keep. */
#ifndef LORA_TRANSPORT_XRT_CALLS_H
#define LORA_TRANSPORT_XRT_CALLS_H

#include "transport_xrt.h"

/* In the order of the table of names. */
enum xrt_what {
    XRT_OPEN,
    XRT_OPEN_BDF,
    XRT_CLOSE,
    XRT_LOAD,
    XRT_UUID,
    XRT_SHIM,
    XRT_ALLOCATE,
    XRT_FREE,
    XRT_MAP,
    XRT_ADDRESS,
    XRT_SYNC,
    XRT_OPEN_KERNEL,
    XRT_CLOSE_KERNEL,
    XRT_READ,
    XRT_WRITE,
    XRT_FIND_CORE, /* from here on through the driver's own library */
    XRT_OPEN_CORE,
    XRT_CLOSE_CORE,
    XRT_READ_CORE,
    XRT_WRITE_CORE
};

struct xrt_call {
    enum xrt_what what;
    int result, error; /* -1 also where nothing could be asked */
    void *object;      /* device, buffer object, kernel or shim */
    void *found;
    uint64_t index; /* of a board, memory or core; a transfer's direction */
    uint64_t bytes, address;
    uint32_t offset, value;
    unsigned char uuid[16];
    char text[320]; /* a path, BDF or name */
    const struct xrt_api *api;
    const struct xrt_ip_api *ip;
    struct xrt_place *place;
};

/* Returns call->result. */
int xrt_call(struct xrt_handle *board, struct xrt_call *call);

#endif
