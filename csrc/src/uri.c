/* Which transport a URI names. */
#include "internal.h"

#include <stdio.h>
#include <string.h>

#include "lora/emu.h"
#include "lora/remote.h"
#include "lora/slash.h"
#include "lora/xrt.h"

static const struct lora_transport *const transports[] = {
    &lora_transport_emu, &lora_transport_xrt, &lora_transport_slash, &lora_transport_tcp,
    &lora_transport_unix};
#define TRANSPORTS (sizeof transports / sizeof transports[0])

static int unknown(const char *uri, struct lora_failure *failure) {
    char known[96] = "";
    for (size_t i = 0; i < TRANSPORTS; i++) {
        size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, "%s%s:", i ? ", " : "", transports[i]->scheme);
    }
    return lora_fail(failure, LORA_ERR_URI, "device '%.80s': unknown scheme; known: %s", uri,
                     known);
}

int lora_transport_find(const char *uri, const struct lora_transport **transport,
                        const char **address, struct lora_failure *failure) {
    const char *colon = uri ? strchr(uri, ':') : NULL;
    if (!uri) return lora_fail(failure, LORA_ERR_URI, "device without a URI");
    for (size_t i = 0; colon && i < TRANSPORTS; i++) {
        size_t length = strlen(transports[i]->scheme);
        if ((size_t)(colon - uri) == length && !memcmp(uri, transports[i]->scheme, length)) {
            *transport = transports[i];
            *address = colon + 1;
            return LORA_OK;
        }
    }
    return unknown(uri, failure);
}
