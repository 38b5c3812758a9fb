/* TLS by the system's libssl, loaded when the first key is read: builds need no header of it. */
#ifndef LORA_TLS_H
#define LORA_TLS_H

#include <stddef.h>
#include <stdint.h>

struct wire_tls; /* keys of one end */

#define WIRE_TLS_WHY 200

/* Reads ca.pem, cert.pem and key.pem of a folder. NULL: `why` tells. */
struct wire_tls *wire_tls_new(const char *folder, int server, char why[WIRE_TLS_WHY]);
void wire_tls_free(struct wire_tls *tls);
/* TLS 1.3 on a connected, non-blocking socket; both ends show a certificate of the CA. `host`: what
 * the other end's must be for, NULL at the server. NULL: `why` tells. */
void *wire_tls_begin(struct wire_tls *tls, int socket, const char *host, uint64_t timeout_us,
                     char why[WIRE_TLS_WHY]);
void wire_tls_end(void *session);
/* Bytes moved; 0: the socket is not ready (*want: the event to wait for); -1: broken or ended. */
long wire_tls_read(void *session, void *data, size_t bytes, short *want);
long wire_tls_write(void *session, const void *data, size_t bytes, short *want);
/* Whether bytes lie ready without the socket. */
int wire_tls_pending(void *session);

#endif
