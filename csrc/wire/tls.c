#define _GNU_SOURCE
#include "tls.h"

#include <dlfcn.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <arpa/inet.h>

/* Names, numbers and types of OpenSSL 1.1.1 to 3: its ABI, which does not change. */
#define CTRL_MIN_PROTOCOL 123
#define CTRL_MODE 33
#define TLS_1_3 0x0304
#define FILE_PEM 1
#define VERIFY_BOTH 3 /* the other end's certificate, which it must have */
#define WANT_READ 2
#define WANT_WRITE 3
#define MODE_PARTIAL_MOVING 3 /* a write may be cut, and go on from another buffer */

struct wire_tls {
    void *context;
    int server;
};

static struct {
    void *(*client_method)(void), *(*server_method)(void);
    void *(*context_new)(const void *);
    void (*context_free)(void *);
    long (*context_control)(void *, int, long, void *);
    int (*use_certificate)(void *, const char *), (*use_key)(void *, const char *, int);
    int (*check_key)(const void *), (*load_ca)(void *, const char *, const char *);
    void (*set_verify)(void *, int, void *);
    void *(*session_new)(void *);
    void (*session_free)(void *);
    int (*set_socket)(void *, int), (*set_host)(void *, const char *);
    void *(*parameters)(void *);
    int (*set_ip)(void *, const char *);
    int (*connect)(void *), (*accept)(void *), (*shutdown)(void *);
    int (*read)(void *, void *, int), (*write)(void *, const void *, int);
    int (*error)(const void *, int), (*pending)(const void *);
    long (*verify_result)(const void *);
    const char *(*verify_text)(long);
    unsigned long (*next_error)(void);
    void (*clear_errors)(void);
    void (*error_text)(unsigned long, char *, size_t);
} api;

static const struct {
    const char *name;
    void *at;
} symbols[] = {
    {"TLS_client_method", &api.client_method},
    {"TLS_server_method", &api.server_method},
    {"SSL_CTX_new", &api.context_new},
    {"SSL_CTX_free", &api.context_free},
    {"SSL_CTX_ctrl", &api.context_control},
    {"SSL_CTX_use_certificate_chain_file", &api.use_certificate},
    {"SSL_CTX_use_PrivateKey_file", &api.use_key},
    {"SSL_CTX_check_private_key", &api.check_key},
    {"SSL_CTX_load_verify_locations", &api.load_ca},
    {"SSL_CTX_set_verify", &api.set_verify},
    {"SSL_new", &api.session_new},
    {"SSL_free", &api.session_free},
    {"SSL_set_fd", &api.set_socket},
    {"SSL_set1_host", &api.set_host},
    {"SSL_get0_param", &api.parameters},
    {"X509_VERIFY_PARAM_set1_ip_asc", &api.set_ip},
    {"SSL_connect", &api.connect},
    {"SSL_accept", &api.accept},
    {"SSL_shutdown", &api.shutdown},
    {"SSL_read", &api.read},
    {"SSL_write", &api.write},
    {"SSL_get_error", &api.error},
    {"SSL_pending", &api.pending},
    {"SSL_get_verify_result", &api.verify_result},
    {"X509_verify_cert_error_string", &api.verify_text},
    {"ERR_get_error", &api.next_error},
    {"ERR_clear_error", &api.clear_errors},
    {"ERR_error_string_n", &api.error_text},
};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static const char *missing;

static void load(void) {
    static const char *const names[] = {"libssl.so.3", "libssl.so.1.1"};
    void *library = NULL;
    for (size_t i = 0; !library && i < sizeof names / sizeof names[0]; i++)
        library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    missing = library ? NULL : "libssl.so.3";
    for (size_t i = 0; library && !missing && i < sizeof symbols / sizeof symbols[0]; i++) {
        void *found = dlsym(library, symbols[i].name);
        if (!found) missing = symbols[i].name;
        memcpy(symbols[i].at, &found, sizeof found);
    }
}

/* The first error of this thread's queue, which names the cause. */
static void explain(char why[WIRE_TLS_WHY], const char *what, const char *name) {
    char text[120] = "no reason given";
    unsigned long error = api.next_error();
    if (error) api.error_text(error, text, sizeof text);
    api.clear_errors();
    const char *last = strrchr(text, ':');
    const char *reason = last && last[1] ? last + 1 : text;
    snprintf(why, WIRE_TLS_WHY, "%s %.80s: %.80s", what, name, reason);
}

static int read_keys(void *context, const char *folder, char why[WIRE_TLS_WHY]) {
    char path[512];
    if (strlen(folder) > sizeof path - 16) {
        snprintf(why, WIRE_TLS_WHY, "keys: the folder's path is too long");
        return 0;
    }
    sprintf(path, "%s/ca.pem", folder);
    if (api.load_ca(context, path, NULL) != 1) return explain(why, "the CA", path), 0;
    sprintf(path, "%s/cert.pem", folder);
    if (api.use_certificate(context, path) != 1) return explain(why, "certificate", path), 0;
    sprintf(path, "%s/key.pem", folder);
    if (api.use_key(context, path, FILE_PEM) != 1 || api.check_key(context) != 1)
        return explain(why, "key", path), 0;
    return 1;
}

struct wire_tls *wire_tls_new(const char *folder, int server, char why[WIRE_TLS_WHY]) {
    pthread_once(&once, load);
    if (missing) {
        snprintf(why, WIRE_TLS_WHY, "%s of OpenSSL is not there; install libssl3", missing);
        return NULL;
    }
    struct wire_tls *tls = calloc(1, sizeof *tls);
    if (tls) tls->context = api.context_new(server ? api.server_method() : api.client_method());
    if (!tls || !tls->context) {
        snprintf(why, WIRE_TLS_WHY, "no host memory for TLS");
        free(tls);
        return NULL;
    }
    tls->server = server;
    api.context_control(tls->context, CTRL_MIN_PROTOCOL, TLS_1_3, NULL);
    api.context_control(tls->context, CTRL_MODE, MODE_PARTIAL_MOVING, NULL);
    api.set_verify(tls->context, VERIFY_BOTH, NULL);
    if (read_keys(tls->context, folder, why)) return tls;
    wire_tls_free(tls);
    return NULL;
}

void wire_tls_free(struct wire_tls *tls) {
    if (!tls) return;
    api.context_free(tls->context);
    free(tls);
}

static int set_peer(void *session, const char *host) {
    unsigned char address[16];
    if (inet_pton(AF_INET, host, address) == 1 || inet_pton(AF_INET6, host, address) == 1)
        return api.set_ip(api.parameters(session), host);
    return api.set_host(session, host);
}

static uint64_t now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000u + (uint64_t)now.tv_nsec / 1000;
}

static void refuse(void *session, char why[WIRE_TLS_WHY]) {
    long result = api.verify_result(session);
    if (!result) return explain(why, "TLS is refused", "by one of both ends");
    snprintf(why, WIRE_TLS_WHY, "its certificate is refused: %s", api.verify_text(result));
    api.clear_errors();
}

/* 0 when the handshake is over, 1 to go on, -1 refused. */
static int step(const struct wire_tls *tls, void *session, short *want) {
    api.clear_errors();
    int result = tls->server ? api.accept(session) : api.connect(session);
    if (result == 1) return 0;
    int error = api.error(session, result);
    *want = error == WANT_WRITE ? POLLOUT : POLLIN;
    return error == WANT_READ || error == WANT_WRITE ? 1 : -1;
}

void *wire_tls_begin(struct wire_tls *tls, int socket, const char *host, uint64_t timeout_us,
                     char why[WIRE_TLS_WHY]) {
    void *session = api.session_new(tls->context);
    uint64_t end = now_us() + timeout_us;
    short want = POLLIN;
    int going = -1;
    snprintf(why, WIRE_TLS_WHY, "no host memory for TLS");
    if (session && api.set_socket(session, socket) == 1 && (!host || set_peer(session, host) == 1))
        going = step(tls, session, &want);
    while (going == 1 && now_us() < end) {
        struct pollfd at = {.fd = socket, .events = want};
        poll(&at, 1, 100);
        going = step(tls, session, &want);
    }
    if (going == 0) return session;
    if (going == 1) snprintf(why, WIRE_TLS_WHY, "no TLS handshake in time");
    else if (session) refuse(session, why);
    if (session) api.session_free(session);
    return NULL;
}

void wire_tls_end(void *session) {
    api.shutdown(session); /* tells the other end; its answer is not awaited */
    api.clear_errors();
    api.session_free(session);
}

static long result_of(void *session, int result, short *want) {
    if (result > 0) return result;
    int error = api.error(session, result);
    if (error != WANT_READ && error != WANT_WRITE) return -1;
    *want = error == WANT_READ ? POLLIN : POLLOUT;
    return 0;
}

long wire_tls_read(void *session, void *data, size_t bytes, short *want) {
    api.clear_errors();
    return result_of(session, api.read(session, data, bytes > 1 << 30 ? 1 << 30 : (int)bytes),
                     want);
}

long wire_tls_write(void *session, const void *data, size_t bytes, short *want) {
    api.clear_errors();
    return result_of(session, api.write(session, data, bytes > 1 << 30 ? 1 << 30 : (int)bytes),
                     want);
}

int wire_tls_pending(void *session) { return api.pending(session) > 0; }
