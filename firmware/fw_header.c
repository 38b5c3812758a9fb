/* REGISTER, first look: the list header's own fields and the ranges that it claims. */
#include "fw.h"

static uint64_t lines(uint32_t line) { return (uint64_t)line * LORA_LINE_BYTES; }

static uint32_t within(struct fw *fw, uint32_t value, uint32_t low, uint32_t high) {
    return value >= low && value <= high
               ? (uint32_t)FW_MORE
               : fw_fail(fw, LORA_ERR_SIZE, value, value < low ? low : high);
}

static uint32_t check_sizes(struct fw *fw, const struct lora_list *list) {
    const struct {
        uint32_t value, low, high;
    } limits[] = {
        {list->command_count, 1, FW_MAX_COMMANDS},
        {list->counter_count, 0, LORA_MAX_COUNTERS},
        {list->boards, 1, LORA_MAX_BOARDS},
        {list->rank, 0, list->boards - 1u},
        {list->stage_boards, 0, list->boards},
        {list->ring, 0, 1},
        {list->max_rows, 1, LORA_MAX_ROWS},
        {list->max_scratch, 1, LORA_MAX_SCRATCH},
        {list->max_sequences, 1, LORA_MAX_SEQUENCES},
        {list->max_tiles, 1, 0xffff},
        {list->page_count, fw_scratch_pages(list) + 1, 0x10000},
        {list->vocabulary, 1, FW_MAX_DIMENSION * 16},
        {list->positions, 1, FW_MAX_DIMENSION * 16},
        {list->onchip_bytes, 0, hal_onchip_bytes()},
        {list->kv_layers, 0, 4096},
        {list->kv_heads, 0, 4096},
        {list->head_dim, 1, 4096},
        {list->embed_columns, 0, FW_MAX_DIMENSION},
        {list->taps, 0, LORA_MAX_TAPS},
        {list->kv_type, 0, LORA_KV_INT8_HEADS},
    };
    for (uint32_t i = 0; i < sizeof limits / sizeof limits[0]; i++)
        if (within(fw, limits[i].value, limits[i].low, limits[i].high) == FW_FAILED)
            return FW_FAILED;
    if (list->stage_boards && list->boards % list->stage_boards)
        return fw_fail(fw, LORA_ERR_SIZE, list->stage_boards, list->boards);
    return FW_MORE;
}

/* A port that the index in the path or ring needs. */
static uint32_t check_port(struct fw *fw, uint32_t port, int needed) {
    if (port < LORA_PORTS || (port == LORA_NO_PORT && !needed)) return FW_MORE;
    fw->error.port = port;
    return fw_fail(fw, LORA_ERR_SIZE, port, LORA_PORTS - 1);
}

static uint32_t check_ports(struct fw *fw, const struct lora_list *list) {
    int linked = list->boards > 1;
    if (check_port(fw, list->port_next, linked && (list->ring || list->rank + 1u < list->boards)) ==
        FW_FAILED)
        return FW_FAILED;
    if (check_port(fw, list->port_previous, linked && (list->ring || list->rank > 0)) == FW_FAILED)
        return FW_FAILED;
    if (list->port_next == list->port_previous && list->port_next != LORA_NO_PORT) {
        fw->error.port = list->port_next;
        return fw_fail(fw, LORA_ERR_SIZE, list->port_previous, LORA_NO_PORT);
    }
    return FW_MORE;
}

/* What INT8 in the cache asks for: blocks of whole lines, sums that stay exact. */
static uint32_t check_kv_type(struct fw *fw, const struct lora_list *list) {
    const uint32_t max = LORA_MAX_INT8_POSITIONS / LORA_TILE_POSITIONS;
    if (list->kv_type != LORA_KV_FP16 && list->head_dim % 2)
        return fw_fail(fw, LORA_ERR_SIZE, list->head_dim, list->head_dim + 1u);
    if (list->kv_type == LORA_KV_INT8 && list->max_tiles > max)
        return fw_fail(fw, LORA_ERR_SIZE, list->max_tiles, max);
    return FW_MORE;
}

static uint32_t kv_block_lines(const struct lora_list *list) {
    if (list->kv_type == LORA_KV_FP16) return list->head_dim;
    return list->head_dim / 2u + (list->kv_type == LORA_KV_INT8_HEADS);
}

struct pool { /* KV pages striped over banks block by block */
    uint32_t bank_first, bank_count, line, pages;
};

/* Pages are written while a step runs: not over the tables, nor over what the control bank holds
 * of the firmware and the list. */
static uint32_t check_pool_range(struct fw *fw, const struct fw_list *entry, uint32_t bank,
                                 uint32_t line, uint64_t bytes) {
    const struct lora_list *list = &entry->header;
    uint64_t table_bytes = (uint64_t)list->max_sequences * fw_table_row_bytes(list);
    uint64_t list_bytes = sizeof *list + (uint64_t)list->command_count * FW_COMMAND_BYTES;
    int clash = bank == list->table_bank &&
                fw_overlap(lines(line), bytes, lines(list->table_line), table_bytes);
    if (fw_check_range(fw, bank, lines(line), bytes) == FW_FAILED) return FW_FAILED;
    if (bank == fw->control_bank)
        clash |= lines(line) < LORA_CONTROL_PAGE ||
                 fw_overlap(lines(line), bytes, entry->offset, list_bytes) ||
                 fw_overlap(lines(line), bytes, list->results_offset, list->results_bytes);
    if (!clash) return FW_MORE;
    fw->error.bank = bank;
    fw->error.offset = lines(list->table_line);
    return fw_fail(fw, LORA_ERR_ADDRESS, list->table_line, line);
}

static uint32_t check_pool(struct fw *fw, const struct fw_list *entry, struct pool pool) {
    const struct lora_list *list = &entry->header;
    uint32_t blocks = (uint32_t)list->kv_layers * list->kv_heads * 2;
    uint64_t last = (uint64_t)(pool.pages - 1) * (blocks | 1) + blocks - 1;
    uint32_t block_bytes = kv_block_lines(list) * LORA_LINE_BYTES;
    if (blocks == 0) return FW_MORE;
    if (last > FW_NONE - 1) return fw_fail(fw, LORA_ERR_SIZE, FW_NONE, FW_NONE - 1);
    if (within(fw, pool.bank_count, 1, LORA_MAX_BANKS) == FW_FAILED) return FW_FAILED;
    for (uint32_t i = 0; i < pool.bank_count && i <= last; i++) {
        uint64_t rounds = ((uint32_t)last - i) / pool.bank_count + 1;
        if (check_pool_range(fw, entry, pool.bank_first + i, pool.line, rounds * block_bytes) ==
            FW_FAILED)
            return FW_FAILED;
    }
    return FW_MORE;
}

/* Pages of the weights' banks, those of the scratch slots at least, and of the banks that take the
 * others. */
static uint32_t check_pools(struct fw *fw, const struct fw_list *entry) {
    const struct lora_list *list = &entry->header;
    uint32_t pages = list->page_count;
    if (list->kv_spill_bank_count == 0)
        return check_pool(
            fw, entry,
            (struct pool){list->kv_bank_first, list->kv_bank_count, list->kv_line, pages});
    if (within(fw, list->kv_spill_page, fw_scratch_pages(list), pages - 1) == FW_FAILED)
        return FW_FAILED;
    const struct pool pools[] = {
        {list->kv_bank_first, list->kv_bank_count, list->kv_line, list->kv_spill_page},
        {list->kv_spill_bank_first, list->kv_spill_bank_count, list->kv_spill_line,
         pages - list->kv_spill_page},
    };
    if (check_pool(fw, entry, pools[0]) == FW_FAILED) return FW_FAILED;
    return check_pool(fw, entry, pools[1]);
}

/* Results and page table are written while a step runs: they may touch neither the first page nor
 * the list nor each other. */
static uint32_t check_ranges(struct fw *fw, const struct fw_list *entry) {
    const struct lora_list *list = &entry->header;
    uint64_t list_bytes = sizeof *list + (uint64_t)list->command_count * FW_COMMAND_BYTES;
    uint64_t table = lines(list->table_line);
    uint64_t table_bytes = (uint64_t)list->max_sequences * fw_table_row_bytes(list);
    int clash = fw_overlap(list->results_offset, list->results_bytes, entry->offset, list_bytes) ||
                (list->results_bytes && list->results_offset < LORA_CONTROL_PAGE) ||
                entry->offset < LORA_CONTROL_PAGE || entry->offset % 4 != 0;
    if (list->table_bank == fw->control_bank)
        clash |= table < LORA_CONTROL_PAGE ||
                 fw_overlap(table, table_bytes, entry->offset, list_bytes) ||
                 fw_overlap(table, table_bytes, list->results_offset, list->results_bytes);
    if (clash) {
        fw->error.bank = fw->control_bank;
        fw->error.offset = list->results_offset;
        return fw_fail(fw, LORA_ERR_ADDRESS, list->results_offset, LORA_CONTROL_PAGE);
    }
    if (fw_check_range(fw, fw->control_bank, entry->offset, list_bytes) == FW_FAILED ||
        fw_check_range(fw, fw->control_bank, list->results_offset, list->results_bytes) ==
            FW_FAILED)
        return FW_FAILED;
    return fw_check_range(fw, list->table_bank, table, table_bytes);
}

uint32_t fw_check_header(struct fw *fw, const struct fw_list *entry) {
    const struct lora_list *list = &entry->header;
    if (list->size != sizeof *list) return fw_fail(fw, LORA_ERR_SIZE, list->size, sizeof *list);
    if (list->abi != LORA_ABI_NUMBER) return fw_fail(fw, LORA_ERR_ABI, list->abi, LORA_ABI_NUMBER);
    if (list->list_id != hal_register(LORA_REG_LIST_ID))
        return fw_fail(fw, LORA_ERR_LIST, list->list_id, hal_register(LORA_REG_LIST_ID));
    if (list->control_bank != fw->control_bank) {
        fw->error.bank = list->control_bank;
        return fw_fail(fw, LORA_ERR_ADDRESS, list->control_bank, fw->control_bank);
    }
    if (check_sizes(fw, list) == FW_FAILED || check_ports(fw, list) == FW_FAILED ||
        check_kv_type(fw, list) == FW_FAILED || check_ranges(fw, entry) == FW_FAILED ||
        check_pools(fw, entry) == FW_FAILED)
        return FW_FAILED;
    return fw_check_adapter_slots(fw, list);
}
