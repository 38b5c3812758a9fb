/* One start of lora_ctrl: its arguments stay in their registers from run to run. */
#include "doorbell.h"
#include "internal.h"

static int check_idle(const struct lora_transport *transport, void *handle,
                      struct lora_failure *failure) {
    uint32_t control = 0;
    int status = transport->register_read(handle, LORA_BLOCK_CONTROL, LORA_REG_AP_CTRL, &control,
                                          failure);
    if (status) return status;
    if (control == LORA_NONE) return lora_fail_gone(failure, "AP_CTRL", control);
    if (control & LORA_AP_IDLE) return LORA_OK;
    return lora_fail(failure, LORA_ERR_TRANSPORT,
                     "a run is in flight (AP_CTRL 0x%x), idle expected; wait for it or reset",
                     control);
}

int lora_doorbell_ring(struct lora_doorbell *bell, const struct lora_transport *transport,
                       void *handle, const uint32_t arguments[LORA_ARGUMENTS],
                       struct lora_failure *failure) {
    int status = bell->idle ? LORA_OK : check_idle(transport, handle, failure);
    bell->idle = 0;
    for (uint32_t i = 0; i < LORA_ARGUMENTS && !status; i++) {
        if (bell->known >> i & 1 && bell->arguments[i] == arguments[i]) continue;
        bell->known &= ~(1u << i);
        status = transport->register_write(handle, LORA_BLOCK_CONTROL, LORA_REG_OPERATION + 4 * i,
                                           arguments[i], failure);
        if (status) return status;
        bell->arguments[i] = arguments[i];
        bell->known |= 1u << i;
    }
    if (status) return status;
    return transport->register_write(handle, LORA_BLOCK_CONTROL, LORA_REG_AP_CTRL, LORA_AP_START,
                                     failure);
}
