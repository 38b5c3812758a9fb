/* Loading of a container, and what is opened with it: lora_ctrl and the link cores. */
#define _POSIX_C_SOURCE 200809L
#include "transport_xrt_calls.h"

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

int xrt_load(struct xrt_handle *board, const char *path, struct lora_failure *failure) {
    char found_text[33], expected_text[33];
    struct xrt_signals signals;
    struct xrt_call load = {.what = XRT_LOAD, .object = board->device};
    struct xrt_call uuid = {.what = XRT_UUID, .object = board->device};
    if (strlen(path) >= sizeof load.text)
        return lora_fail(failure, LORA_ERR_OVERLAY,
                         "container %.80s...: a path of %zu characters, at most %zu expected", path,
                         strlen(path), sizeof load.text - 1);
    memcpy(load.text, path, strlen(path) + 1);
    xrt_signals_keep(&signals);
    int result = xrt_call(board, &load);
    xrt_signals_put_back(&signals);
    int status = xrt_check_stuck(board, failure);
    if (status) return status;
    if (result)
        return lora_fail(failure, LORA_ERR_OVERLAY,
                         "container %.100s: the runtime refuses it (%d): it is for another shell, "
                         "or another process holds the board; lora doctor compares both",
                         path, result);
    result = xrt_call(board, &uuid);
    if (!result && !memcmp(uuid.uuid, board->container.uuid, sizeof uuid.uuid)) return LORA_OK;
    status = xrt_check_stuck(board, failure);
    if (status) return status;
    spell(uuid.uuid, found_text);
    spell(board->container.uuid, expected_text);
    return lora_fail(failure, LORA_ERR_IDENTITY,
                     "container %.80s: uuid %s found on the board after loading, %s expected", path,
                     result ? "none" : found_text, expected_text);
}

static int open_control(struct xrt_handle *board, struct lora_failure *failure) {
    char kernel[XRT_NAME];
    struct xrt_call open = {.what = XRT_OPEN_KERNEL, .object = board->device};
    const char *unit = board->container.unit[LORA_BLOCK_CONTROL];
    const char *colon = strchr(unit, ':');
    snprintf(kernel, sizeof kernel, "%.*s", (int)(colon - unit), unit);
    snprintf(open.text, sizeof open.text, "%s:{%s}", kernel, colon + 1);
    memcpy(open.uuid, board->container.uuid, sizeof open.uuid);
    xrt_call(board, &open);
    board->kernel = open.found;
    if (board->kernel) return LORA_OK;
    int status = xrt_check_stuck(board, failure);
    if (status) return status;
    return lora_fail(failure, LORA_ERR_TRANSPORT,
                     "kernel %s: cannot be opened for this process alone; another process may hold "
                     "the board",
                     open.text);
}

/* The link cores have no control protocol, so the kernel interface refuses them. */
int xrt_open_core(struct xrt_handle *board, const char *name) {
    struct xrt_call call = {.what = XRT_FIND_CORE, .object = board->shim};
    if (!board->shim || strlen(name) >= sizeof call.text) return -1;
    memcpy(call.text, name, strlen(name) + 1);
    memcpy(call.uuid, board->container.uuid, sizeof call.uuid);
    int index = xrt_call(board, &call);
    if (index < 0) return -1;
    call.what = XRT_OPEN_CORE;
    call.index = (uint64_t)index;
    return xrt_call(board, &call) ? -1 : index;
}

void xrt_close_core(struct xrt_handle *board, uint32_t index) {
    struct xrt_call call = {.what = XRT_CLOSE_CORE, .object = board->shim, .index = index};
    memcpy(call.uuid, board->container.uuid, sizeof call.uuid);
    xrt_call(board, &call);
}

void xrt_find_shim(struct xrt_handle *board) {
    struct xrt_call call = {.what = XRT_SHIM, .object = board->device};
    xrt_call(board, &call);
    board->shim = call.found;
}

static int open_links(struct xrt_handle *board, struct lora_failure *failure) {
    if (!xrt_ip_api(failure)) return LORA_ERR_TRANSPORT;
    xrt_find_shim(board);
    for (uint32_t port = 0; port < LORA_PORTS; port++) {
        const char *unit = board->container.unit[LORA_BLOCK_LINK0 + port];
        int index = xrt_open_core(board, unit);
        if (index < 0) {
            int status = xrt_check_stuck(board, failure);
            if (status) return status;
            failure->port = (int32_t)port;
            return lora_fail(failure, LORA_ERR_TRANSPORT,
                             "link core %s: no context for this process alone; another process may "
                             "hold the board",
                             unit);
        }
        board->link_index[port] = index;
    }
    return LORA_OK;
}

void xrt_unload(struct xrt_handle *board) {
    xrt_release_all(board);
    for (uint32_t port = 0; port < LORA_PORTS; port++) {
        if (board->link_index[port] >= 0) xrt_close_core(board, (uint32_t)board->link_index[port]);
        board->link_index[port] = -1;
    }
    if (board->kernel)
        xrt_call(board, &(struct xrt_call){.what = XRT_CLOSE_KERNEL, .object = board->kernel});
    board->kernel = NULL;
    board->serial = 0;
    board->bell = (struct lora_doorbell){0};
}

static int read_serial(struct xrt_handle *board, struct lora_failure *failure) {
    struct xrt_call call = {
        .what = XRT_READ, .object = board->kernel, .offset = LORA_REG_IDENTITY_SERIAL};
    int result = xrt_call(board, &call);
    board->serial = call.value;
    if (!result) return LORA_OK;
    int status = xrt_check_stuck(board, failure);
    if (status) return status;
    return lora_fail(failure, LORA_ERR_TRANSPORT,
                     "lora_ctrl's registers cannot be read; load the overlay again");
}

int xrt_program(void *handle, const struct lora_program *program, struct lora_failure *failure) {
    struct xrt_handle *board = handle;
    if (!xrt_api(failure)) return LORA_ERR_TRANSPORT;
    if (!program->container)
        return lora_fail(failure, LORA_ERR_OVERLAY,
                         "the overlay's manifest names no container, an xclbin expected; make one "
                         "with 'lora overlay build' or name yours");
    struct xrt_container container;
    const struct xrt_facts *facts = xrt_facts_of(program->board_kind, failure);
    if (!facts) return LORA_ERR_OVERLAY;
    int status = xrt_container_read(program->container, facts, &container, failure);
    if (!status) status = check_bases(&container, program, failure);
    if (status) return status;
    xrt_lock();
    xrt_unload(board);
    board->container = container;
    board->facts = facts;
    status = xrt_load(board, program->container, failure);
    if (!status) status = open_control(board, failure);
    if (!status) status = open_links(board, failure);
    if (!status) status = read_serial(board, failure);
    if (status) xrt_unload(board);
    xrt_unlock();
    return status;
}
