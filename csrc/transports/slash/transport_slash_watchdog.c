/* How long vrtd's answers are waited for. One daemon serves all boards, so the waits for one that
 * has stopped must not add up over boards and requests: after a request without an answer the later
 * ones wait as long as is left of one silence, until the daemon answers again. */
#define _GNU_SOURCE
#include <pthread.h>
#include <string.h>
#include <sys/un.h>
#include <time.h>

#include "transport_slash.h"

#define SILENCE_MS (2 * SLASH_ANSWER_MS) /* so the request after the first has its whole limit */
#define LOOK_MS 250                      /* a daemon that goes on has answered by then */

static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;
static char silent[sizeof((struct sockaddr_un *)0)->sun_path]; /* the socket's path, or "" */
static uint64_t since_ms;

static uint64_t now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

uint32_t slash_watchdog_limit(const char *path, uint32_t limit_ms) {
    uint64_t left = limit_ms;
    pthread_mutex_lock(&guard);
    if (silent[0] && !strcmp(silent, path)) {
        uint64_t passed = now_ms() - since_ms;
        left = passed + LOOK_MS < SILENCE_MS ? SILENCE_MS - passed : LOOK_MS;
    }
    pthread_mutex_unlock(&guard);
    return left < limit_ms ? (uint32_t)left : limit_ms;
}

void slash_watchdog_after(const char *path, uint32_t waited_ms) {
    pthread_mutex_lock(&guard);
    if (strcmp(silent, path) && strlen(path) < sizeof silent) {
        strcpy(silent, path);
        since_ms = now_ms() - waited_ms;
    }
    pthread_mutex_unlock(&guard);
}

void slash_watchdog_over(void) {
    pthread_mutex_lock(&guard);
    silent[0] = 0;
    pthread_mutex_unlock(&guard);
}
