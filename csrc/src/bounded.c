/* A helper thread makes each call, so that a call which never returns keeps a thread and not the
 * program. Helpers are used again; as many exist as calls were ever made at one time. */
#define _GNU_SOURCE
#include "bounded.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* A call that returns at once costs two switches of threads else. */
#define SPINS 2000
/* Waits are counted in slices, each at most twice its length: the time in which this process was
 * stopped, or its computer asleep, is nobody's delay. */
#define SLICE_MS 100u

enum state { IDLE, WANTED, RETURNED, LEFT };

struct lora_bounded_call {
    struct lora_bounded_call *next; /* of the idle ones */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    atomic_int state;
    lora_bounded_fn *act, *late;
    uint64_t began_ms;
    uint32_t limit_ms;
    _Alignas(16) unsigned char call[LORA_BOUNDED_BYTES];
};

static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct lora_bounded_call *idle;
static uint32_t threads;
static atomic_int leaves_at_exit;

static void in_child(void) { /* threads do not outlive a fork */
    pthread_mutex_init(&guard, NULL);
    idle = NULL;
    threads = 0;
}

static void prepare(void) { pthread_atfork(NULL, NULL, in_child); }

/* What the library does when a process ends may wait for the call that never returns. */
static void leave(int status, void *unused) {
    (void)unused;
    fflush(NULL);
    _exit(status);
}

static void set_state(struct lora_bounded_call *helper, enum state state) {
    pthread_mutex_lock(&helper->lock);
    atomic_store(&helper->state, state);
    pthread_cond_broadcast(&helper->changed);
    pthread_mutex_unlock(&helper->lock);
}

static void discard(struct lora_bounded_call *helper) {
    pthread_cond_destroy(&helper->changed);
    pthread_mutex_destroy(&helper->lock);
    free(helper);
    pthread_mutex_lock(&guard);
    threads--;
    pthread_mutex_unlock(&guard);
}

static void *work(void *given) {
    struct lora_bounded_call *helper = given;
    for (;;) {
        for (int i = 0; i < SPINS && atomic_load(&helper->state) != WANTED; i++) {
        }
        pthread_mutex_lock(&helper->lock);
        while (atomic_load(&helper->state) != WANTED)
            pthread_cond_wait(&helper->changed, &helper->lock);
        pthread_mutex_unlock(&helper->lock);
        helper->act(helper->call);
        pthread_mutex_lock(&helper->lock);
        int left = atomic_load(&helper->state) == LEFT;
        if (!left) atomic_store(&helper->state, RETURNED);
        pthread_cond_broadcast(&helper->changed);
        pthread_mutex_unlock(&helper->lock);
        if (left && helper->late) helper->late(helper->call);
        if (left) break;
    }
    discard(helper);
    return NULL;
}

static struct lora_bounded_call *start(void) {
    pthread_condattr_t clock;
    pthread_attr_t attributes;
    pthread_t thread;
    struct lora_bounded_call *helper = calloc(1, sizeof *helper);
    if (!helper) return NULL;
    pthread_mutex_init(&helper->lock, NULL);
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&helper->changed, &clock);
    pthread_condattr_destroy(&clock);
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    int failed = pthread_create(&thread, &attributes, work, helper);
    pthread_attr_destroy(&attributes);
    pthread_mutex_lock(&guard);
    threads++;
    pthread_mutex_unlock(&guard);
    if (!failed) return helper;
    discard(helper);
    return NULL;
}

static struct lora_bounded_call *take(void) {
    pthread_once(&once, prepare);
    pthread_mutex_lock(&guard);
    struct lora_bounded_call *helper = idle;
    if (helper) idle = helper->next;
    pthread_mutex_unlock(&guard);
    return helper ? helper : start();
}

static void give_back(struct lora_bounded_call *helper) {
    atomic_store(&helper->state, IDLE);
    pthread_mutex_lock(&guard);
    helper->next = idle;
    idle = helper;
    pthread_mutex_unlock(&guard);
}

static uint64_t now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* With the helper's lock held. Returns how much of the limit this has taken. */
static uint64_t wait_slice(struct lora_bounded_call *helper) {
    uint64_t began = now_ms(), until = began + SLICE_MS;
    struct timespec end = {(time_t)(until / 1000), (long)(until % 1000) * 1000000};
    pthread_cond_timedwait(&helper->changed, &helper->lock, &end);
    uint64_t took = now_ms() - began;
    return took < 2 * SLICE_MS ? took : 2 * SLICE_MS;
}

static int wait_until_end(struct lora_bounded_call *helper) {
    for (int i = 0; i < SPINS; i++)
        if (atomic_load(&helper->state) == RETURNED) break;
    pthread_mutex_lock(&helper->lock);
    uint64_t passed = now_ms() - helper->began_ms;
    if (passed > helper->limit_ms) passed = helper->limit_ms; /* one look is left in any case */
    while (atomic_load(&helper->state) != RETURNED && passed <= helper->limit_ms)
        passed += wait_slice(helper);
    int returned = atomic_load(&helper->state) == RETURNED;
    if (!returned) atomic_store(&helper->state, LEFT);
    pthread_mutex_unlock(&helper->lock);
    return returned;
}

struct lora_bounded_call *lora_bounded_begin(const struct lora_bounded_acts *acts, const void *call,
                                             size_t bytes, uint32_t limit_ms) {
    struct lora_bounded_call *helper = bytes <= LORA_BOUNDED_BYTES ? take() : NULL;
    if (!helper) return NULL;
    memcpy(helper->call, call, bytes);
    helper->act = acts->act;
    helper->late = acts->late;
    helper->began_ms = now_ms();
    helper->limit_ms = limit_ms;
    set_state(helper, WANTED);
    return helper;
}

int lora_bounded_end(struct lora_bounded_call *helper, void *call, size_t bytes) {
    if (!helper) return 0;
    if (!wait_until_end(helper)) {
        if (!atomic_exchange(&leaves_at_exit, 1)) on_exit(leave, NULL);
        return 0;
    }
    memcpy(call, helper->call, bytes);
    give_back(helper);
    return 1;
}

int lora_bounded(lora_bounded_fn *act, void *call, size_t bytes, uint32_t limit_ms) {
    const struct lora_bounded_acts acts = {act, NULL};
    return lora_bounded_end(lora_bounded_begin(&acts, call, bytes, limit_ms), call, bytes);
}

uint32_t lora_bounded_threads(void) {
    pthread_mutex_lock(&guard);
    uint32_t found = threads;
    pthread_mutex_unlock(&guard);
    return found;
}
