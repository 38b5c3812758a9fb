/* ECC of a board's memory: SECDED on words of 64 bits, as a pseudo channel of HBM and a DDR4 module
 * of 72 bits have it. One wrong bit of a word is corrected and counted; of two the read fails. */
#ifndef EMU_ECC_H
#define EMU_ECC_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "lora/transport.h"

#define EMU_ECC_WORD 8
#define EMU_ECC_WORDS 8 /* with wrong bits at a time */

struct emu_board;
struct lora_unit_call;

struct emu_ecc_word {
    uint32_t bank;
    uint64_t offset; /* of the word */
    bool twice;      /* two bits: it cannot be read until it is written */
};

struct emu_ecc { /* words: with the lock, since the host writes beside runs */
    pthread_mutex_t lock;
    atomic_uint
        count; /* words that have wrong bits: mostly 0, and then nothing else is looked at */
    struct emu_ecc_word words[EMU_ECC_WORDS];
    struct lora_ecc told;
    bool off; /* for tests: wrong bits are in memory, and nobody looks */
};

static inline bool emu_ecc_any(const struct emu_ecc *ecc) {
    return atomic_load_explicit(&ecc->count, memory_order_relaxed) != 0;
}

/* A fault: a bit of a word, or two, has changed. LORA_ERR_ARGUMENT: outside the arenas, or too many
 * at a time. */
int emu_ecc_flip(struct emu_board *board, uint32_t bank, uint64_t word, uint32_t bit, bool twice);
/* All words are as they were written. Counts stay. */
void emu_ecc_heal(struct emu_board *board);
/* Where a range is read: words with one wrong bit are counted; true: one has two, and is told. */
bool emu_ecc_read(struct emu_board *board, uint32_t bank, uint64_t offset, uint64_t bytes);
/* A range was written: its whole words are right again. */
void emu_ecc_written(struct emu_board *board, uint32_t bank, uint64_t offset, uint64_t bytes);
/* Where a unit's command reads: as emu_ecc_read. Its results count as written. */
bool emu_ecc_command(struct emu_board *board, const struct lora_unit_call *call);

#endif
