/* The board state at a failure, as text: registers, last commands, units and links. */
#include "internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const char *const unit_names[LORA_UNITS] = {"CONTROL", "MPU", "VFU", "ROUTER", "DMA"};
static const char *const opcode_names[] = {
    [0] = "?",
    [LORA_CMD_MATRIX] = "MATRIX",
    [LORA_CMD_VECTOR] = "VECTOR",
    [LORA_CMD_ATTENTION] = "ATTENTION",
    [LORA_CMD_KV_STORE] = "KV_STORE",
    [LORA_CMD_KV_COMMIT] = "KV_COMMIT",
    [LORA_CMD_GATHER] = "GATHER",
    [LORA_CMD_MOVE_ROWS] = "MOVE_ROWS",
    [LORA_CMD_CHECKSUM] = "CHECKSUM",
    [LORA_CMD_FENCE] = "FENCE",
    [LORA_CMD_END] = "END",
    [LORA_CMD_ADAPTER] = "ADAPTER",
    [LORA_CMD_BALLOT] = "BALLOT",
    [LORA_CMD_EXPERTS] = "EXPERTS",
    [LORA_CMD_RECURRENCE] = "RECURRENCE",
};
static const char *const unit_states[] = {"idle", "busy", "done", "failed"};
static const char *const firmware_states[] = {"idle", "running", "waiting",
                                              "done", "error",   "stopped"};

/* Of those of the privileged specification, the ones that the card's core has (docs/core.md). */
static const char *const stop_causes[] = {
    [1] = "code outside of local memory",
    [2] = "not an instruction",
    [3] = "ebreak",
    [4] = "misaligned load",
    [5] = "load from where nothing answers",
    [6] = "misaligned store",
    [7] = "store to where nothing answers",
    [11] = "ecall",
};

#define NAMED(table, index)                                                                        \
    ((index) < sizeof(table) / sizeof((table)[0]) ? (table)[index] : "unknown")

const char *lora_unit_name(uint32_t unit) { return NAMED(unit_names, unit); }
const char *lora_opcode_name(uint32_t opcode) { return NAMED(opcode_names, opcode); }

static void add(struct lora_cluster *cluster, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void add(struct lora_cluster *cluster, const char *format, ...) {
    size_t used = strlen(cluster->report);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(cluster->report + used, sizeof cluster->report - used, format, arguments);
    va_end(arguments);
}

/* A register for the report: what cannot be read shows as all ones. AP_CTRL is left alone, since
 * reading it clears the done bit. */
static uint32_t peek(struct lora_cluster *cluster, uint32_t board, uint32_t block,
                     uint32_t offset) {
    struct lora_board *it = &cluster->boards[board];
    struct lora_failure ignored;
    uint32_t value = 0;
    int status = it->transport->register_read(it->handle, block, offset, &value,
                                              lora_failure_begin(NULL, &ignored));
    return status ? LORA_NONE : value;
}

static void add_stop(struct lora_cluster *cluster, uint32_t b) {
    uint32_t cause = peek(cluster, b, LORA_BLOCK_CONTROL, LORA_REG_STOP_CAUSE);
    const char *name = NAMED(stop_causes, cause);
    add(cluster, "  lora_ctrl: its core stands at 0x%x, cause %u (%s)\n",
        peek(cluster, b, LORA_BLOCK_CONTROL, LORA_REG_STOP_PC), cause, name ? name : "unknown");
}

static void add_control(struct lora_cluster *cluster, uint32_t b) {
    const struct lora_board *it = &cluster->boards[b];
    uint32_t state = peek(cluster, b, LORA_BLOCK_CONTROL, LORA_REG_FIRMWARE_STATE);
    add(cluster, "board %u %s (%s, serial %u): %s, firmware %s\n", b, it->info.address,
        it->info.name, it->info.serial, it->in_flight ? "in flight" : "no run in flight",
        NAMED(firmware_states, state));
    if (state == LORA_FW_STOPPED) add_stop(cluster, b);
    add(cluster, "  lora_ctrl: operation %u list %u block 0x%x step %u epoch %u crc 0x%08x\n",
        peek(cluster, b, LORA_BLOCK_CONTROL, LORA_REG_OPERATION),
        peek(cluster, b, LORA_BLOCK_CONTROL, LORA_REG_LIST_ID),
        peek(cluster, b, LORA_BLOCK_CONTROL, LORA_REG_BLOCK_OFFSET), cluster->step, cluster->epoch,
        peek(cluster, b, LORA_BLOCK_CONTROL, LORA_REG_FIRMWARE_CRC));
}

static void add_units(struct lora_cluster *cluster, uint32_t b) {
    for (uint32_t u = 0; u < LORA_UNITS; u++) {
        uint32_t state = peek(cluster, b, LORA_BLOCK_CONTROL, LORA_REG_UNIT_STATE + 4 * u);
        uint32_t last = peek(cluster, b, LORA_BLOCK_CONTROL, LORA_REG_LAST_INDEX + 4 * u);
        if (last == LORA_NONE)
            add(cluster, "  unit %s: %s, no command yet\n", unit_names[u],
                NAMED(unit_states, state));
        else
            add(cluster, "  unit %s: %s, last command %u\n", unit_names[u],
                NAMED(unit_states, state), last);
    }
}

static void add_records(struct lora_cluster *cluster, uint32_t b) {
    const struct lora_board *it = &cluster->boards[b];
    add(cluster, "  last completion: operation %u %s step %u epoch %u\n", it->completion.operation,
        lora_status_name((int)it->completion.status), it->completion.step, it->completion.epoch);
    if (it->error.code != LORA_OK)
        add(cluster, "  last error: %s index %u opcode %s step %u\n",
            lora_status_name((int)it->error.code), it->error.index,
            lora_opcode_name(it->error.opcode), it->error.step);
}

static void add_links(struct lora_cluster *cluster, uint32_t b) {
    for (uint32_t p = 0; p < LORA_PORTS; p++) {
        uint32_t peer_board, peer_port, block = LORA_BLOCK_LINK0 + p;
        if (!lora_cable_peer(cluster, b, p, &peer_board, &peer_port)) continue;
        uint32_t status = peek(cluster, b, block, LORA_LINK_STATUS);
        add(cluster,
            "  port %u to board %u port %u: status 0x%04x (%s), frames %u, bad %u, channel down "
            "%u, RX overflows %u\n",
            p, peer_board, peer_port, status, status == LORA_LINK_HEALTHY ? "up" : "DOWN",
            peek(cluster, b, block, LORA_LINK_FRAMES_RECEIVED),
            peek(cluster, b, block, LORA_LINK_FRAMES_WITH_ERRORS),
            peek(cluster, b, block, LORA_LINK_CHANNEL_DOWN),
            peek(cluster, b, block, LORA_LINK_RX_OVERFLOWS));
    }
}

void lora_report_capture(struct lora_cluster *cluster, const char *reason) {
    cluster->report[0] = 0;
    add(cluster, "%s\n", reason);
    for (uint32_t b = 0; b < cluster->count; b++) {
        add_control(cluster, b);
        add_units(cluster, b);
        add_records(cluster, b);
        add_links(cluster, b);
    }
}

const char *lora_cluster_report(struct lora_cluster *cluster) {
    return cluster ? cluster->report : "";
}
