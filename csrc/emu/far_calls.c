/* The calls of who carries frames between two processes' boards. */
#include "far.h"

#include <string.h>

#include "lora/emu.h"

/* The port with its cluster locked; NULL: there is none. */
static struct emu_port *acquire(const struct lora_emu_end *at) {
    struct emu_cluster *cluster = emu_cluster_acquire(at->cluster);
    if (!cluster) return NULL;
    if (at->board < cluster->boards && at->port < LORA_PORTS)
        return &cluster->board[at->board].ports[at->port];
    emu_cluster_release(cluster);
    return NULL;
}

static int release(struct emu_port *near, int status) {
    emu_cluster_release(near->board->cluster);
    return status;
}

static struct emu_port *end_of(struct emu_port *near) {
    struct emu_port *end = near->far ? emu_far_end(near->far) : NULL;
    return end && end->peer == near && near->peer == end ? end : NULL;
}

int lora_emu_far_join(const struct lora_emu_end *at, void (*notify)(void *context), void *context) {
    struct emu_port *near = acquire(at);
    if (!near) return LORA_ERR_ARGUMENT;
    if (near->peer) return release(near, LORA_ERR_ARGUMENT);
    if (!near->far) near->far = emu_far_new(near);
    if (!near->far) return release(near, LORA_ERR_MEMORY);
    struct emu_port *end = emu_far_end(near->far);
    near->far->notify = notify;
    near->far->context = context;
    near->board->cluster->has_far = true;
    emu_port_power_off(end);
    end->peer = near;
    near->peer = end;
    return release(near, LORA_OK);
}

void lora_emu_far_part(const struct lora_emu_end *at) {
    struct emu_port *near = acquire(at);
    if (!near) return;
    struct emu_port *end = end_of(near);
    if (end) {
        end->reset_done = false; /* the channel goes down, as with a cable that is pulled */
        emu_port_refresh(near);
        near->peer = end->peer = NULL;
        emu_port_flush(end);
    }
    if (near->far) near->far->notify = NULL;
    release(near, LORA_OK);
}

int lora_emu_far_take(const struct lora_emu_end *at, uint8_t *data, uint32_t *bytes,
                      uint32_t *ready) {
    struct emu_port *near = acquire(at);
    *bytes = *ready = 0;
    if (!near) return LORA_ERR_ARGUMENT;
    struct emu_port *end = end_of(near);
    if (!end) return release(near, LORA_ERR_ARGUMENT);
    const struct lora_frame *frame = data ? emu_port_head(end) : NULL;
    if (frame) {
        *bytes = (uint32_t)sizeof *frame + frame->length + 4;
        memcpy(data, frame, *bytes);
        emu_port_pop(end);
    }
    *ready = emu_port_is_ready(near);
    return release(near, LORA_OK);
}

int lora_emu_far_ready(const struct lora_emu_end *at, uint32_t ready) {
    struct emu_port *near = acquire(at);
    if (!near) return LORA_ERR_ARGUMENT;
    struct emu_port *end = end_of(near);
    if (!end) return release(near, LORA_ERR_ARGUMENT);
    end->reset_done = ready != 0;
    if (!ready) emu_port_flush(end);
    emu_port_refresh(near);
    emu_wake(near->board);
    return release(near, LORA_OK);
}

static bool is_whole(const uint8_t *data, uint32_t bytes) {
    struct lora_frame frame;
    if (bytes < sizeof frame) return false;
    memcpy(&frame, data, sizeof frame);
    return frame.length <= LORA_FRAME_PAYLOAD && bytes == sizeof frame + frame.length + 4;
}

int lora_emu_far_put(const struct lora_emu_end *at, const uint8_t *data, uint32_t bytes,
                     uint32_t *taken) {
    *taken = 0;
    if (!is_whole(data, bytes)) return LORA_ERR_SIZE;
    struct emu_port *near = acquire(at);
    if (!near) return LORA_ERR_ARGUMENT;
    struct emu_port *end = end_of(near);
    if (!end) return release(near, LORA_ERR_ARGUMENT);
    struct lora_frame *slot = emu_port_claim(end, 0);
    *taken = slot || !end->up; /* without a channel it is lost, as on a cable */
    if (slot) {
        memcpy(slot, data, bytes);
        emu_port_commit(end);
    }
    return release(near, LORA_OK);
}
