/* Threads for kernels and loading. One 64-bit word, the ticket, announces a run: number of the run,
 * items, next item. An item is taken by a compare-and-swap on it, so nobody takes one of a run that
 * is over. What belongs to a run may be read once one of its items is taken. */
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

#include "contention.h"
#include "lora/float_mode.h"

#define MAX_ITEMS 0xffffu       /* of one ticket */
#define SPIN_NS 300000          /* longer than what a host does between two steps */
#define SPINS_BETWEEN 64        /* looks between two at the clock */
#define LOOKS_BEFORE_SLEEP 4096 /* some 100 us */
#define NO_CPU (-1)
#define LINE 64 /* words that different threads write lie on lines of their own */

typedef void (*pool_task)(void *context, uint32_t item, uint32_t thread);
typedef bool (*idle_task)(void *context, uint32_t thread);

struct worker {
    struct lora_pool *pool;
    pthread_t handle;
    uint32_t thread;
    int cpu; /* where it stays, NO_CPU: anywhere */
    struct thread_time time;
};

struct lora_pool {
    _Alignas(LINE) _Atomic uint64_t ticket;
    pool_task task; /* of the run that the ticket names: they come with its line */
    void *context;
    _Alignas(LINE) _Atomic uint32_t unfinished; /* items that no worker has done */
    atomic_bool caller_sleeps;
    _Alignas(LINE) _Atomic uint32_t sleepers;
    atomic_bool ending;
    atomic_int caller_cpu, spare_cpu; /* spare: no worker stays there, the caller should */
    idle_task idle;
    _Atomic(void *) idle_context;             /* NULL: nothing to do meanwhile */
    _Alignas(LINE) uint32_t threads, started; /* started: workers that run */
    bool tried;                               /* to start them */
    bool placed;                              /* workers stay on CPUs of their own */
    pid_t owner;                              /* a forked child has the pool without its threads */
    pthread_mutex_t lock;
    pthread_cond_t wake, admitted, finished;
    struct contention contention;
    struct thread_time time; /* the caller's */
    struct worker workers[LORA_POOL_THREADS];
};

/* This thread runs items of a run. initial-exec: it is read with every run. */
static _Thread_local struct {
    struct lora_pool *pool; /* NULL: none */
    uint32_t thread;
} running __attribute__((tls_model("initial-exec")));

static uint32_t items_of(uint64_t ticket) { return (uint32_t)(ticket >> 16) & MAX_ITEMS; }

static bool has_items(uint64_t ticket) { return (ticket & MAX_ITEMS) < items_of(ticket); }

static void relax(void) {
#if defined(__x86_64__)
    _mm_pause();
#endif
}

void lora_pool_pass_time(struct lora_pool *pool, uint32_t thread) {
    void *context = pool ? atomic_load_explicit(&pool->idle_context, memory_order_acquire) : NULL;
    if (!context || !pool->idle(context, thread)) relax();
}

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void stay_on(int cpu) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    pthread_setaffinity_np(pthread_self(), sizeof one, &one);
}

/* A worker and the caller on one CPU would wait for each other. Where each thread can have a CPU of
 * its own, the worker moves to the free CPU when the system has moved the caller to the
 * worker's. */
static void keep_apart(struct worker *self) {
    struct lora_pool *pool = self->pool;
    if (self->cpu == NO_CPU || atomic_load(&pool->caller_cpu) != self->cpu) return;
    self->cpu = atomic_exchange(&pool->spare_cpu, self->cpu);
    stay_on(self->cpu);
}

/* Takes items until there are none. Counts them. Returns the ticket as last read. */
static uint64_t take_items(struct lora_pool *pool, uint32_t thread, uint32_t *done) {
    uint64_t ticket = atomic_load(&pool->ticket);
    while (has_items(ticket)) {
        if (!atomic_compare_exchange_weak(&pool->ticket, &ticket, ticket + 1)) continue;
        pool->task(pool->context, (uint32_t)(ticket & MAX_ITEMS), thread);
        ++*done;
        ticket = atomic_load(&pool->ticket);
    }
    return ticket;
}

static void broadcast(struct lora_pool *pool, pthread_cond_t *condition) {
    pthread_mutex_lock(&pool->lock);
    pthread_cond_broadcast(condition);
    pthread_mutex_unlock(&pool->lock);
}

/* The caller says that it sleeps, then reads the count. So one of the two sees the other. */
static void finish(struct lora_pool *pool, uint32_t done) {
    atomic_fetch_sub(&pool->unfinished, done);
    if (atomic_load(&pool->caller_sleeps)) broadcast(pool, &pool->finished);
}

/* A worker's share of a run. */
static uint64_t work(struct lora_pool *pool, uint32_t thread) {
    uint32_t done = 0;
    running.thread = thread;
    running.pool = pool;
    uint64_t ticket = take_items(pool, thread, &done);
    running.pool = NULL;
    if (done) finish(pool, done);
    return ticket;
}

static bool takes_part(const struct worker *self) {
    return self->thread <= contention_active(&self->pool->contention);
}

/* Returns the ticket once it differs from `seen`, or after a while `seen`. */
static uint64_t spin_for_work(struct worker *self, uint64_t seen) {
    struct lora_pool *pool = self->pool;
    uint64_t since = now_ns();
    do {
        keep_apart(self);
        for (uint32_t i = 0; i < SPINS_BETWEEN; i++) {
            uint64_t ticket = atomic_load(&pool->ticket);
            if (ticket != seen) return ticket;
            lora_pool_pass_time(pool, self->thread);
        }
    } while (!atomic_load(&pool->ending) && takes_part(self) && now_ns() - since < SPIN_NS);
    return seen;
}

/* A sleeper counts itself, then reads the ticket. The caller publishes the ticket, does its first
 * item, then reads the count of sleepers. So one of them sees the other. A sleeper that wakes after
 * the work was done spins on: more work follows soon. */
static void sleep_for_work(struct worker *self, uint64_t seen) {
    struct lora_pool *pool = self->pool;
    pthread_mutex_lock(&pool->lock);
    atomic_fetch_add(&pool->sleepers, 1);
    while (atomic_load(&pool->ticket) == seen && !atomic_load(&pool->ending))
        pthread_cond_wait(&pool->wake, &pool->lock);
    atomic_fetch_sub(&pool->sleepers, 1);
    pthread_mutex_unlock(&pool->lock);
    contention_look(&self->time);
}

/* Until this worker takes part again. No run wakes it. */
static void stand_by(struct worker *self) {
    struct lora_pool *pool = self->pool;
    pthread_mutex_lock(&pool->lock);
    while (!takes_part(self) && !atomic_load(&pool->ending))
        pthread_cond_wait(&pool->admitted, &pool->lock);
    pthread_mutex_unlock(&pool->lock);
    contention_look(&self->time);
}

static void *worker_main(void *argument) {
    struct worker *self = argument;
    float_mode_set();
    contention_look(&self->time);
    if (self->cpu != NO_CPU) stay_on(self->cpu);
    uint64_t seen = 0;
    while (!atomic_load(&self->pool->ending)) {
        uint64_t ticket = spin_for_work(self, seen);
        if (!takes_part(self)) stand_by(self);
        else if (ticket == seen) sleep_for_work(self, seen);
        keep_apart(self);
        seen = work(self->pool, self->thread);
        contention_note(&self->pool->contention, &self->time);
    }
    return NULL;
}

/* The index-th CPU that this process may use, `without` left out. */
static int nth_cpu(uint32_t index, int without) {
    cpu_set_t set;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof set, &set)) return NO_CPU;
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &set) && cpu != without && index-- == 0) return cpu;
    return NO_CPU;
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
    atomic_init(&pool->caller_cpu, NO_CPU);
    atomic_init(&pool->spare_cpu, NO_CPU);
    atomic_init(&pool->idle_context, NULL);
    atomic_init(&pool->caller_sleeps, false);
    contention_init(&pool->contention);
    pool->time = (struct thread_time){0};
    pool->threads = threads < LORA_POOL_THREADS ? threads : LORA_POOL_THREADS;
    pool->started = 0;
    pool->tried = pool->placed = false;
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->wake, NULL);
    pthread_cond_init(&pool->admitted, NULL);
    pthread_cond_init(&pool->finished, NULL);
    return pool;
}

void lora_pool_free(struct lora_pool *pool) {
    if (!pool) return;
    atomic_store(&pool->ending, true);
    if (pool->tried && pool->owner != getpid()) return; /* what the parent's threads hold stays */
    broadcast(pool, &pool->wake);
    broadcast(pool, &pool->admitted);
    for (uint32_t i = 0; i < pool->started; i++) pthread_join(pool->workers[i].handle, NULL);
    pthread_cond_destroy(&pool->wake);
    pthread_cond_destroy(&pool->admitted);
    pthread_cond_destroy(&pool->finished);
    pthread_mutex_destroy(&pool->lock);
    free(atomic_load(&pool->idle_context));
    free(pool);
}

void lora_pool_set_idle(struct lora_pool *pool, idle_task task, void *context) {
    pool->idle = task;
    atomic_store_explicit(&pool->idle_context, context, memory_order_release);
}

struct lora_pool *lora_pool_running(uint32_t *thread) {
    *thread = running.thread;
    return running.pool;
}

void *lora_pool_idle_context(const struct lora_pool *pool) {
    return atomic_load_explicit(&pool->idle_context, memory_order_relaxed);
}

uint32_t lora_pool_threads(const struct lora_pool *pool) { return pool ? pool->threads : 1; }

static bool start_worker(struct lora_pool *pool, uint32_t index) {
    struct worker *worker = &pool->workers[index];
    *worker = (struct worker){.pool = pool, .thread = index + 1, .cpu = NO_CPU};
    if (pool->placed) worker->cpu = nth_cpu(index, atomic_load(&pool->spare_cpu));
    return pthread_create(&worker->handle, NULL, worker_main, worker) == 0;
}

/* Where the system refuses a thread, fewer do the work; the caller alone can do it all. Signals are
 * left to the program's own threads. */
static void start_workers(struct lora_pool *pool) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int here = sched_getcpu();
    pool->tried = true;
    pool->placed = here >= 0 && usable_cpus() == pool->threads;
    atomic_store(&pool->spare_cpu, here);
    pool->owner = getpid();
    contention_start(&pool->contention, pool->threads - 1);
    while (pool->started + 1 < pool->threads && start_worker(pool, pool->started)) pool->started++;
    contention_start(&pool->contention, pool->started);
    contention_look(&pool->time);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* Other threads run the last items. They end soon, unless they lost their CPU: then the caller
 * leaves its own to them. */
static void wait_for_others(struct lora_pool *pool, uint32_t own) {
    for (uint32_t looks = 0; looks < LOOKS_BEFORE_SLEEP; looks++) {
        if (atomic_load(&pool->unfinished) == own) return;
        lora_pool_pass_time(pool, 0);
    }
    pthread_mutex_lock(&pool->lock);
    atomic_store(&pool->caller_sleeps, true);
    while (atomic_load(&pool->unfinished) != own) pthread_cond_wait(&pool->finished, &pool->lock);
    atomic_store(&pool->caller_sleeps, false);
    pthread_mutex_unlock(&pool->lock);
}

/* Workers read it again and again: it is written when it changes. */
static void note_caller(struct lora_pool *pool) {
    int cpu = sched_getcpu();
    if (atomic_load(&pool->caller_cpu) != cpu) atomic_store(&pool->caller_cpu, cpu);
}

static void wake_sleepers(struct lora_pool *pool) {
    if (atomic_load(&pool->sleepers)) broadcast(pool, &pool->wake);
}

/* The caller owns the first item from the start and counts its own items itself. Before its work it
 * then waits for no cache line that a worker holds; on a virtual machine such a line may take
 * long. */
static void run_ticket(struct lora_pool *pool, uint32_t count, pool_task task, void *context) {
    uint64_t before = atomic_load_explicit(&pool->ticket, memory_order_relaxed);
    uint64_t ticket = ((before >> 32) + 1) << 32 | (uint64_t)count << 16 | 1;
    uint32_t own = 1;
    pool->task = task;
    pool->context = context;
    if (pool->placed) note_caller(pool);
    atomic_store_explicit(&pool->unfinished, count, memory_order_relaxed);
    atomic_store_explicit(&pool->ticket, ticket, memory_order_release);
    wake_sleepers(pool);
    running.thread = 0;
    running.pool = pool;
    task(context, 0, 0);
    wake_sleepers(pool);
    take_items(pool, 0, &own);
    running.pool = NULL;
    wait_for_others(pool, own);
    contention_note(&pool->contention, &pool->time);
}

/* No worker takes part. */
static void run_alone(struct lora_pool *pool, uint32_t count, pool_task task, void *context) {
    running.thread = 0;
    running.pool = pool;
    for (uint32_t i = 0; i < count; i++) task(context, i, 0);
    running.pool = NULL;
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

static void admit(struct lora_pool *pool) {
    contention_look(&pool->time);
    broadcast(pool, &pool->admitted);
}

void lora_pool_run(struct lora_pool *pool, uint32_t count, pool_task task, void *context) {
    if (!pool || pool->threads < 2 || count < 2 || running.pool) {
        for (uint32_t i = 0; i < count; i++) task(context, i, 0);
        return;
    }
    if (!pool->tried) start_workers(pool);
    if (contention_decide(&pool->contention)) admit(pool);
    if (!contention_active(&pool->contention)) {
        run_alone(pool, count, task, context);
        return;
    }
    struct part part = {task, context, 0};
    while (count - part.first > MAX_ITEMS) {
        run_ticket(pool, MAX_ITEMS, run_part, &part);
        part.first += MAX_ITEMS;
    }
    if (part.first) run_ticket(pool, count - part.first, run_part, &part);
    else run_ticket(pool, count, task, context);
}
