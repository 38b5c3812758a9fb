/* An Aurora cable between emulated boards of two daemons: frames, and whether each end is ready.
 * No more frames are on their way than the other end has room for. */
#define _GNU_SOURCE
#include "boardd.h"

#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <unistd.h>

#define WINDOW 31 /* frames: those of a port's FIFO */
#define FRAME_BYTES (sizeof(struct lora_frame) + LORA_FRAME_PAYLOAD + 4)
#define TICK_US 2000 /* between two looks at whether this end is ready */
#define FULL_US 200  /* frames wait for room */
#define SLACK_NS 1000

struct boardd_cable {
    struct lora_emu_end at;
    int event; /* frames lie ready */
    atomic_bool told;
    uint32_t flying, taken; /* frames sent and not yet taken there; taken here and not yet told */
    uint32_t ready;         /* as last told */
    uint32_t first, count;  /* of `waiting` */
    uint32_t bytes[WINDOW];
    uint8_t waiting[WINDOW][FRAME_BYTES];
};

static void notify(void *context) {
    struct boardd_cable *cable = context;
    const uint64_t one = 1;
    if (atomic_exchange(&cable->told, true)) return;
    if (write(cable->event, &one, sizeof one) < 0) atomic_store(&cable->told, false);
}

struct boardd_cable *boardd_cable_begin(const struct boardd_board *board, uint32_t port,
                                        struct lora_failure *failure) {
    struct boardd_cable *cable = board->emulated ? calloc(1, sizeof *cable) : NULL;
    if (cable) {
        cable->at = (struct lora_emu_end){board->emulated, board->index, port};
        cable->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        if (cable->event >= 0 && !lora_emu_far_join(&cable->at, notify, cable)) return cable;
        if (cable->event >= 0) close(cable->event);
        free(cable);
    }
    lora_fail(failure, LORA_ERR_LINK_CABLING,
              "%.40s port %u: no port of an emulated board, or it has a cable already", board->name,
              port);
    return NULL;
}

void boardd_cable_end(struct boardd_cable *cable) {
    lora_emu_far_part(&cable->at); /* nobody notifies after it */
    close(cable->event);
    free(cable);
}

static bool send_frames(struct boardd_cable *cable, struct wire_channel *channel) {
    uint8_t data[FRAME_BYTES];
    uint32_t bytes = 1, ready = 0;
    while (bytes) {
        bool room = cable->flying < WINDOW;
        if (lora_emu_far_take(&cable->at, room ? data : NULL, &bytes, &ready)) return false;
        const struct wire_part part = {data, bytes};
        if (bytes && wire_put(channel, WIRE_FRAME, 0, &part, 1)) return false;
        cable->flying += bytes != 0;
    }
    const struct wire_channel_state state = {.ready = ready, .taken = cable->taken};
    const struct wire_part part = {&state, sizeof state};
    if (ready == cable->ready && !cable->taken) return !wire_flush(channel);
    cable->ready = ready;
    cable->taken = 0;
    return !wire_put(channel, WIRE_CHANNEL, 0, &part, 1) && !wire_flush(channel);
}

/* What has waited for room goes first. */
static bool put_waiting(struct boardd_cable *cable, bool *moved) {
    uint32_t taken = 1;
    while (cable->count && taken) {
        uint32_t at = cable->first % WINDOW;
        if (lora_emu_far_put(&cable->at, cable->waiting[at], cable->bytes[at], &taken))
            return false;
        cable->first += taken;
        cable->count -= taken;
        cable->taken += taken;
        *moved |= taken != 0;
    }
    return true;
}

static bool take_message(struct boardd_cable *cable, const struct wire_message *message) {
    const uint32_t bytes = message->header.bytes;
    if (message->header.kind == WIRE_FRAME) {
        if (cable->count == WINDOW || bytes > FRAME_BYTES) return false;
        uint32_t at = (cable->first + cable->count++) % WINDOW;
        memcpy(cable->waiting[at], message->body, bytes);
        cable->bytes[at] = bytes;
        return true;
    }
    struct wire_channel_state state;
    if (message->header.kind != WIRE_CHANNEL || bytes != sizeof state) return false;
    memcpy(&state, message->body, sizeof state);
    if (state.taken > cable->flying) return false;
    cable->flying -= state.taken;
    return !lora_emu_far_ready(&cable->at, state.ready);
}

static bool take_messages(struct boardd_cable *cable, struct wire_channel *channel, bool *moved) {
    struct wire_message message;
    int got;
    while ((got = wire_get(channel, &message, 0)) == WIRE_MESSAGE) {
        if (message.header.kind == WIRE_CHANNEL && !put_waiting(cable, moved)) return false;
        if (!take_message(cable, &message)) return false;
        *moved = true;
    }
    return got == WIRE_NOTHING && put_waiting(cable, moved);
}

void boardd_cable_run(struct lora_boardd *boardd, struct boardd_cable *cable,
                      struct wire_channel *channel) {
    uint64_t count;
    prctl(PR_SET_TIMERSLACK, SLACK_NS, 0, 0, 0);
    while (!atomic_load(&boardd->stopping)) {
        bool moved = false;
        if (!take_messages(cable, channel, &moved)) return;
        if (moved) boardd_run_emulated(boardd, cable->at.cluster);
        if (read(cable->event, &count, sizeof count) > 0) moved = true;
        atomic_store(&cable->told, false);
        if (!send_frames(cable, channel)) return;
        if (!moved) wire_wait(channel, cable->event, cable->count ? FULL_US : TICK_US);
    }
}
