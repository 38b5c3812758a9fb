/* A helper thread makes each call, so that a call which never returns keeps a thread and not the
 * program. Helpers are used again; as many exist as calls were ever made at one time. */
#define _GNU_SOURCE
#include "bounded.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* A call that returns at once costs two switches of threads else. */
#define SPINS 2000

enum state { IDLE, WANTED, RETURNED, LEFT };

struct helper {
    struct helper *next; /* of the idle ones */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    atomic_int state;
    lora_bounded_fn *act;
    _Alignas(16) unsigned char call[LORA_BOUNDED_BYTES];
};

static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct helper *idle;
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

static void set_state(struct helper *helper, enum state state) {
    pthread_mutex_lock(&helper->lock);
    atomic_store(&helper->state, state);
    pthread_cond_broadcast(&helper->changed);
    pthread_mutex_unlock(&helper->lock);
}

static void discard(struct helper *helper) {
    pthread_cond_destroy(&helper->changed);
    pthread_mutex_destroy(&helper->lock);
    free(helper);
    pthread_mutex_lock(&guard);
    threads--;
    pthread_mutex_unlock(&guard);
}

static void *work(void *given) {
    struct helper *helper = given;
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
        if (left) break;
    }
    discard(helper);
    return NULL;
}

static struct helper *start(void) {
    pthread_condattr_t clock;
    pthread_attr_t attributes;
    pthread_t thread;
    struct helper *helper = calloc(1, sizeof *helper);
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

static struct helper *take(void) {
    pthread_once(&once, prepare);
    pthread_mutex_lock(&guard);
    struct helper *helper = idle;
    if (helper) idle = helper->next;
    pthread_mutex_unlock(&guard);
    return helper ? helper : start();
}

static void give_back(struct helper *helper) {
    atomic_store(&helper->state, IDLE);
    pthread_mutex_lock(&guard);
    helper->next = idle;
    idle = helper;
    pthread_mutex_unlock(&guard);
}

static int wait_until(struct helper *helper, uint32_t limit_ms) {
    struct timespec end;
    for (int i = 0; i < SPINS; i++)
        if (atomic_load(&helper->state) == RETURNED) break;
    clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_sec += limit_ms / 1000;
    end.tv_nsec += (long)(limit_ms % 1000) * 1000000;
    if (end.tv_nsec >= 1000000000) end.tv_sec++, end.tv_nsec -= 1000000000;
    pthread_mutex_lock(&helper->lock);
    int late = 0;
    while (atomic_load(&helper->state) != RETURNED && late != ETIMEDOUT)
        late = pthread_cond_timedwait(&helper->changed, &helper->lock, &end);
    int returned = atomic_load(&helper->state) == RETURNED;
    if (!returned) atomic_store(&helper->state, LEFT);
    pthread_mutex_unlock(&helper->lock);
    return returned;
}

int lora_bounded(lora_bounded_fn *act, void *call, size_t bytes, uint32_t limit_ms) {
    struct helper *helper = bytes <= LORA_BOUNDED_BYTES ? take() : NULL;
    if (!helper) return 0;
    memcpy(helper->call, call, bytes);
    helper->act = act;
    set_state(helper, WANTED);
    if (!wait_until(helper, limit_ms)) {
        if (!atomic_exchange(&leaves_at_exit, 1)) on_exit(leave, NULL);
        return 0;
    }
    memcpy(call, helper->call, bytes);
    give_back(helper);
    return 1;
}

uint32_t lora_bounded_threads(void) {
    pthread_mutex_lock(&guard);
    uint32_t found = threads;
    pthread_mutex_unlock(&guard);
    return found;
}
