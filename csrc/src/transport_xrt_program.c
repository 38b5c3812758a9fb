/* Loading of a container, and what is opened with it: lora_ctrl and the link cores. */
#define _POSIX_C_SOURCE 200809L
#include "transport_xrt.h"

#include <stdio.h>
#include <string.h>

static const char *const block_names[LORA_BLOCKS] = {"lora_ctrl", "aurora_flow_0", "aurora_flow_1"};

static int check_bases(const struct xrt_container *container, const struct lora_program *program,
                       struct lora_failure *failure) {
    for (uint32_t block = 0; block < LORA_BLOCKS; block++) {
        if (!container->unit[block][0])
            return lora_fail(failure, LORA_ERR_OVERLAY,
                             "container %.120s: no kernel %s found, one at 0x%llx expected",
                             program->container, block_names[block],
                             (unsigned long long)program->block_base[block]);
        if (container->unit_base[block] == program->block_base[block]) continue;
        return lora_fail(failure, LORA_ERR_OVERLAY,
                         "container %.100s: kernel %s at 0x%llx found, 0x%llx expected (manifest)",
                         program->container, block_names[block],
                         (unsigned long long)container->unit_base[block],
                         (unsigned long long)program->block_base[block]);
    }
    return LORA_OK;
}

static void spell(const unsigned char uuid[16], char text[33]) {
    for (int i = 0; i < 16; i++) snprintf(text + 2 * i, 3, "%02x", uuid[i]);
}

int xrt_load(struct xrt_handle *board, const struct xrt_api *api, const char *path,
             struct lora_failure *failure) {
    unsigned char found[16] = {0};
    char found_text[33], expected_text[33];
    struct xrt_signals signals;
    xrt_signals_keep(&signals);
    int result = api->device_load(board->device, path);
    xrt_signals_put_back(&signals);
    if (result)
        return lora_fail(failure, LORA_ERR_OVERLAY,
                         "container %.100s: the runtime refuses it (%d): it is for another shell, "
                         "or another process holds the board; lora doctor compares both",
                         path, result);
    result = api->device_uuid(board->device, found);
    if (!result && !memcmp(found, board->container.uuid, sizeof found)) return LORA_OK;
    spell(found, found_text);
    spell(board->container.uuid, expected_text);
    return lora_fail(failure, LORA_ERR_IDENTITY,
                     "container %.80s: uuid %s found on the board after loading, %s expected", path,
                     result ? "none" : found_text, expected_text);
}

static int open_control(struct xrt_handle *board, const struct xrt_api *api,
                        struct lora_failure *failure) {
    char name[XRT_NAME + 3], kernel[XRT_NAME];
    const char *unit = board->container.unit[LORA_BLOCK_CONTROL];
    const char *colon = strchr(unit, ':');
    snprintf(kernel, sizeof kernel, "%.*s", (int)(colon - unit), unit);
    snprintf(name, sizeof name, "%s:{%s}", kernel, colon + 1);
    board->kernel = api->kernel_open(board->device, board->container.uuid, name);
    if (board->kernel) return LORA_OK;
    return lora_fail(failure, LORA_ERR_TRANSPORT,
                     "kernel %s: cannot be opened for this process alone; another process may hold "
                     "the board",
                     name);
}

/* The link cores have no control protocol, so the kernel interface refuses them. */
static int open_links(struct xrt_handle *board, const struct xrt_api *api,
                      struct lora_failure *failure) {
    const struct xrt_ip_api *ip = xrt_ip_api(failure);
    if (!ip) return LORA_ERR_TRANSPORT;
    board->shim = api->device_shim(board->device);
    for (uint32_t port = 0; port < LORA_PORTS; port++) {
        const char *unit = board->container.unit[LORA_BLOCK_LINK0 + port];
        int index = board->shim ? ip->index(board->shim, unit) : -1;
        if (index < 0 || ip->open(board->shim, board->container.uuid, (unsigned int)index, 0)) {
            failure->port = (int32_t)port;
            return lora_fail(failure, LORA_ERR_TRANSPORT,
                             "link core %s: no context for this process alone (index %d); another "
                             "process may hold the board",
                             unit, index);
        }
        board->link_index[port] = index;
    }
    return LORA_OK;
}

void xrt_unload(struct xrt_handle *board) {
    struct lora_failure ignored;
    const struct xrt_api *api = xrt_api(lora_failure_begin(NULL, &ignored));
    const struct xrt_ip_api *ip = NULL;
    xrt_release_all(board);
    for (uint32_t port = 0; api && port < LORA_PORTS; port++) {
        if (board->link_index[port] >= 0 && (ip = xrt_ip_api(&ignored)))
            ip->close(board->shim, board->container.uuid, (unsigned int)board->link_index[port]);
        board->link_index[port] = -1;
    }
    if (api && board->kernel) api->kernel_close(board->kernel);
    board->kernel = NULL;
    board->serial = 0;
}

int xrt_program(void *handle, const struct lora_program *program, struct lora_failure *failure) {
    struct xrt_handle *board = handle;
    const struct xrt_api *api = xrt_api(failure);
    if (!api) return LORA_ERR_TRANSPORT;
    if (!program->container)
        return lora_fail(failure, LORA_ERR_OVERLAY,
                         "the overlay's manifest names no container, an xclbin expected; make one "
                         "with 'lora overlay build' or name yours");
    struct xrt_container container;
    int status = xrt_container_read(program->container, &container, failure);
    if (!status) status = check_bases(&container, program, failure);
    if (status) return status;
    xrt_lock();
    xrt_unload(board);
    board->container = container;
    status = xrt_load(board, api, program->container, failure);
    if (!status) status = open_control(board, api, failure);
    if (!status) status = open_links(board, api, failure);
    if (!status && api->kernel_read(board->kernel, LORA_REG_IDENTITY_SERIAL, &board->serial))
        status = lora_fail(failure, LORA_ERR_TRANSPORT,
                           "lora_ctrl's registers cannot be read; load the overlay again");
    if (status) xrt_unload(board);
    xrt_unlock();
    return status;
}
