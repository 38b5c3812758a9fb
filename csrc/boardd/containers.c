#define _GNU_SOURCE
#include "boardd.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int begin(struct boardd_session *session) {
    snprintf(session->container_path, sizeof session->container_path, "%s/container-XXXXXX",
             session->boardd->folder);
    session->container = mkostemp(session->container_path, O_CLOEXEC);
    return session->container >= 0;
}

int boardd_container_add(struct boardd_session *session, const uint8_t *data, size_t bytes,
                         struct lora_failure *failure) {
    if (bytes > BOARDD_CONTAINER - session->container_bytes)
        return lora_fail(failure, LORA_ERR_OVERLAY, "a container of more than %llu MiB",
                         BOARDD_CONTAINER >> 20);
    if (session->container < 0 && !begin(session))
        return lora_fail(failure, LORA_ERR_OVERLAY, "the daemon has no place for a container");
    for (size_t done = 0; done < bytes;) {
        ssize_t put = write(session->container, data + done, bytes - done);
        if (put <= 0)
            return lora_fail(failure, LORA_ERR_OVERLAY, "the daemon has no place for a container");
        done += (size_t)put;
    }
    session->container_bytes += bytes;
    return LORA_OK;
}

void boardd_container_drop(struct boardd_session *session) {
    if (session->container >= 0) {
        close(session->container);
        unlink(session->container_path);
    }
    session->container = -1;
    session->container_bytes = 0;
}
