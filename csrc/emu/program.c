/* Loading a program (overlay) into an emulated board, and the reset that loses it. */
#include "board.h"

#include <string.h>

#include "lora/host.h"

static int refuse(struct lora_failure *failure, const struct emu_board *board, int code,
                  const char *what, uint32_t found, uint32_t expected) {
    emu_fail(failure, code, board, "board %u (%s): firmware image has %s %#x, expected %#x",
             board->index, board->info.name, what, found, expected);
    if (failure) {
        failure->found = found;
        failure->expected = expected;
    }
    return code;
}

static int check_image(const struct emu_board *board, const struct lora_program *program,
                       struct lora_image_header *header, struct lora_failure *failure) {
    if (!program->image || program->image_bytes < sizeof *header)
        return refuse(failure, board, LORA_ERR_OVERLAY, "bytes", (uint32_t)program->image_bytes,
                      sizeof *header);
    memcpy(header, program->image, sizeof *header);
    uint64_t code_bytes = program->image_bytes - sizeof *header;
    if (header->magic != LORA_IMAGE_MAGIC)
        return refuse(failure, board, LORA_ERR_OVERLAY, "magic", header->magic, LORA_IMAGE_MAGIC);
    if (header->size != sizeof *header)
        return refuse(failure, board, LORA_ERR_OVERLAY, "header size", header->size,
                      sizeof *header);
    if (header->abi != LORA_ABI_NUMBER)
        return refuse(failure, board, LORA_ERR_OVERLAY, "ABI", header->abi, LORA_ABI_NUMBER);
    if (header->board != board->info.board_kind)
        return refuse(failure, board, LORA_ERR_OVERLAY, "board", header->board,
                      board->info.board_kind);
    if (header->code_bytes != code_bytes || code_bytes == 0)
        return refuse(failure, board, LORA_ERR_OVERLAY, "code bytes", (uint32_t)code_bytes,
                      header->code_bytes);
    if (header->entry >= code_bytes)
        return refuse(failure, board, LORA_ERR_OVERLAY, "entry", header->entry,
                      (uint32_t)code_bytes);
    uint32_t crc = lora_crc32(0, program->image + sizeof *header, code_bytes);
    if (crc != header->code_crc)
        return refuse(failure, board, LORA_ERR_OVERLAY, "code CRC", crc, header->code_crc);
    return LORA_OK;
}

static int check_program(const struct emu_board *board, const struct lora_program *program,
                         struct lora_failure *failure) {
    if (!program || program->size != sizeof *program)
        return emu_fail(failure, LORA_ERR_ARGUMENT, board, "board %u: program of size %u, not %zu",
                        board->index, program ? program->size : 0, sizeof *program);
    if (program->board_kind != board->info.board_kind)
        return refuse(failure, board, LORA_ERR_OVERLAY, "manifest board", program->board_kind,
                      board->info.board_kind);
    if (program->abi != LORA_ABI_NUMBER)
        return refuse(failure, board, LORA_ERR_OVERLAY, "manifest ABI", program->abi,
                      LORA_ABI_NUMBER);
    if (program->onchip_bytes == 0 || program->onchip_bytes > EMU_ONCHIP_LIMIT)
        return refuse(failure, board, LORA_ERR_OVERLAY, "activation buffer bytes",
                      program->onchip_bytes, EMU_ONCHIP_LIMIT);
    return LORA_OK;
}

static void power_off(struct emu_board *board) {
    board->programmed = board->in_flight = board->core_stopped = false;
    memset(board->control, 0, sizeof board->control);
    for (uint32_t unit = 0; unit < LORA_UNITS; unit++) emu_unit_abort(board, unit);
    emu_units_init(board);
    emu_router_abort(board);
    board->link_test.active = false;
    board->frames_dropped = 0;
    board->link_requests = (struct emu_link_requests){0};
    for (uint32_t p = 0; p < LORA_PORTS; p++) emu_port_power_off(&board->ports[p]);
}

/* The control, with this code; it has not begun. */
static int load_control(struct emu_board *board, const struct lora_program *program,
                        const struct lora_image_header *header, struct lora_failure *failure) {
    const struct lora_control *control = board->cluster->control;
    if (!board->core) board->core = control->open(control->context, board->index, &emu_card_calls);
    if (!board->core)
        return emu_fail(failure, LORA_ERR_MEMORY, board, "board %u: no memory for its control",
                        board->index);
    if (!control->load) return LORA_OK;
    if (header->entry != 0)
        return refuse(failure, board, LORA_ERR_OVERLAY, "entry", header->entry, 0);
    if (control->load(board->core, program->image + sizeof *header, header->code_bytes) == 0)
        return LORA_OK;
    return emu_fail(failure, LORA_ERR_OVERLAY, board,
                    "board %u: %u bytes of firmware are more than its local memory has",
                    board->index, header->code_bytes);
}

int emu_program(struct emu_board *board, const struct lora_program *program,
                struct lora_failure *failure) {
    struct lora_image_header header;
    int status = check_program(board, program, failure);
    if (status == LORA_OK) status = check_image(board, program, &header, failure);
    if (status) return status;
    power_off(board);
    status = emu_memory_onchip(board, program->onchip_bytes, failure);
    if (status) return status;
    status = load_control(board, program, &header, failure);
    if (status) return status;
    emu_control_program(board, header.code_crc);
    emu_hal_bind(board);
    board->cluster->control->begin(board->core);
    emu_hal_bind(NULL);
    board->programmed = true;
    return LORA_OK;
}

/* Reservations end; the bytes stay, as refreshed DRAM's do. */
void emu_reset(struct emu_board *board) {
    power_off(board);
    emu_memory_forget(&board->memory);
    emu_faults_reset(board);
    emu_wake(board);
}
