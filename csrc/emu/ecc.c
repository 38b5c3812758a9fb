/* Words of memory with wrong bits: planted by faults, found where they are read, right again once
 * they are written. */
#include "board.h"

#include <string.h>

static void flip_bytes(uint8_t *word, uint32_t bit, bool twice) {
    word[bit / 8 % EMU_ECC_WORD] ^= (uint8_t)(1u << bit % 8);
    if (twice) word[(bit / 8 + 3) % EMU_ECC_WORD] ^= (uint8_t)(1u << bit % 8);
}

int emu_ecc_flip(struct emu_board *board, uint32_t bank, uint64_t word, uint32_t bit, bool twice) {
    struct emu_ecc *ecc = &board->ecc;
    uint64_t offset = word * EMU_ECC_WORD;
    uint8_t *at = bank < board->info.bank_count
                      ? emu_memory_at(&board->memory, bank, offset, EMU_ECC_WORD)
                      : NULL;
    if (!at) return LORA_ERR_ARGUMENT;
    if (ecc->off) {
        flip_bytes(at, bit, twice);
        return LORA_OK;
    }
    pthread_mutex_lock(&ecc->lock);
    uint32_t count = atomic_load(&ecc->count);
    if (count < EMU_ECC_WORDS) {
        ecc->words[count] = (struct emu_ecc_word){bank, offset, twice};
        atomic_store(&ecc->count, count + 1);
    }
    pthread_mutex_unlock(&ecc->lock);
    return count < EMU_ECC_WORDS ? LORA_OK : LORA_ERR_ARGUMENT;
}

void emu_ecc_heal(struct emu_board *board) {
    pthread_mutex_lock(&board->ecc.lock);
    atomic_store(&board->ecc.count, 0);
    pthread_mutex_unlock(&board->ecc.lock);
}

static bool is_in(const struct emu_ecc_word *word, uint32_t bank, uint64_t offset, uint64_t bytes) {
    return word->bank == bank && offset < word->offset + EMU_ECC_WORD &&
           word->offset < offset + bytes;
}

bool emu_ecc_read(struct emu_board *board, uint32_t bank, uint64_t offset, uint64_t bytes) {
    struct emu_ecc *ecc = &board->ecc;
    bool wrong = false;
    pthread_mutex_lock(&ecc->lock);
    for (uint32_t i = 0; i < atomic_load(&ecc->count); i++) {
        const struct emu_ecc_word *word = &ecc->words[i];
        if (!is_in(word, bank, offset, bytes)) continue;
        if (!word->twice) {
            ecc->told.corrected[bank]++;
            continue;
        }
        ecc->told.uncorrected[bank]++;
        ecc->told.failures++;
        ecc->told.bank = bank;
        ecc->told.offset = word->offset;
        wrong = true;
    }
    pthread_mutex_unlock(&ecc->lock);
    return wrong;
}

/* A part of a word is written by way of its old value, which cannot be had. */
void emu_ecc_written(struct emu_board *board, uint32_t bank, uint64_t offset, uint64_t bytes) {
    struct emu_ecc *ecc = &board->ecc;
    pthread_mutex_lock(&ecc->lock);
    uint32_t count = atomic_load(&ecc->count);
    for (uint32_t i = 0; i < count;) {
        const struct emu_ecc_word *word = &ecc->words[i];
        bool whole = word->bank == bank && offset <= word->offset &&
                     word->offset + EMU_ECC_WORD <= offset + bytes;
        if (whole) ecc->words[i] = ecc->words[--count];
        else i++;
    }
    atomic_store(&ecc->count, count);
    pthread_mutex_unlock(&ecc->lock);
}
