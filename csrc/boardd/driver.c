/* Time of emulated boards: it passes as on a card, whoever looks. */
#define _GNU_SOURCE
#include "boardd.h"

#include <time.h>

#define TICK_US 1000
#define SLICES 256 /* between two looks at a connection */

static bool is_first(const struct lora_boardd *boardd, uint32_t board) {
    for (uint32_t b = 0; b < board; b++)
        if (boardd->boards[b].emulated == boardd->boards[board].emulated) return false;
    return boardd->boards[board].emulated != 0;
}

static void advance(const struct lora_boardd *boardd, uint32_t microseconds) {
    for (uint32_t b = 0; b < boardd->board_count; b++) {
        uint32_t moved;
        if (is_first(boardd, b)) lora_emu_advance(boardd->boards[b].emulated, microseconds, &moved);
    }
}

static void *drive(void *given) {
    struct lora_boardd *boardd = given;
    const struct timespec pause = {0, TICK_US * 1000};
    uint64_t seen = wire_now_us();
    while (!atomic_load(&boardd->stopping)) {
        nanosleep(&pause, NULL);
        uint64_t now = wire_now_us();
        advance(boardd, (uint32_t)((now - seen) * boardd->speed));
        seen = now;
    }
    return NULL;
}

int boardd_drive(struct lora_boardd *boardd) {
    boardd->driving = !pthread_create(&boardd->driver, NULL, drive, boardd);
    return boardd->driving;
}

void boardd_run_emulated(struct lora_boardd *boardd, uint32_t emulated) {
    uint32_t moved = 1;
    pthread_mutex_lock(&boardd->emulating);
    for (uint32_t slice = 0; slice < SLICES && moved; slice++)
        lora_emu_advance(emulated, 0, &moved);
    pthread_mutex_unlock(&boardd->emulating);
}
