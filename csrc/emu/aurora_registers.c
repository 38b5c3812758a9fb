/* The register map of the public Aurora core (AuroraFlow), as the host's bring-up meets it. */
#include "board.h"

#include <string.h>

#define RESET_HOLD_US 1000000 /* the core needs a second in reset */
#define STATUS_GT_READY 0x00f
#define STATUS_LANES_UP 0x0f0
#define STATUS_PLL_LOCK 0x100
#define STATUS_MMCM_NOT_LOCKED 0x200
#define STATUS_CHANNEL_UP 0x1000
#define THRESHOLDS 0x00180008u /* programmable full, empty: frames of the FIFO */
#define FIFO_EMPTY 0x3         /* programmable empty, almost empty */
#define FIFO_FULL 0xc          /* programmable full, almost full */

static uint32_t status(const struct emu_port *port) {
    if (port->core_reset) return STATUS_MMCM_NOT_LOCKED;
    uint32_t value = STATUS_GT_READY | STATUS_PLL_LOCK;
    return port->up ? value | STATUS_LANES_UP | STATUS_CHANNEL_UP : value;
}

static uint32_t fifo_flags(const struct emu_port *receiver) {
    uint32_t frames = receiver->tail - receiver->head;
    return frames <= 1 ? FIFO_EMPTY : frames >= EMU_FIFO_FRAMES - 2 ? FIFO_FULL : 0;
}

static uint32_t fifo_status(const struct emu_port *port) {
    uint32_t sending = port->peer ? fifo_flags(port->peer) : FIFO_EMPTY;
    return sending | fifo_flags(port) << 4;
}

static uint32_t clamp(uint64_t value) { return value > ~0u ? ~0u : (uint32_t)value; }

uint32_t emu_link_read(struct emu_port *port, uint32_t offset) {
    emu_port_refresh(port);
    const struct emu_port_counters *counters = &port->counters;
    if (offset >= LORA_LINK_LINE_DOWN && offset < LORA_LINK_PLL_NOT_LOCKED)
        return counters->line_down; /* one register a lane; the lanes fall together */
    switch (offset) {
    case LORA_LINK_CORE_RESET: return port->core_reset;
    case LORA_LINK_CONFIGURATION:
        return port->faults.configured ? port->faults.configuration
                                       : port->board->cluster->link_configuration;
    case LORA_LINK_FIFO_THRESHOLDS: return THRESHOLDS;
    case LORA_LINK_STATUS: return status(port);
    case LORA_LINK_NOT_OK_CYCLES: return clamp(counters->not_ok_cycles);
    case LORA_LINK_FIFO_STATUS: return fifo_status(port);
    case LORA_LINK_FC_FULL: return counters->flow_full;
    case LORA_LINK_FC_EMPTY: return counters->flow_empty;
    case LORA_LINK_TX_COUNT: return counters->tx;
    case LORA_LINK_RX_COUNT: return counters->rx;
    case LORA_LINK_PLL_NOT_LOCKED: return counters->pll_not_locked;
    case LORA_LINK_MMCM_NOT_LOCKED: return counters->mmcm_not_locked;
    case LORA_LINK_CHANNEL_DOWN: return counters->channel_down;
    case LORA_LINK_FRAMES_RECEIVED: return counters->frames_received;
    case LORA_LINK_FRAMES_WITH_ERRORS: return counters->frames_with_errors;
    default: return 0; /* overflows, lost GTs, hard and soft errors: they stay 0 here */
    }
}

static void enter_reset(struct emu_port *port, uint64_t now) {
    port->core_reset = true;
    port->reset_since = now;
    port->reset_done = false;
    port->counters.mmcm_not_locked++;
    port->counters.pll_not_locked++;
    emu_port_flush(port);
}

/* A core released too early does not train: its channel stays down until a proper reset. */
static void leave_reset(struct emu_port *port, uint64_t now) {
    const struct emu_cluster *cluster = port->board->cluster;
    port->core_reset = false;
    port->reset_done = now - port->reset_since >= emu_cycles(cluster, RESET_HOLD_US);
    port->ready_at = now + emu_cycles(cluster, EMU_LANES_UP_US);
}

void emu_link_write(struct emu_port *port, uint32_t offset, uint32_t value) {
    uint64_t now = port->board->cluster->now;
    emu_port_refresh(port);
    if (offset == LORA_LINK_CORE_RESET) {
        if ((value & 1) && !port->core_reset) enter_reset(port, now);
        if (!(value & 1) && port->core_reset) leave_reset(port, now);
        emu_port_refresh(port);
    } else if (offset == LORA_LINK_COUNTER_RESET && (value & 1)) {
        memset(&port->counters, 0, sizeof port->counters);
    } /* everything else is read-only, and as on the card a write to it does nothing */
}
