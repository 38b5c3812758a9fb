/* What a process does once a board's call has not returned, against a runtime of our own: the other
 * boards are asked for a register at one time before a call of theirs may take long. */
#define _GNU_SOURCE
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "transport_xrt_watchdog.h"

enum { BOARDS = 4 };

static atomic_int failures, reads[BOARDS], frees[BOARDS], slow_ms[BOARDS], silent[BOARDS];

static void check(int holds, const char *what) {
    if (holds) return;
    fprintf(stderr, "test_xrt_watchdog: %s\n", what);
    failures++;
}

static void pause_ms(long milliseconds) {
    struct timespec time = {milliseconds / 1000, milliseconds % 1000 * 1000000};
    nanosleep(&time, NULL);
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

/* Objects are numbers of boards, from 1. */
static int board_of(void *object) {
    int board = (int)(size_t)object - 1;
    if (slow_ms[board]) pause_ms(slow_ms[board]);
    while (silent[board]) pause_ms(1);
    return board;
}

static int fake_read(void *kernel, uint32_t offset, uint32_t *value) {
    reads[(size_t)kernel - 1]++;
    *value = offset + (uint32_t)board_of(kernel);
    return 0;
}

static int fake_free(void *bo) {
    frees[(size_t)bo - 1]++;
    board_of(bo);
    return 0;
}

static void *fake_open_kernel(void *device, const unsigned char uuid[16], const char *name) {
    (void)uuid, (void)name;
    return device;
}

static int fake_close_kernel(void *kernel) {
    (void)kernel;
    return 0;
}

/* In place of transport_xrt_api.c. */
static const struct xrt_api fake = {.kernel_read = fake_read,
                                    .bo_free = fake_free,
                                    .kernel_open = fake_open_kernel,
                                    .kernel_close = fake_close_kernel};
const struct xrt_api *xrt_api(struct lora_failure *failure) {
    (void)failure;
    return &fake;
}
const struct xrt_ip_api *xrt_ip_api(struct lora_failure *failure) {
    (void)failure;
    return NULL;
}
uint32_t xrt_board_count(void) { return BOARDS; }
void xrt_lock(void) {}
void xrt_unlock(void) {}
void xrt_signals_keep(struct xrt_signals *signals) { (void)signals; }
void xrt_signals_put_back(const struct xrt_signals *signals) { (void)signals; }

static struct xrt_handle boards[BOARDS];

static int call(int board, enum xrt_what what) {
    struct xrt_call one = {.what = what, .object = (void *)(size_t)(board + 1)};
    return xrt_call(&boards[board], &one);
}

static void open_all(void) {
    for (int b = 0; b < BOARDS; b++) {
        boards[b] = (struct xrt_handle){0};
        snprintf(boards[b].address, sizeof boards[b].address, "%d", b);
        boards[b].watch.place = xrt_place_of(boards[b].address);
        xrt_watch(&boards[b]);
        call(b, XRT_OPEN_KERNEL);
        reads[b] = frees[b] = silent[b] = slow_ms[b] = 0;
    }
}

static void close_all(void) {
    for (int b = 0; b < BOARDS; b++) xrt_unwatch(&boards[b]);
}

static void test_without_a_silence(void) {
    open_all();
    for (int b = 0; b < BOARDS; b++) check(!call(b, XRT_FREE), "a call");
    for (int b = 0; b < BOARDS; b++) check(reads[b] == 0 && frees[b] == 1, "nothing is asked");
    close_all();
}

/* Board 3 lives but needs a second for each answer. */
static void test_a_dead_runtime_and_a_slow_board(void) {
    open_all();
    slow_ms[3] = 1000;
    for (int b = 0; b < 3; b++) silent[b] = 1;
    double began = now();
    check(call(0, XRT_READ) < 0, "board 0 is silent");
    check(!call(3, XRT_FREE) && frees[3] == 1, "a slow board's call is made");
    double took = now() - began;
    check(took < 2 * 5 + 4, "all are asked at one time");
    check(reads[1] == 1 && reads[2] == 1 && reads[3] == 1, "each once");
    began = now();
    for (int b = 0; b < 3; b++) check(call(b, XRT_FREE) < 0 && !frees[b], "given up");
    check(now() - began < 1, "at once");
    check(!call(3, XRT_FREE) && frees[3] == 2, "and goes on");
    check(!call(3, XRT_READ), "answered");
    int before = reads[3];
    check(!call(3, XRT_FREE) && reads[3] == before, "it is not asked again");
    struct lora_failure failure = {0};
    check(xrt_check_stuck(&boards[1], &failure) && strstr(failure.message, "'read a register'"),
          "the call is named");
    check(!xrt_check_stuck(&boards[3], &failure), "the slow one is not stuck");
    for (int b = 0; b < 3; b++) check(xrt_place_stuck(boards[b].watch.place), "addresses too");
    check(!xrt_place_stuck(boards[3].watch.place), "but the slow one's");
    close_all();
    for (int b = 0; b < 3; b++) silent[b] = 0;
    for (int i = 0; i < 5000; i++) {
        unsigned left = 0;
        for (int b = 0; b < 3; b++) left |= xrt_place_stuck(boards[b].watch.place);
        if (!left) return;
        pause_ms(1);
    }
    check(0, "an address is free once its call has returned after all");
}

static void test_without_a_kernel(void) {
    open_all();
    silent[0] = 1;
    check(!call(1, XRT_CLOSE_KERNEL), "closed");
    check(call(0, XRT_READ) < 0, "board 0 is silent");
    check(!call(1, XRT_FREE) && !reads[1], "no register can be asked for");
    close_all();
    silent[0] = 0;
    while (xrt_place_stuck(boards[0].watch.place)) pause_ms(1);
}

int main(void) {
    test_without_a_silence();
    test_a_dead_runtime_and_a_slow_board();
    test_without_a_kernel();
    return failures != 0;
}
