/* Who holds which board: one host at a time. */
#include "boardd.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

struct boardd_board *boardd_find(struct lora_boardd *boardd, const char *name) {
    for (uint32_t b = 0; b < boardd->board_count; b++)
        if (!strcmp(boardd->boards[b].name, name)) return &boardd->boards[b];
    /* "emu:u280" is the first of its kind */
    for (uint32_t b = 0; b < boardd->board_count; b++) {
        size_t bytes = strlen(name);
        const char *found = boardd->boards[b].name;
        if (!strncmp(found, name, bytes) && !strcmp(found + bytes, "/0")) return &boardd->boards[b];
    }
    return NULL;
}

static void after(struct timespec *end, uint64_t microseconds) {
    clock_gettime(CLOCK_REALTIME, end);
    end->tv_sec += (time_t)(microseconds / 1000000);
}

/* The end of a host that has just gone may still have to be noticed, then to be seen to. */
int boardd_hold(struct lora_boardd *boardd, struct boardd_board *board, const char *who,
                struct lora_failure *failure) {
    struct timespec soon, end;
    after(&soon, BOARDD_NOTICING_US);
    after(&end, BOARDD_LEAVING_US);
    pthread_mutex_lock(&boardd->lock);
    int late = 0;
    while (board->held && !late)
        late = pthread_cond_timedwait(&boardd->freed, &boardd->lock, &soon);
    for (late = 0; board->held && board->leaving && !late;)
        late = pthread_cond_timedwait(&boardd->freed, &boardd->lock, &end);
    int status = LORA_OK;
    if (board->held)
        status = lora_fail(failure, LORA_ERR_TRANSPORT,
                           "board %s: held by %s; end it or take another board", board->name,
                           board->holder);
    else {
        board->held = true;
        board->leaving = false;
        board->sessions++;
        snprintf(board->holder, sizeof board->holder, "%s", who);
    }
    pthread_mutex_unlock(&boardd->lock);
    return status;
}

void boardd_leave(struct lora_boardd *boardd, struct boardd_board *board) {
    pthread_mutex_lock(&boardd->lock);
    board->leaving = true;
    pthread_mutex_unlock(&boardd->lock);
}

void boardd_free(struct lora_boardd *boardd, struct boardd_board *board) {
    pthread_mutex_lock(&boardd->lock);
    board->held = board->leaving = false;
    board->holder[0] = '\0';
    pthread_cond_broadcast(&boardd->freed);
    pthread_mutex_unlock(&boardd->lock);
}

uint32_t lora_boardd_states(struct lora_boardd *boardd, struct lora_boardd_state *states,
                            uint32_t capacity) {
    pthread_mutex_lock(&boardd->lock);
    for (uint32_t b = 0; b < boardd->board_count && b < capacity; b++) {
        struct boardd_board *board = &boardd->boards[b];
        states[b] = (struct lora_boardd_state){.busy = atomic_load(&board->busy),
                                               .sessions = board->sessions};
        memcpy(states[b].name, board->name, sizeof states[b].name);
        memcpy(states[b].holder, board->holder, sizeof states[b].holder);
    }
    pthread_mutex_unlock(&boardd->lock);
    return boardd->board_count;
}
