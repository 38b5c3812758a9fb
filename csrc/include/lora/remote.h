/* Boards of another host or process, behind its board daemon: "tcp:HOST:PORT/BOARD" (mutual TLS,
 * keys and token of the folder in LORA_BOARDD_KEYS) and "unix:PATH/BOARD". */
#ifndef LORA_REMOTE_H
#define LORA_REMOTE_H

#include "lora/transport.h"

extern const struct lora_transport lora_transport_tcp;
extern const struct lora_transport lora_transport_unix;

#endif
