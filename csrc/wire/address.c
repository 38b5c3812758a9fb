#define _GNU_SOURCE
#include "address.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static int copy(char *into, size_t room, const char *from, size_t bytes) {
    if (bytes >= room) return 0;
    memcpy(into, from, bytes);
    into[bytes] = '\0';
    return 1;
}

static int is_port(const char *text) {
    uint32_t value = 0;
    size_t digits = strspn(text, "0123456789");
    if (!digits || digits > 5 || text[digits]) return 0;
    for (; *text; text++) value = value * 10 + (uint32_t)(*text - '0');
    return value >= 1 && value <= 65535;
}

int wire_parse_tcp(const char *address, struct wire_address *found) {
    *found = (struct wire_address){0};
    const char *slash = strchr(address, '/');
    const char *end = slash ? slash : address + strlen(address);
    const char *host = address, *host_end, *colon;
    if (*address == '[') {
        host++;
        host_end = memchr(host, ']', (size_t)(end - host));
        colon = host_end ? host_end + 1 : NULL;
    } else {
        host_end = colon = memchr(address, ':', (size_t)(end - address));
    }
    if (!colon || colon >= end || *colon != ':' || host == host_end) return 0;
    return copy(found->host, sizeof found->host, host, (size_t)(host_end - host)) &&
           copy(found->port, sizeof found->port, colon + 1, (size_t)(end - colon - 1)) &&
           is_port(found->port) &&
           (!slash || copy(found->board, sizeof found->board, slash + 1, strlen(slash + 1)));
}

int wire_parse_unix(const char *address, struct wire_address *found) {
    *found = (struct wire_address){0};
    const char *colon = strchr(address, ':');
    const char *slash = colon ? memrchr(address, '/', (size_t)(colon - address)) : NULL;
    size_t bytes = slash ? (size_t)(slash - address) : strlen(address);
    if (colon && !slash) return 0;
    return bytes > 0 && copy(found->path, sizeof found->path, address, bytes) &&
           (!slash || copy(found->board, sizeof found->board, slash + 1, strlen(slash + 1)));
}

void wire_tune(int socket) {
    const int on = 1, idle = 10, interval = 3, count = 3;
    const unsigned unacknowledged = 20000;
    setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(socket, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    setsockopt(socket, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    setsockopt(socket, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof interval);
    setsockopt(socket, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof count);
    setsockopt(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, &unacknowledged, sizeof unacknowledged);
}

/* A connect that is bounded; the socket stays non-blocking. */
static int join(int family, const struct sockaddr *to, socklen_t bytes, uint64_t timeout_us) {
    int made = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (made < 0) return -1;
    int error = connect(made, to, bytes) ? errno : 0;
    if (error == EINPROGRESS || error == EINTR) {
        struct pollfd at = {.fd = made, .events = POLLOUT};
        socklen_t room = sizeof error;
        error = ETIMEDOUT;
        if (poll(&at, 1, (int)(timeout_us / 1000)) > 0)
            getsockopt(made, SOL_SOCKET, SO_ERROR, &error, &room);
    }
    if (!error) return made;
    close(made);
    errno = error;
    return -1;
}

static int connect_unix(const struct wire_address *address, uint64_t timeout_us,
                        char why[WIRE_WHY]) {
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    memcpy(to.sun_path, address->path, sizeof to.sun_path);
    int made = join(AF_UNIX, (struct sockaddr *)&to, sizeof to, timeout_us);
    if (made < 0) snprintf(why, WIRE_WHY, "%s", strerror(errno));
    return made;
}

int wire_connect(const struct wire_address *address, uint64_t timeout_us, char why[WIRE_WHY]) {
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV}, *all = NULL;
    if (!address->host[0]) return connect_unix(address, timeout_us, why);
    int error = getaddrinfo(address->host, address->port, &hints, &all);
    if (error) {
        snprintf(why, WIRE_WHY, "its name is not known: %s", gai_strerror(error));
        return -1;
    }
    int made = -1;
    for (struct addrinfo *at = all; at && made < 0; at = at->ai_next)
        made = join(at->ai_family, at->ai_addr, at->ai_addrlen, timeout_us);
    if (made < 0) snprintf(why, WIRE_WHY, "%s", strerror(errno));
    else wire_tune(made);
    freeaddrinfo(all);
    return made;
}
