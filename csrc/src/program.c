/* Loading of an overlay, and the check that the board is then what its manifest says. */
#include "internal.h"

#include <string.h>

static int differ(const struct lora_cluster *cluster, uint32_t board, int code, const char *what,
                  uint32_t found, uint32_t expected, struct lora_failure *failure) {
    failure->board = (int32_t)board;
    failure->found = found;
    failure->expected = expected;
    return lora_fail(failure, code,
                     "board %u (%s): %s 0x%x found, 0x%x expected; load the overlay that belongs "
                     "to this board",
                     board, cluster->boards[board].info.address, what, found, expected);
}

static int check_image(const struct lora_cluster *cluster, uint32_t board,
                       const struct lora_program *program, struct lora_image_header *header,
                       struct lora_failure *failure) {
    const int code = LORA_ERR_OVERLAY;
    if (!program->image || program->image_bytes < sizeof *header)
        return differ(cluster, board, code, "firmware image's size", (uint32_t)program->image_bytes,
                      (uint32_t)sizeof *header, failure);
    memcpy(header, program->image, sizeof *header);
    if (header->magic != LORA_IMAGE_MAGIC)
        return differ(cluster, board, code, "firmware image's magic", header->magic,
                      LORA_IMAGE_MAGIC, failure);
    if (header->size != sizeof *header ||
        program->image_bytes - sizeof *header != header->code_bytes)
        return differ(cluster, board, code, "firmware image's code size", header->code_bytes,
                      (uint32_t)(program->image_bytes - sizeof *header), failure);
    if (header->abi != LORA_ABI_NUMBER)
        return differ(cluster, board, code, "firmware image's ABI", header->abi, LORA_ABI_NUMBER,
                      failure);
    if (header->board != program->board_kind)
        return differ(cluster, board, code, "firmware image's board kind", header->board,
                      program->board_kind, failure);
    uint32_t crc = lora_crc32(0, program->image + sizeof *header, header->code_bytes);
    if (crc != header->code_crc)
        return differ(cluster, board, code, "firmware image's CRC", crc, header->code_crc, failure);
    return LORA_OK;
}

static int check_identity(struct lora_cluster *cluster, uint32_t board,
                          const struct lora_image_header *header, struct lora_failure *failure) {
    const struct {
        uint32_t offset, expected;
        const char *what;
    } checks[] = {
        {LORA_REG_IDENTITY_ABI, LORA_ABI_NUMBER, "ABI register"},
        {LORA_REG_IDENTITY_BOARD, header->board, "board kind register"},
        {LORA_REG_IDENTITY_SERIAL, cluster->boards[board].info.serial, "serial register"},
        {LORA_REG_FIRMWARE_CRC, header->code_crc, "firmware CRC register"},
    };
    for (uint32_t i = 0; i < sizeof checks / sizeof checks[0]; i++) {
        uint32_t found = 0;
        int status = lora_register_read(cluster, board, LORA_BLOCK_CONTROL, checks[i].offset,
                                        &found, failure);
        if (status) return status;
        if (checks[i].offset == LORA_REG_IDENTITY_ABI && found == LORA_NONE)
            return lora_fail_board(cluster, board,
                                   lora_fail_gone(failure, "the ABI register", found), failure);
        if (found != checks[i].expected)
            return differ(cluster, board, LORA_ERR_IDENTITY, checks[i].what, found,
                          checks[i].expected, failure);
    }
    return LORA_OK;
}

static int check_control_bank(const struct lora_cluster *cluster, uint32_t board,
                              uint32_t control_bank, struct lora_failure *failure) {
    uint32_t banks = cluster->boards[board].info.bank_count;
    if (control_bank < banks) return LORA_OK;
    return differ(cluster, board, LORA_ERR_OVERLAY, "overlay's control bank", control_bank,
                  banks - 1, failure);
}

static int check_program(const struct lora_cluster *cluster, uint32_t board,
                         const struct lora_program *program, uint32_t control_bank,
                         struct lora_failure *failure) {
    const struct lora_board *it = &cluster->boards[board];
    if (!program || program->size != sizeof *program)
        return lora_fail(failure, LORA_ERR_ARGUMENT, "board %u: program of %u bytes, %zu expected",
                         board, program ? program->size : 0, sizeof *program);
    if (program->abi != LORA_ABI_NUMBER)
        return differ(cluster, board, LORA_ERR_OVERLAY, "overlay's ABI", program->abi,
                      LORA_ABI_NUMBER, failure);
    if (it->info.board_kind && program->board_kind != it->info.board_kind)
        return differ(cluster, board, LORA_ERR_OVERLAY, "overlay's board kind", program->board_kind,
                      it->info.board_kind, failure);
    if (it->info.board_kind) {
        int status = check_control_bank(cluster, board, control_bank, failure);
        if (status) return status;
    }
    if (it->arena_count)
        return lora_fail(failure, LORA_ERR_ARGUMENT,
                         "board %u: %u arenas are reserved; load the overlay before reserving",
                         board, it->arena_count);
    return LORA_OK;
}

/* Real boards tell their serial only through the overlay's register; what board it is, XRT does not
 * tell at all: kind and banks are then the overlay's, which check_identity compares. */
static int learn_board(struct lora_cluster *cluster, uint32_t board, uint32_t control_bank,
                       struct lora_failure *failure) {
    struct lora_board *it = &cluster->boards[board];
    struct lora_board_info info = {.size = sizeof info};
    if (it->info.serial) return LORA_OK;
    int status = it->transport->info(it->handle, &info, failure);
    if (status) return lora_fail_board(cluster, board, status, failure);
    memcpy(info.address, it->info.address, sizeof info.address); /* as it was named */
    it->info = info;
    status = lora_check_serials(cluster, failure);
    return status ? status : check_control_bank(cluster, board, control_bank, failure);
}

int lora_cluster_program(struct lora_cluster *cluster, uint32_t board,
                         const struct lora_program *program, uint32_t control_bank,
                         struct lora_failure *failure) {
    struct lora_failure spare;
    struct lora_image_header header;
    failure = lora_failure_begin(failure, &spare);
    int status = lora_check_board(cluster, board, failure);
    if (!status) status = check_program(cluster, board, program, control_bank, failure);
    if (!status) status = check_image(cluster, board, program, &header, failure);
    if (status) return status;
    struct lora_board *it = &cluster->boards[board];
    status = it->transport->program(it->handle, program, failure);
    if (status) return lora_fail_board(cluster, board, status, failure);
    status = learn_board(cluster, board, control_bank, failure);
    if (!status) status = check_identity(cluster, board, &header, failure);
    if (status) return status;
    it->programmed = 1;
    it->control_bank = control_bank;
    it->in_flight = 0;
    it->watchdog_ms = 0;
    cluster->step = 0; /* the firmware begins to count anew */
    return lora_memory_restore(cluster, board, failure);
}
