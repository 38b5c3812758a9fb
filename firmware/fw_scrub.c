/* Sums of weight regions in turn: between steps as far as these have earned it, without an
 * operation by the clock, or at once when the host asks. The DMA unit sums; no other unit runs
 * meanwhile. */
#include "fw.h"

#define SAVED_SLICES 4  /* that may be earned in advance */
#define TIMEOUT_PARTS 8 /* part of the watchdog that a command may take while no operation runs */
#define STOPPED FW_NONE /* state.damaged: no sum can be made */
#define MOST_IDLE_MS 1000u /* paid at once */

static int is_asked(const struct fw *fw) {
    return fw->phase == FW_PHASE_SCRUB && fw->operation == LORA_OP_SCRUB;
}

static void earn(struct fw_scrub *scrub, uint64_t bytes) {
    int64_t most = SAVED_SLICES * (int64_t)scrub->slice_bytes;
    if (most < (int64_t)scrub->step_bytes) most = scrub->step_bytes;
    scrub->credit += (int64_t)bytes;
    if (scrub->credit > most) scrub->credit = most;
}

void fw_scrub_earn(struct fw *fw) { earn(&fw->scrub, fw->scrub.step_bytes); }

/* The core divides no 64 bits: whole milliseconds are counted off. */
static void earn_idle(struct fw *fw) {
    struct fw_scrub *scrub = &fw->scrub;
    uint64_t now = hal_cycles(), since = now - scrub->earned;
    uint32_t ms = 0, each = hal_cycles_per_ms();
    if (since < each) return;
    for (; since >= each && ms < MOST_IDLE_MS; since -= each) ms++;
    scrub->earned = ms < MOST_IDLE_MS ? now - since : now;
    earn(scrub, (uint64_t)ms * scrub->idle_bytes);
}

static int is_due(const struct fw *fw) {
    const struct fw_scrub *scrub = &fw->scrub;
    if (!scrub->count || scrub->state.damaged) return 0;
    if (!is_asked(fw)) return scrub->credit >= (int64_t)scrub->slice_bytes;
    return scrub->left && (!scrub->until || scrub->state.bytes < scrub->until);
}

static uint64_t place_of(const struct fw_scrub *scrub, uint32_t index) {
    return scrub->table + (uint64_t)index * sizeof scrub->region;
}

/* The host may look at the table while no operation runs: then nothing is written. */
static void write_back(struct fw *fw) {
    struct fw_scrub *scrub = &fw->scrub;
    uint64_t at = place_of(scrub, scrub->unwritten - 1) + offsetof(struct lora_region, good_step);
    if (fw_in_arena(fw, scrub->bank, at, 8)) {
        hal_write(scrub->bank, at, &scrub->region.good_step, 8);
        hal_fence(scrub->bank, at);
    }
    scrub->unwritten = 0;
}

static void stop(struct fw_scrub *scrub, uint32_t damaged) {
    scrub->state.damaged = damaged;
    scrub->state.found = scrub->region.found;
    scrub->state.expected = scrub->region.expected;
    scrub->at = 0;
}

static void begin_command(struct fw *fw) {
    struct fw_scrub *scrub = &fw->scrub;
    struct lora_region *region = &scrub->region;
    if (!scrub->at) {
        hal_read(scrub->bank, place_of(scrub, scrub->index), region, sizeof *region);
        region->found = 0;
        scrub->begun_step = fw->last_step;
        if (!scrub->index) scrub->turn_step = fw->last_step;
    }
    if (!region->bytes || !fw_in_arena(fw, region->bank, region->offset, region->bytes)) {
        stop(scrub, scrub->index + 1); /* the table is damaged */
        return;
    }
    scrub->size = scrub->slice_bytes;
    if (region->bytes - scrub->at < scrub->size)
        scrub->size = (uint32_t)(region->bytes - scrub->at);
    scrub->began = hal_cycles();
    if (!fw->list) fw->list = &fw->lists[0];
    fw_sum_begin(fw, region->bank, region->offset + scrub->at, scrub->size, region->found);
}

static void end_region(struct fw *fw) {
    struct fw_scrub *scrub = &fw->scrub;
    scrub->at = 0;
    scrub->unwritten = scrub->index + 1;
    if (scrub->left) scrub->left--;
    if (scrub->region.found != scrub->region.expected) {
        stop(scrub, scrub->index + 1);
        return;
    }
    scrub->region.good_step = scrub->begun_step;
    if (++scrub->index < scrub->count) return;
    scrub->index = 0;
    if (scrub->credit > SAVED_SLICES * (int64_t)scrub->slice_bytes)
        scrub->credit = 0; /* of a turn */
    scrub->state.passes++;
    scrub->state.good = scrub->turn_step;
}

/* FW_WAITING, FW_FAILED, or FW_OVER: the command is done. */
static uint32_t poll_command(struct fw *fw) {
    struct fw_scrub *scrub = &fw->scrub;
    struct hal_unit_result result;
    uint32_t outcome = fw_unit_poll(fw, LORA_UNIT_DMA, &result);
    if (outcome != FW_OVER) return outcome;
    scrub->at += scrub->size;
    scrub->state.bytes += scrub->size;
    scrub->state.sums++;
    if (!is_asked(fw)) scrub->credit -= (int64_t)scrub->size + scrub->command_bytes;
    scrub->size = 0;
    scrub->region.found = result.value;
    if (scrub->at == scrub->region.bytes) end_region(fw);
    return FW_OVER;
}

static uint32_t give_up(struct fw *fw) {
    fw_units_abort(fw);
    fw->scrub.size = 0;
    stop(&fw->scrub, STOPPED);
    return FW_OVER;
}

uint32_t fw_scrub_idle(struct fw *fw, uint32_t control) {
    struct fw_scrub *scrub = &fw->scrub;
    if (scrub->size) {
        uint32_t outcome = poll_command(fw);
        if (outcome == FW_FAILED) return give_up(fw);
        if (outcome == FW_WAITING)
            return hal_cycles() - scrub->began > fw->timeout / TIMEOUT_PARTS ? give_up(fw)
                                                                             : outcome;
    }
    if (scrub->unwritten) {
        if (control & LORA_AP_DONE) return FW_OVER;
        write_back(fw);
    }
    if (!(control & LORA_AP_START)) earn_idle(fw);
    if (!is_due(fw)) return FW_OVER;
    begin_command(fw);
    return FW_MORE;
}

uint32_t fw_scrub_between(struct fw *fw) {
    fw_scrub_earn(fw);
    if (!is_due(fw)) return FW_MORE;
    fw->scrub.resume = fw->phase;
    fw->phase = FW_PHASE_SCRUB;
    return FW_MORE;
}

uint32_t fw_scrub_begin(struct fw *fw) {
    struct fw_scrub *scrub = &fw->scrub;
    uint64_t bytes = (uint64_t)hal_register(LORA_REG_BYTES_HI) << 32 |
                     hal_register(LORA_REG_BYTES_LO);
    scrub->left = scrub->count;
    scrub->until = bytes ? scrub->state.bytes + bytes : 0;
    if (!bytes) scrub->at = scrub->index = 0;
    fw->phase = FW_PHASE_SCRUB;
    return FW_MORE;
}

uint32_t fw_scrub_run(struct fw *fw) {
    struct fw_scrub *scrub = &fw->scrub;
    if (scrub->size) {
        uint32_t outcome = poll_command(fw);
        if (outcome != FW_OVER) return outcome;
    }
    if (scrub->unwritten) write_back(fw);
    if (is_due(fw)) {
        begin_command(fw);
        return FW_MORE;
    }
    if (is_asked(fw)) return FW_OVER;
    fw->phase = scrub->resume;
    return FW_MORE;
}

void fw_scrub_restart(struct fw *fw) {
    fw->scrub.size = 0;
    fw->scrub.at = 0;
}

void fw_scrub_complete(struct fw *fw) {
    if (fw->scrub.unwritten) write_back(fw);
    fw->scrub.earned = hal_cycles();
    fw_copy(&fw->completion.scrub, &fw->scrub.state, sizeof fw->scrub.state);
}
