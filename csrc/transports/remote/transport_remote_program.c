/* An overlay for a board behind a daemon: its container travels as bytes, since the daemon's host
 * has other files. */
#define _GNU_SOURCE
#include "transport_remote.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int cannot_read(const char *path, struct lora_failure *failure) {
    return lora_fail(failure, LORA_ERR_OVERLAY, "container %.150s cannot be read", path);
}

static int send_pieces(struct remote_handle *remote, int file, uint64_t bytes, const char *path,
                       struct lora_failure *failure) {
    uint8_t *piece = malloc(WIRE_DATA);
    int status = piece ? LORA_OK : lora_fail(failure, LORA_ERR_MEMORY, "no host memory");
    for (uint64_t done = 0; done < bytes && !status;) {
        ssize_t got = read(file, piece, WIRE_DATA);
        if (got <= 0) status = cannot_read(path, failure);
        const struct wire_part part = {piece, got > 0 ? (size_t)got : 0};
        if (!status) status = remote_send(remote, WIRE_CONTAINER, &part, 1, failure);
        done += part.bytes;
    }
    free(piece);
    return status;
}

static int send_container(struct remote_handle *remote, const char *path, uint64_t *bytes,
                          struct lora_failure *failure) {
    struct stat facts;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    int status = file < 0 || fstat(file, &facts) || facts.st_size <= 0 ? cannot_read(path, failure)
                                                                       : LORA_OK;
    if (!status) {
        *bytes = (uint64_t)facts.st_size;
        status = send_pieces(remote, file, *bytes, path, failure);
    }
    if (file >= 0) close(file);
    return status;
}

int remote_program(void *handle, const struct lora_program *program, struct lora_failure *failure) {
    struct remote_handle *remote = handle;
    struct wire_program request = {.board_kind = program->board_kind,
                                   .abi = program->abi,
                                   .onchip_bytes = program->onchip_bytes,
                                   .clock_hz = program->clock_hz};
    memcpy(request.block_base, program->block_base, sizeof request.block_base);
    if (program->image_bytes > WIRE_DATA)
        return lora_fail(failure, LORA_ERR_OVERLAY, "firmware image of %llu B, at most %u expected",
                         (unsigned long long)program->image_bytes, WIRE_DATA);
    pthread_mutex_lock(&remote->lock);
    int status = LORA_OK;
    if (program->container && strncmp(remote->address.board, "emu:", 4)) /* those load none */
        status = send_container(remote, program->container, &request.container_bytes, failure);
    const struct wire_part parts[2] = {{&request, sizeof request},
                                       {program->image, program->image_bytes}};
    const struct remote_call call = {
        .kind = WIRE_PROGRAM, .parts = parts, .part_count = 2, .limit_us = REMOTE_SLOW_US};
    if (!status) status = remote_call(remote, &call, failure);
    remote_forget_run(remote);
    pthread_mutex_unlock(&remote->lock);
    return status;
}
