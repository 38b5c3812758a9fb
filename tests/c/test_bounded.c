/* Calls with a time limit: results, calls that never return, many at one time, an exit with one. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "bounded.h"

static atomic_int failures, released, late;

static void check(int holds, const char *what) {
    if (holds) return;
    fprintf(stderr, "test_bounded: %s\n", what);
    failures++;
}

struct sum {
    int a, b, result;
};

static void add(void *call) {
    struct sum *sum = call;
    sum->result = sum->a + sum->b;
}

static void pause_ms(long milliseconds) {
    struct timespec time = {milliseconds / 1000, milliseconds % 1000 * 1000000};
    nanosleep(&time, NULL);
}

static void hang(void *call) {
    while (!released) pause_ms(1);
    ((struct sum *)call)->result = 99;
    late++;
}

static void *many(void *given) {
    for (int i = 0; i < 2000; i++) {
        struct sum sum = {i, (int)(size_t)given, 0};
        check(lora_bounded(add, &sum, sizeof sum, 60000) && sum.result == sum.a + sum.b,
              "a call's result is its own");
    }
    return NULL;
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static void test_results(void) {
    pthread_t threads[4];
    for (size_t i = 0; i < 4; i++) pthread_create(&threads[i], NULL, many, (void *)i);
    for (size_t i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    check(lora_bounded_threads() <= 4, "helpers are used again");
}

static void test_a_call_that_never_returns(void) {
    struct sum sum = {1, 2, 3};
    double began = now();
    check(!lora_bounded(hang, &sum, sizeof sum, 50), "it is left");
    check(now() - began < 10, "in time");
    for (int i = 0; i < 100; i++) {
        struct sum other = {i, 1, 0};
        check(lora_bounded(add, &other, sizeof other, 60000) && other.result == i + 1,
              "other calls go on");
    }
    uint32_t before = lora_bounded_threads();
    released = 1;
    while (!late) pause_ms(1);
    check(sum.result == 3, "what returns late touches nothing of ours");
    for (int i = 0; i < 1000 && lora_bounded_threads() == before; i++) pause_ms(1);
    check(lora_bounded_threads() == before - 1, "its thread ends when it returns after all");
    released = 0;
}

static void hang_at_exit(void) { hang(&(struct sum){0}); }

/* The library's own handlers at exit would wait for ever. */
static void test_exit(void) {
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        struct sum sum = {0};
        atexit(hang_at_exit);
        check(!lora_bounded(hang, &sum, sizeof sum, 20), "it is left");
        exit(7);
    }
    int status = 0;
    alarm(20);
    waitpid(child, &status, 0);
    alarm(0);
    check(WIFEXITED(status) && WEXITSTATUS(status) == 7, "the process ends, with its exit code");
}

static void take_long(void *call) {
    (void)call;
    for (int i = 0; i < 300; i++) pause_ms(1);
}

/* A process that is stopped for longer than the limit, in a call that takes a part of it. */
static void test_a_process_that_was_stopped(void) {
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        struct sum sum = {0};
        _exit(lora_bounded(take_long, &sum, sizeof sum, 2000) ? 7 : 8);
    }
    int status = 0;
    pause_ms(100);
    kill(child, SIGSTOP);
    pause_ms(2500);
    kill(child, SIGCONT);
    waitpid(child, &status, 0);
    check(WIFEXITED(status) && WEXITSTATUS(status) == 7, "the time of a stop does not count");
}

struct noted {
    atomic_int *late;
    int value;
};

static void hang_noted(void *call) {
    while (!released) pause_ms(1);
    ((struct noted *)call)->value = 5;
}

static void note(void *call) { *((struct noted *)call)->late += ((struct noted *)call)->value; }

/* Three calls wait together, and what they do when they return after all. */
static void test_calls_that_wait_together(void) {
    static atomic_int noted;
    const struct lora_bounded_acts acts = {hang_noted, note};
    struct noted call = {&noted, 0};
    struct lora_bounded_call *begun[3];
    released = 0;
    double began = now();
    for (int i = 0; i < 3; i++) begun[i] = lora_bounded_begin(&acts, &call, sizeof call, 2000);
    for (int i = 0; i < 3; i++) check(!lora_bounded_end(begun[i], &call, sizeof call), "left");
    check(now() - began < 4, "limits do not add up");
    check(!noted && !call.value, "none has returned");
    released = 1;
    for (int i = 0; i < 10000 && noted != 15; i++) pause_ms(1);
    check(noted == 15, "each is told once");
    released = 0;
    const struct lora_bounded_acts quick = {add, note};
    struct sum sum = {1, 2, 0};
    check(lora_bounded_end(lora_bounded_begin(&quick, &sum, sizeof sum, 60000), &sum, sizeof sum),
          "in time");
    check(sum.result == 3 && noted == 15, "a call in time is not told as late");
}

int main(void) {
    test_a_process_that_was_stopped();
    test_exit(); /* first: a fork of several threads is no business of the sanitizer's */
    test_results();
    test_a_call_that_never_returns();
    test_calls_that_wait_together();
    return failures != 0;
}
