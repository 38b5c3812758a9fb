/* csrc/emu's dma.c and kv_moves.c on its memory.c. */
#include "reference.h"

#include <stdlib.h>
#include <string.h>

#include "board.h"

struct reference {
    struct emu_cluster *cluster;
};

static struct emu_board *board_of(struct reference *r) { return &r->cluster->board[0]; }

struct reference *reference_new(uint32_t banks, uint64_t bank_bytes, uint32_t onchip_bytes) {
    struct reference *r = calloc(1, sizeof *r);
    size_t bytes = (sizeof(struct emu_cluster) + sizeof(struct emu_board) + 63) / 64 * 64;
    r->cluster = aligned_alloc(LORA_LINE_BYTES, bytes);
    memset(r->cluster, 0, bytes);
    struct emu_board *board = board_of(r);
    board->cluster = r->cluster;
    board->info.bank_count = banks;
    for (uint32_t i = 0; i < banks; i++) board->info.bank_bytes[i] = bank_bytes;
    emu_memory_init(&board->memory, &board->info);
    if (emu_memory_onchip(board, onchip_bytes, NULL)) abort();
    return r;
}

void reference_free(struct reference *r) {
    emu_memory_clear(&board_of(r)->memory);
    free(r->cluster);
    free(r);
}

void reference_reserve(struct reference *r, uint32_t bank, uint64_t offset, uint64_t bytes) {
    if (emu_memory_reserve(board_of(r), bank, offset, bytes, NULL)) abort();
}

uint8_t *reference_at(struct reference *r, uint32_t bank, uint64_t offset) {
    return board_of(r)->memory.base[bank] + offset;
}

struct reference_outcome reference_run(struct reference *r, const struct lora_command *command,
                                       const struct lora_list *list,
                                       const struct lora_step_state *state) {
    struct hal_unit_result result = {0};
    int status = emu_dma(board_of(r), command, list, state, &result);
    return (struct reference_outcome){(uint32_t)status, result.value};
}
