/* To a daemon: keys, connection, greeting. */
#define _GNU_SOURCE
#include "transport_remote.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int cannot(const struct remote_handle *remote, const char *why,
                  struct lora_failure *failure) {
    return lora_fail(failure, LORA_ERR_TRANSPORT, "%s:%.100s: %.130s", remote->scheme, remote->uri,
                     why);
}

static int keys_folder(char folder[400]) {
    const char *named = getenv("LORA_BOARDD_KEYS"), *home = getenv("HOME");
    int bytes = named && named[0]
                    ? snprintf(folder, 400, "%s", named)
                    : snprintf(folder, 400, "%s/.config/lora/boardd", home ? home : "");
    return bytes > 0 && bytes < 400;
}

/* One line of printable characters. */
static int read_token(const char *folder, char token[WIRE_TOKEN]) {
    char path[420];
    snprintf(path, sizeof path, "%s/token", folder);
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat facts;
    if (file < 0) return 0;
    ssize_t got = -1;
    if (!fstat(file, &facts) && S_ISREG(facts.st_mode)) got = read(file, token, WIRE_TOKEN - 1);
    close(file);
    token[got > 0 ? got : 0] = '\0';
    token[strcspn(token, "\r\n")] = '\0';
    return token[0] != '\0';
}

static int load_keys(struct remote_handle *remote, char token[WIRE_TOKEN],
                     struct lora_failure *failure) {
    char folder[400], why[WIRE_TLS_WHY];
    if (!keys_folder(folder))
        return cannot(remote, "the path in LORA_BOARDD_KEYS is too long", failure);
    if (!read_token(folder, token)) {
        snprintf(why, sizeof why, "no token in %.60s; name the folder of keys in LORA_BOARDD_KEYS",
                 folder);
        return cannot(remote, why, failure);
    }
    if (remote->tls) return LORA_OK;
    remote->tls = wire_tls_new(folder, 0, why);
    return remote->tls ? LORA_OK : cannot(remote, why, failure);
}

static int secure(struct remote_handle *remote, struct lora_failure *failure) {
    char why[WIRE_TLS_WHY];
    struct wire_channel *channel = &remote->channel;
    channel->tls = wire_tls_begin(remote->tls, channel->socket, remote->address.host,
                                  REMOTE_CONNECT_US, why);
    if (channel->tls) return LORA_OK;
    wire_fail(channel, "%s", why);
    return cannot(remote, why, failure);
}

static int greet(struct remote_handle *remote, const char *token, struct lora_failure *failure) {
    struct wire_hello hello = {
        .version = WIRE_VERSION, .abi = LORA_ABI_NUMBER, .role = WIRE_ROLE_BOARD};
    struct wire_welcome welcome;
    char host[40] = "";
    gethostname(host, sizeof host - 1);
    snprintf(hello.token, sizeof hello.token, "%s", token);
    snprintf(hello.board, sizeof hello.board, "%s", remote->address.board);
    snprintf(hello.who, sizeof hello.who, "process %ld on %s", (long)getpid(), host);
    const struct wire_part part = {&hello, sizeof hello};
    const struct remote_call call = {.kind = WIRE_HELLO,
                                     .parts = &part,
                                     .part_count = 1,
                                     .answer = &welcome,
                                     .answer_bytes = sizeof welcome,
                                     .limit_us = REMOTE_ANSWER_US};
    int status = remote_call(remote, &call, failure);
    if (status) return status;
    if (welcome.version != WIRE_VERSION || welcome.abi != LORA_ABI_NUMBER) {
        failure->found = welcome.version;
        failure->expected = WIRE_VERSION;
        return lora_fail(failure, LORA_ERR_TRANSPORT,
                         "%s:%.100s: the daemon speaks version %u with ABI %u, %d and %d expected",
                         remote->scheme, remote->uri, welcome.version, welcome.abi, WIRE_VERSION,
                         LORA_ABI_NUMBER);
    }
    if (wire_allow(&remote->channel, WIRE_BODY)) return LORA_OK;
    return lora_fail(failure, LORA_ERR_MEMORY, "%s:%.100s: no host memory", remote->scheme,
                     remote->uri);
}

int remote_connect(struct remote_handle *remote, struct lora_failure *failure) {
    char why[WIRE_WHY], token[WIRE_TOKEN] = "";
    int is_tcp = remote->address.host[0] != '\0';
    int status = is_tcp ? load_keys(remote, token, failure) : LORA_OK;
    if (status) return status;
    int made = wire_connect(&remote->address, REMOTE_CONNECT_US, why);
    if (made < 0) {
        char said[200];
        snprintf(said, sizeof said,
                 "no board daemon answers there: %.120s; start it with 'lora boardd "
                 "serve'",
                 why);
        return cannot(remote, said, failure);
    }
    if (!wire_open(&remote->channel, made))
        return lora_fail(failure, LORA_ERR_MEMORY, "%s:%.100s: no host memory", remote->scheme,
                         remote->uri);
    if (is_tcp) status = secure(remote, failure);
    if (!status) status = greet(remote, token, failure);
    if (status) remote_disconnect(remote);
    return status;
}

void remote_disconnect(struct remote_handle *remote) {
    remote_forget_run(remote);
    wire_close(&remote->channel);
}
