#define _GNU_SOURCE
#include "contention.h"

#include <sys/resource.h>
#include <time.h>

#define RUNS_BETWEEN 8 /* between two looks: one takes some 300 ns */
#define WINDOW_NS 50000000u
#define TRIAL_NS 50000000u
#define TRIAL_LOST_NS 2000000u /* less than a busy CPU takes from a thread at once */
#define MIN_PAUSE_NS 50000000u
#define MAX_PAUSE_NS 1000000000u /* a trial that fails costs some 5 ms */

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void contention_init(struct contention *contention) {
    *contention = (struct contention){.pause_ns = MIN_PAUSE_NS};
    atomic_init(&contention->active, 0);
    atomic_init(&contention->lost_ns, 0);
}

void contention_start(struct contention *contention, uint32_t workers) {
    contention->workers = workers;
    atomic_store(&contention->active, workers);
}

static uint64_t ns_of(const struct timeval *time) {
    return (uint64_t)time->tv_sec * 1000000000u + (uint64_t)time->tv_usec * 1000u;
}

bool contention_look(struct thread_time *time) {
    struct rusage usage;
    if (getrusage(RUSAGE_THREAD, &usage)) return false;
    time->wall_ns = now_ns();
    time->cpu_ns = ns_of(&usage.ru_utime) + ns_of(&usage.ru_stime);
    time->sleeps = usage.ru_nvcsw;
    time->switches = usage.ru_nivcsw;
    return true;
}

/* Between two looks without a sleep, the time off the CPU is time that another program had it. */
void contention_note(struct contention *contention, struct thread_time *time) {
    struct thread_time before = *time;
    if (time->runs++ % RUNS_BETWEEN || !contention_look(time)) return;
    uint64_t wall = time->wall_ns - before.wall_ns, cpu = time->cpu_ns - before.cpu_ns;
    if (time->sleeps == before.sleeps && time->switches != before.switches && wall > cpu)
        atomic_fetch_add(&contention->lost_ns, wall - cpu);
}

static void one_fewer(struct contention *contention, uint64_t now) {
    uint64_t longer = contention->pause_ns * 2;
    if (now >= contention->trial + MAX_PAUSE_NS) contention->pause_ns = MIN_PAUSE_NS;
    else contention->pause_ns = longer < MAX_PAUSE_NS ? longer : MAX_PAUSE_NS;
    contention->retry = now + contention->pause_ns;
    atomic_fetch_sub(&contention->active, 1);
}

static void one_more(struct contention *contention, uint64_t now) {
    contention->trial = now + TRIAL_NS;
    contention->retry = now + contention->pause_ns;
    atomic_fetch_add(&contention->active, 1);
}

/* Two threads are at most twice as fast as one, three 1.5 times as fast as two; in practice less.
 * So with two, a quarter of the time lost is too much, with more threads less than that. */
static bool too_much(const struct contention *contention, uint64_t lost, uint64_t now) {
    uint64_t time = now - contention->window;
    if (now < contention->trial) return lost >= TRIAL_LOST_NS;
    return lost * (contention_active(contention) + 3) >= (time > WINDOW_NS ? time : WINDOW_NS);
}

bool contention_decide(struct contention *contention) {
    if (contention->runs++ % RUNS_BETWEEN) return false;
    uint64_t now = now_ns(), lost = atomic_load(&contention->lost_ns);
    uint32_t active = contention_active(contention);
    bool fewer = active && too_much(contention, lost - contention->lost_then, now);
    bool more = !fewer && active < contention->workers && now >= contention->retry;
    if (fewer) one_fewer(contention, now);
    if (more) one_more(contention, now);
    if (fewer || more || now - contention->window >= WINDOW_NS) {
        contention->window = now;
        contention->lost_then = lost;
    }
    return more;
}
