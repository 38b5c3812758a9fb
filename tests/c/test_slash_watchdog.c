/* Waits for a daemon that has stopped do not add up, and one that is slow is waited for. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "transport_slash.h"

static atomic_int failures, silent, delay_ms;
static int listener;

static void check(int holds, const char *what) {
    if (holds) return;
    fprintf(stderr, "test_slash_watchdog: %s\n", what);
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

/* Says that there is no board. */
static void *serve(void *given) {
    int client = (int)(size_t)given;
    uint16_t words[4];
    while (recv(client, words, sizeof words, 0) > 0) {
        uint16_t answer[6] = {4, 0, words[2], words[3]};
        while (silent) pause_ms(1);
        pause_ms(delay_ms);
        send(client, answer, sizeof answer, MSG_NOSIGNAL);
    }
    close(client);
    return NULL;
}

static void *accept_all(void *unused) {
    (void)unused;
    for (int client; (client = accept(listener, NULL, NULL)) >= 0;) {
        pthread_t thread;
        pthread_create(&thread, NULL, serve, (void *)(size_t)client);
        pthread_detach(thread);
    }
    return NULL;
}

static int ask(void) {
    struct lora_failure failure;
    uint32_t count = 7;
    int status = lora_slash_devices(NULL, 0, &count, &failure);
    return !status && !count;
}

static double asked(int answered, const char *what) {
    double began = now();
    check(ask() == answered, what);
    return now() - began;
}

int main(void) {
    char folder[] = "/tmp/lora-silence-XXXXXX";
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    pthread_t thread;
    check(mkdtemp(folder) != NULL, "a folder");
    snprintf(address.sun_path, sizeof address.sun_path, "%s/s", folder);
    listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    check(!bind(listener, (struct sockaddr *)&address, sizeof address), "an address");
    listen(listener, 16);
    pthread_create(&thread, NULL, accept_all, NULL);
    setenv("LORA_VRTD_SOCKET", address.sun_path, 1);

    asked(1, "an answer");
    delay_ms = 2000;
    asked(1, "a slow one is waited for");
    asked(1, "again");
    delay_ms = 0;

    silent = 1;
    double first = asked(0, "nothing"), second = asked(0, "nothing");
    check(first > 4.9 && second > 4.5, "a request after the first has its whole limit");
    double more = 0;
    for (int i = 0; i < 8; i++) more += asked(0, "nothing");
    check(more < 4.9, "later ones do not add up");

    silent = 0;
    pause_ms(100);
    asked(1, "it goes on");
    delay_ms = 2000;
    asked(1, "and is waited for as before");
    shutdown(listener, SHUT_RDWR);
    pthread_join(thread, NULL);
    unlink(address.sun_path);
    rmdir(folder);
    return failures != 0;
}
