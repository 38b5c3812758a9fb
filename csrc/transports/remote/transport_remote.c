/* Boards behind a daemon: the calls that are one request. */
#include "transport_remote.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

static void discard(struct remote_handle *remote) {
    wire_tls_free(remote->tls);
    pthread_mutex_destroy(&remote->lock);
    free(remote->results);
    free(remote);
}

int remote_open(const char *scheme, const char *address, const struct wire_address *found,
                void **handle, struct lora_failure *failure) {
    struct remote_handle *remote = calloc(1, sizeof *remote);
    if (remote) remote->results = malloc(WIRE_RANGES_BYTES);
    if (!remote || !remote->results) {
        free(remote);
        return lora_fail(failure, LORA_ERR_MEMORY, "%s:%.100s: no host memory", scheme, address);
    }
    pthread_mutex_init(&remote->lock, NULL);
    remote->scheme = scheme;
    remote->address = *found;
    remote->channel.socket = -1;
    snprintf(remote->uri, sizeof remote->uri, "%s", address);
    int status = remote_connect(remote, failure);
    if (status) discard(remote);
    else *handle = remote;
    return status;
}

void remote_close(void *handle) {
    struct remote_handle *remote = handle;
    if (!remote) return;
    /* Once the daemon has closed its end too, the board is free for whoever comes next. */
    if (remote->channel.socket >= 0 && !wire_flush(&remote->channel) &&
        !shutdown(remote->channel.socket, SHUT_WR)) {
        struct wire_message rest;
        uint64_t end = wire_now_us() + REMOTE_CONNECT_US, now;
        while ((now = wire_now_us()) < end &&
               wire_get(&remote->channel, &rest, end - now) == WIRE_MESSAGE) {
        }
    }
    remote_disconnect(remote);
    discard(remote);
}

/* One request under the lock. */
static int ask(struct remote_handle *remote, const struct remote_call *call,
               struct lora_failure *failure) {
    pthread_mutex_lock(&remote->lock);
    int status = remote_call(remote, call, failure);
    pthread_mutex_unlock(&remote->lock);
    return status;
}

int remote_info(void *handle, struct lora_board_info *info, struct lora_failure *failure) {
    struct remote_handle *remote = handle;
    const struct remote_call call = {
        .kind = WIRE_INFO, .answer = info, .answer_bytes = sizeof *info};
    int status = ask(remote, &call, failure);
    if (status) return status;
    info->size = sizeof *info;
    info->name[sizeof info->name - 1] = '\0';
    snprintf(info->address, sizeof info->address, "%.63s", remote->uri);
    if (info->bank_count <= sizeof info->bank_bytes / sizeof info->bank_bytes[0]) return LORA_OK;
    return lora_fail(failure, LORA_ERR_TRANSPORT, "%s:%.100s: %u banks found, at most %zu expected",
                     remote->scheme, remote->uri, info->bank_count,
                     sizeof info->bank_bytes / sizeof info->bank_bytes[0]);
}

int remote_reserve(void *handle, uint32_t bank, uint64_t offset, uint64_t bytes, uint64_t *base,
                   struct lora_failure *failure) {
    const struct wire_range range = {.bank = bank, .offset = offset, .bytes = bytes};
    const struct wire_part part = {&range, sizeof range};
    const struct remote_call call = {.kind = WIRE_RESERVE,
                                     .parts = &part,
                                     .part_count = 1,
                                     .answer = base,
                                     .answer_bytes = sizeof *base,
                                     .limit_us = REMOTE_SLOW_US};
    return ask(handle, &call, failure);
}

int remote_release(void *handle, uint32_t bank, uint64_t offset, struct lora_failure *failure) {
    const struct wire_range range = {.bank = bank, .offset = offset};
    const struct wire_part part = {&range, sizeof range};
    const struct remote_call call = {.kind = WIRE_RELEASE, .parts = &part, .part_count = 1};
    return ask(handle, &call, failure);
}

int remote_register_read(void *handle, uint32_t block, uint32_t offset, uint32_t *value,
                         struct lora_failure *failure) {
    struct remote_handle *remote = handle;
    const struct wire_register asked = {.block = block, .offset = offset};
    const struct wire_part part = {&asked, sizeof asked};
    const struct remote_call call = {.kind = WIRE_REGISTER_READ,
                                     .parts = &part,
                                     .part_count = 1,
                                     .answer = value,
                                     .answer_bytes = sizeof *value};
    lora_count(&remote->counts.register_reads);
    return ask(remote, &call, failure);
}

/* It leaves at once: what it starts begins now. */
int remote_register_write(void *handle, uint32_t block, uint32_t offset, uint32_t value,
                          struct lora_failure *failure) {
    struct remote_handle *remote = handle;
    const struct wire_register asked = {.block = block, .offset = offset, .value = value};
    const struct wire_part part = {&asked, sizeof asked};
    lora_count(&remote->counts.register_writes);
    pthread_mutex_lock(&remote->lock);
    int status = remote_send(remote, WIRE_REGISTER_WRITE, &part, 1, failure);
    if (!status && wire_flush(&remote->channel)) status = remote_gone(remote, failure);
    pthread_mutex_unlock(&remote->lock);
    return status;
}

int remote_poll_register(void *handle, uint32_t offset, uint32_t *value,
                         struct lora_failure *failure) {
    struct remote_handle *remote = handle;
    const struct wire_part part = {&offset, sizeof offset};
    const struct remote_call call = {.kind = WIRE_POLL_REGISTER,
                                     .parts = &part,
                                     .part_count = 1,
                                     .answer = value,
                                     .answer_bytes = sizeof *value};
    lora_count(&remote->counts.register_reads);
    return ask(remote, &call, failure);
}

/* A connection that is gone may come back: the daemon was started again, the cable is in again. */
int remote_reset(void *handle, struct lora_failure *failure) {
    struct remote_handle *remote = handle;
    const struct remote_call call = {.kind = WIRE_RESET, .limit_us = REMOTE_SLOW_US};
    pthread_mutex_lock(&remote->lock);
    int status = LORA_OK;
    if (remote->channel.socket < 0) status = remote_connect(remote, failure);
    if (!status) status = remote_call(remote, &call, failure);
    remote_forget_run(remote);
    remote->noted = (struct remote_ranges){0};
    pthread_mutex_unlock(&remote->lock);
    return status;
}

void remote_accesses(void *handle, struct lora_accesses *found) {
    lora_accesses_of(&((struct remote_handle *)handle)->counts, found);
}
