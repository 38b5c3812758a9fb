/* Threads for kernels and loading. A run is announced in one 64-bit word, the ticket: number of the
 * run, items, next item. Taking an item is a compare-and-swap on it, so nobody takes an item of a run
 * that is over, and what belongs to a run may be read once one of its items is taken. */
#define _GNU_SOURCE
#include "lora/pool.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "kernels/float_mode.h"

#define MOST_ITEMS 0xffffu  /* of one ticket */
#define SPIN_NS 40000       /* longer than what lies between two kernels; waking costs as much */
#define SPINS_BETWEEN 64    /* looks between two at the clock */
#define LINE 64             /* words that different threads write lie on lines of their own */

typedef void (*pool_task)(void *context, uint32_t item, uint32_t thread);

struct worker {
    struct lora_pool *pool;
    pthread_t handle;
    uint32_t thread;
};

struct lora_pool {
    _Alignas(LINE) _Atomic uint64_t ticket;
    _Alignas(LINE) _Atomic uint32_t unfinished;
    _Alignas(LINE) _Atomic uint32_t sleepers;
    atomic_bool ending;
    _Alignas(LINE) pool_task task; /* of the run that the ticket names */
    void *context;
    uint32_t threads, started; /* started: workers that run */
    bool tried;                /* to start them */
    pid_t owner;               /* a forked child has the pool without its threads */
    pthread_mutex_t lock;
    pthread_cond_t wake;
    struct worker workers[LORA_POOL_THREADS];
};

static uint32_t items_of(uint64_t ticket) { return (uint32_t)(ticket >> 16) & MOST_ITEMS; }

static bool has_items(uint64_t ticket) { return (ticket & MOST_ITEMS) < items_of(ticket); }

static void relax(void) {
#if defined(__x86_64__)
    _mm_pause();
#endif
}

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Takes items until there are none. */
static void work(struct lora_pool *pool, uint32_t thread) {
    uint64_t ticket = atomic_load(&pool->ticket);
    while (has_items(ticket)) {
        if (!atomic_compare_exchange_weak(&pool->ticket, &ticket, ticket + 1)) continue;
        pool->task(pool->context, (uint32_t)(ticket & MOST_ITEMS), thread);
        atomic_fetch_sub(&pool->unfinished, 1);
        ticket = atomic_load(&pool->ticket);
    }
}

/* Work, or the end of a while without any. */
static bool spin_for_work(struct lora_pool *pool) {
    uint64_t since = now_ns();
    do {
        for (uint32_t i = 0; i < SPINS_BETWEEN; i++) {
            if (has_items(atomic_load(&pool->ticket))) return true;
            relax();
        }
    } while (!atomic_load(&pool->ending) && now_ns() - since < SPIN_NS);
    return false;
}

/* The sleeper counts itself, then looks; the caller announces, then counts sleepers: one sees the
 * other. */
static void sleep_for_work(struct lora_pool *pool) {
    pthread_mutex_lock(&pool->lock);
    atomic_fetch_add(&pool->sleepers, 1);
    while (!has_items(atomic_load(&pool->ticket)) && !atomic_load(&pool->ending))
        pthread_cond_wait(&pool->wake, &pool->lock);
    atomic_fetch_sub(&pool->sleepers, 1);
    pthread_mutex_unlock(&pool->lock);
}

static void *worker_main(void *argument) {
    struct worker *self = argument;
    float_mode_set();
    while (!atomic_load(&self->pool->ending)) {
        if (!spin_for_work(self->pool)) sleep_for_work(self->pool);
        work(self->pool, self->thread);
    }
    return NULL;
}

static uint32_t usable_cpus(void) {
    cpu_set_t set;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof set, &set)) return 1;
    int count = CPU_COUNT(&set);
    return count > 0 ? (uint32_t)count : 1;
}

struct lora_pool *lora_pool_create(uint32_t threads) {
    struct lora_pool *pool = aligned_alloc(LINE, (sizeof *pool + LINE - 1) / LINE * LINE);
    if (!pool) return NULL;
    if (threads == 0) threads = usable_cpus();
    atomic_init(&pool->ticket, 0);
    atomic_init(&pool->unfinished, 0);
    atomic_init(&pool->sleepers, 0);
    atomic_init(&pool->ending, false);
    pool->threads = threads < LORA_POOL_THREADS ? threads : LORA_POOL_THREADS;
    pool->started = 0;
    pool->tried = false;
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->wake, NULL);
    return pool;
}

static void wake_all(struct lora_pool *pool) {
    pthread_mutex_lock(&pool->lock);
    pthread_cond_broadcast(&pool->wake);
    pthread_mutex_unlock(&pool->lock);
}

void lora_pool_free(struct lora_pool *pool) {
    if (!pool) return;
    atomic_store(&pool->ending, true);
    if (pool->tried && pool->owner != getpid()) return; /* what the parent's threads hold stays */
    wake_all(pool);
    for (uint32_t i = 0; i < pool->started; i++) pthread_join(pool->workers[i].handle, NULL);
    pthread_cond_destroy(&pool->wake);
    pthread_mutex_destroy(&pool->lock);
    free(pool);
}

uint32_t lora_pool_threads(const struct lora_pool *pool) { return pool ? pool->threads : 1; }

static bool start_worker(struct lora_pool *pool, uint32_t index) {
    struct worker *worker = &pool->workers[index];
    *worker = (struct worker){.pool = pool, .thread = index + 1};
    return pthread_create(&worker->handle, NULL, worker_main, worker) == 0;
}

/* What the system does not give is done by fewer: the caller alone can do it all. Signals are for the
 * program's own threads. */
static void start_workers(struct lora_pool *pool) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pool->tried = true;
    pool->owner = getpid();
    while (pool->started + 1 < pool->threads && start_worker(pool, pool->started)) pool->started++;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* Others hold the last items: they are about to end, unless they lost their CPU. */
static void wait_for_others(struct lora_pool *pool) {
    for (uint32_t looks = 0; atomic_load(&pool->unfinished); looks++) {
        if (looks < 1u << 14) relax();
        else sched_yield();
    }
}

static void run_ticket(struct lora_pool *pool, uint32_t count, pool_task task, void *context) {
    uint64_t number = (atomic_load(&pool->ticket) >> 32) + 1;
    pool->task = task;
    pool->context = context;
    atomic_store(&pool->unfinished, count);
    atomic_store(&pool->ticket, number << 32 | (uint64_t)count << 16);
    if (atomic_load(&pool->sleepers)) wake_all(pool);
    work(pool, 0);
    wait_for_others(pool);
}

struct part { /* of a run with more items than a ticket has */
    pool_task task;
    void *context;
    uint32_t first;
};

static void run_part(void *context, uint32_t item, uint32_t thread) {
    const struct part *part = context;
    part->task(part->context, part->first + item, thread);
}

void lora_pool_run(struct lora_pool *pool, uint32_t count, pool_task task, void *context) {
    if (!pool || pool->threads < 2 || count < 2) {
        for (uint32_t i = 0; i < count; i++) task(context, i, 0);
        return;
    }
    if (!pool->tried) start_workers(pool);
    struct part part = {task, context, 0};
    while (count - part.first > MOST_ITEMS) {
        run_ticket(pool, MOST_ITEMS, run_part, &part);
        part.first += MOST_ITEMS;
    }
    if (part.first) run_ticket(pool, count - part.first, run_part, &part);
    else run_ticket(pool, count, task, context);
}
