/* A name for every status code. */
#include "internal.h"

#define NAME(code) [code] = #code

static const char *const names[] = {
    NAME(LORA_OK),
    NAME(LORA_ERR_ABI),
    NAME(LORA_ERR_SIZE),
    NAME(LORA_ERR_CRC),
    NAME(LORA_ERR_OPCODE),
    NAME(LORA_ERR_ADDRESS),
    NAME(LORA_ERR_COUNTER),
    NAME(LORA_ERR_LIST),
    NAME(LORA_ERR_STEP),
    NAME(LORA_ERR_ROW),
    NAME(LORA_ERR_KV),
    NAME(LORA_ERR_WATCHDOG),
    NAME(LORA_ERR_LINK_DOWN),
    NAME(LORA_ERR_LINK_CRC),
    NAME(LORA_ERR_LINK_POISON),
    NAME(LORA_ERR_UNIT),
    NAME(LORA_ERR_OPERATION),
    NAME(LORA_ERR_GATHERED),
    NAME(LORA_ERR_ARGUMENT),
    NAME(LORA_ERR_MEMORY),
    NAME(LORA_ERR_URI),
    NAME(LORA_ERR_TRANSPORT),
    NAME(LORA_ERR_BANK_FULL),
    NAME(LORA_ERR_RANGE),
    NAME(LORA_ERR_OVERLAY),
    NAME(LORA_ERR_IDENTITY),
    NAME(LORA_ERR_TIMEOUT),
    NAME(LORA_ERR_LINK_STATUS),
    NAME(LORA_ERR_LINK_CONFIG),
    NAME(LORA_ERR_LINK_PAYLOAD),
    NAME(LORA_ERR_LINK_CABLING),
    NAME(LORA_ERR_COMPLETION),
    NAME(LORA_ERR_CANCELLED),
    NAME(LORA_ERR_NAN),
    NAME(LORA_ERR_ECC),
};

const char *lora_status_name(int status) {
    const int count = (int)(sizeof names / sizeof names[0]);
    const char *name = status >= 0 && status < count ? names[status] : 0;
    return name ? name : "LORA_ERR_UNKNOWN";
}
