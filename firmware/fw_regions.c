/* REGIONS: the table of weight regions that are summed between steps. */
#include "fw.h"

#define REGIONS_A_SLICE 16

uint32_t fw_regions_begin(struct fw *fw) {
    struct fw_scrub *scrub = &fw->scrub;
    struct lora_scrub header;
    uint64_t at = fw->block_offset;
    fw_zero(scrub, sizeof *scrub);
    if (at < LORA_CONTROL_PAGE || at % 8 != 0) {
        fw->error.bank = fw->control_bank;
        fw->error.offset = at;
        return fw_fail(fw, LORA_ERR_ADDRESS, fw->block_offset, LORA_CONTROL_PAGE);
    }
    if (fw_check_range(fw, fw->control_bank, at, sizeof header) == FW_FAILED) return FW_FAILED;
    hal_read(fw->control_bank, at, &header, sizeof header);
    if (header.size != sizeof header) return fw_fail(fw, LORA_ERR_SIZE, header.size, sizeof header);
    if (header.region_count > LORA_MAX_REGIONS)
        return fw_fail(fw, LORA_ERR_SIZE, header.region_count, LORA_MAX_REGIONS);
    if (header.slice_bytes == 0 || header.slice_bytes > FW_CHECKSUM_SLICE)
        return fw_fail(fw, LORA_ERR_SIZE, header.slice_bytes, FW_CHECKSUM_SLICE);
    if (fw_check_range(fw, fw->control_bank, at + sizeof header,
                       header.region_count * (uint32_t)sizeof scrub->region) == FW_FAILED)
        return FW_FAILED;
    scrub->bank = fw->control_bank;
    scrub->table = (uint32_t)at + (uint32_t)sizeof header;
    scrub->slice_bytes = header.slice_bytes;
    scrub->step_bytes = header.step_bytes;
    scrub->idle_bytes = header.idle_bytes;
    scrub->command_bytes = header.command_bytes;
    scrub->left = header.region_count;
    fw->scan = fw->crc = 0;
    scrub->state.expected = header.crc;
    fw->phase = FW_PHASE_REGIONS;
    return FW_MORE;
}

static uint32_t check_region(struct fw *fw, const struct lora_region *region) {
    if (region->bytes == 0) {
        fw->error.bank = region->bank;
        fw->error.offset = region->offset;
        return fw_fail(fw, LORA_ERR_SIZE, 0, 1);
    }
    return fw_check_range(fw, region->bank, region->offset, region->bytes);
}

static uint32_t take(struct fw *fw) {
    struct fw_scrub *scrub = &fw->scrub;
    uint32_t crc = scrub->state.expected;
    scrub->state.expected = 0;
    if (fw->crc != crc) return fw_fail(fw, LORA_ERR_CRC, fw->crc, crc);
    scrub->turn_step = fw->last_step;
    scrub->earned = hal_cycles();
    scrub->count = scrub->left; /* from here on sums are made */
    return FW_OVER;
}

uint32_t fw_regions(struct fw *fw) {
    struct fw_scrub *scrub = &fw->scrub;
    struct lora_region *region = &scrub->region;
    for (uint32_t i = 0; i < REGIONS_A_SLICE && fw->scan < scrub->left; i++, fw->scan++) {
        hal_read(scrub->bank, scrub->table + (uint64_t)fw->scan * sizeof *region, region,
                 sizeof *region);
        fw->crc = fw_crc32(fw->crc, region, sizeof *region);
        if (check_region(fw, region) == FW_FAILED) return FW_FAILED;
    }
    return fw->scan < scrub->left ? (uint32_t)FW_MORE : take(fw);
}
