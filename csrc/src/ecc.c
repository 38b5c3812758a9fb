/* Words of memory that a board's ECC cannot correct: which failures they explain, and that they can
 * be read again. */
#include "internal.h"

#include <stdio.h>
#include <string.h>

static int ask(struct lora_cluster *cluster, uint32_t board, struct lora_ecc *found,
               struct lora_failure *failure) {
    struct lora_board *it = &cluster->boards[board];
    memset(found, 0, sizeof *found);
    return it->transport->ecc ? it->transport->ecc(it->handle, found, failure) : LORA_OK;
}

int lora_cluster_ecc(struct lora_cluster *cluster, uint32_t board, struct lora_ecc *found,
                     struct lora_failure *failure) {
    struct lora_failure spare;
    failure = lora_failure_begin(failure, &spare);
    if (!cluster || board >= cluster->count || !found)
        return lora_fail(failure, LORA_ERR_ARGUMENT, "ecc: no such board, or no record");
    return lora_fail_board(cluster, board, ask(cluster, board, found, failure), failure);
}

/* The command that has read it stays named, where the board itself has told of one. */
static int blame(const struct lora_cluster *cluster, uint32_t board, const struct lora_ecc *told,
                 struct lora_failure *failure) {
    char where[64] = "";
    if (failure->board != (int32_t)board || failure->code != LORA_ERR_UNIT)
        lora_failure_begin(failure, NULL);
    else if (failure->index != LORA_NONE)
        snprintf(where, sizeof where, " command %u (%s)", failure->index,
                 lora_opcode_name((uint16_t)failure->opcode));
    else snprintf(where, sizeof where, " unit %s", lora_unit_name(failure->unit));
    failure->board = (int32_t)board;
    failure->bank = (int32_t)told->bank;
    failure->offset = told->offset;
    return lora_fail(failure, LORA_ERR_ECC,
                     "board %u (%s)%s: bank %u offset 0x%llx: a word with two wrong bits, which "
                     "ECC cannot correct",
                     board, cluster->boards[board].info.address, where, told->bank,
                     (unsigned long long)told->offset);
}

int lora_blame_memory(struct lora_cluster *cluster, lora_boards mask,
                      struct lora_failure *failure) {
    int status = (int)failure->code, found = 0;
    for (uint32_t b = 0; b < cluster->count; b++) {
        struct lora_board *it = &cluster->boards[b];
        struct lora_failure ignored;
        struct lora_ecc told;
        if (!(mask >> b & 1) || !it->transport->ecc) continue;
        if (ask(cluster, b, &told, lora_failure_begin(NULL, &ignored))) continue;
        if (!told.size || told.failures == it->ecc_failures) continue;
        it->ecc_failures = told.failures;
        it->unreadable = (struct lora_arena){told.bank, told.offset, 1, 0};
        if (!found++) status = blame(cluster, b, &told, failure);
    }
    if (found && cluster->hung) cluster->hang = *failure;
    return status;
}
