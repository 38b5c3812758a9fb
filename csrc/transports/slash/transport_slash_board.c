/* Finding, opening and resetting a V80 through vrtd, and what the lab tools ask of it. */
#define _GNU_SOURCE
#include "transport_slash.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define HOTPLUG_MS 60000 /* a reset takes 15 s or more */
#define RETURN_MS 60000  /* until the board is on the bus again */
#define RETRY_MS 200
#define HOTPLUG_RESET 4

struct device_info { /* op 1 */
    char name[128];
    char bdf[32];
    uint16_t ids[4];
    uint8_t shell, jtag; /* of the development branch */
};
#define RELEASE_INFO_BYTES 168
#define DEVELOPMENT_INFO_BYTES 170

struct sensor { /* op 14, 72 bytes */
    char name[64];
    uint8_t type, status;
    int8_t exponent;
    uint8_t reserved;
    int32_t value;
};

/* Asks for a device, and learns from the answer's size which of vrtd's layouts is spoken. */
static int describe(struct slash_wire *wire, uint32_t index, struct device_info *info,
                    struct lora_failure *failure) {
    uint8_t body[256] = {0};
    struct slash_request ask = {.opcode = SLASH_INFO,
                                .body = &index,
                                .body_bytes = 4,
                                .fd = -1,
                                .answer = body,
                                .answer_bytes = sizeof body,
                                .answer_any = 1,
                                .timeout_ms = SLASH_ANSWER_MS};
    int status = slash_call(wire, &ask, failure);
    if (status) return status;
    if (ask.answer_found != RELEASE_INFO_BYTES && ask.answer_found != DEVELOPMENT_INFO_BYTES) {
        failure->found = ask.answer_found;
        return lora_fail(failure, LORA_ERR_TRANSPORT,
                         "vrtd at %.80s answers request 1 with %u B; %u B (1.0.0) or %u B (SLASH's "
                         "development branch) expected; this version is not known; install 1.0.0",
                         slash_socket_path(), ask.answer_found, RELEASE_INFO_BYTES,
                         DEVELOPMENT_INFO_BYTES);
    }
    memcpy(info, body, sizeof *info);
    info->name[sizeof info->name - 1] = info->bdf[sizeof info->bdf - 1] = 0;
    wire->generation = ask.answer_found == RELEASE_INFO_BYTES ? SLASH_RELEASE : SLASH_DEVELOPMENT;
    wire->shell = info->shell;
    return LORA_OK;
}

static int find(struct slash_wire *wire, const char *bdf, uint32_t *device,
                struct lora_failure *failure) {
    char name[32] = "";
    snprintf(name, sizeof name, "%s", bdf);
    struct slash_request ask = {.opcode = SLASH_BY_BDF,
                                .body = name,
                                .body_bytes = sizeof name,
                                .fd = -1,
                                .answer = device,
                                .answer_bytes = 4,
                                .timeout_ms = SLASH_ANSWER_MS};
    struct device_info info;
    int status = slash_call(wire, &ask, failure);
    if (status && ask.result)
        return lora_fail(failure, LORA_ERR_URI,
                         "vrtd at %.80s knows no board %.31s; 'lora list' shows those it serves",
                         slash_socket_path(), name);
    return status ? status : describe(wire, *device, &info, failure);
}

int slash_board_find(struct slash_handle *handle, struct lora_failure *failure) {
    return find(&handle->wire, handle->bdf, &handle->device, failure);
}

/* Without its BAR: what lies behind that is known only once a design is written. */
int slash_board_open(struct slash_handle *handle, struct lora_failure *failure) {
    handle->bar_fd = -1;
    int status = slash_connect(&handle->wire, failure);
    if (!status) status = slash_board_find(handle, failure);
    if (status) slash_board_close(handle);
    return status;
}

void slash_board_close(struct slash_handle *handle) {
    slash_release_all(handle);
    slash_bar_unmap(handle);
    slash_disconnect(&handle->wire);
}

static void pause_ms(uint32_t milliseconds) {
    struct timespec time = {milliseconds / 1000, (long)(milliseconds % 1000) * 1000000};
    nanosleep(&time, NULL);
}

/* Device indices may have changed and vrtd may have restarted: everything is looked up anew. */
static int wait_return(const char *bdf, struct lora_failure *failure) {
    int status = LORA_OK;
    for (uint32_t waited = 0; waited <= RETURN_MS; waited += RETRY_MS) {
        struct slash_wire wire;
        uint32_t device;
        status = slash_connect(&wire, failure);
        if (!status) status = find(&wire, bdf, &device, failure);
        slash_disconnect(&wire);
        if (!status) return LORA_OK;
        pause_ms(RETRY_MS);
    }
    return lora_fail(failure, LORA_ERR_TRANSPORT,
                     "board %.31s did not come back within %d s of its reset; see dmesg, or power "
                     "the computer off and on",
                     bdf, RETURN_MS / 1000);
}

int lora_slash_reset(const char *bdf, struct lora_failure *failure) {
    struct lora_failure spare;
    struct slash_wire wire;
    struct __attribute__((packed)) {
        uint32_t device;
        uint8_t operation, function, shell; /* the last one in the development branch */
    } body = {.operation = HOTPLUG_RESET};
    uint8_t answer;
    uint32_t device = 0;
    failure = lora_failure_begin(failure, &spare);
    int status = slash_connect(&wire, failure);
    if (!status) status = find(&wire, bdf, &device, failure);
    body.device = device;
    body.shell = (uint8_t)(wire.shell ? wire.shell : SLASH_SHELL_COMPUTE);
    struct slash_request ask = {.opcode = SLASH_HOTPLUG,
                                .body = &body,
                                .body_bytes = wire.generation == SLASH_RELEASE ? 6 : 7,
                                .fd = -1,
                                .answer = &answer,
                                .answer_bytes = 1,
                                .timeout_ms = HOTPLUG_MS};
    if (!status) status = slash_call(&wire, &ask, failure);
    slash_disconnect(&wire);
    return status ? status : wait_return(bdf, failure);
}

int slash_reset(void *opened, struct lora_failure *failure) {
    struct slash_handle *handle = opened;
    int status = slash_check_stuck(handle, failure);
    if (status) return status;
    slash_board_close(handle);
    status = lora_slash_reset(handle->bdf, failure);
    return status ? status : slash_board_open(handle, failure);
}

const char *lora_slash_socket(void) { return slash_socket_path(); }

int lora_slash_devices(struct lora_slash_device *devices, uint32_t capacity, uint32_t *count,
                       struct lora_failure *failure) {
    struct lora_failure spare;
    struct slash_wire wire;
    uint8_t none = 0;
    failure = lora_failure_begin(failure, &spare);
    *count = 0;
    struct slash_request ask = {.opcode = SLASH_COUNT,
                                .body = &none,
                                .body_bytes = 1,
                                .fd = -1,
                                .answer = count,
                                .answer_bytes = 4,
                                .timeout_ms = SLASH_ANSWER_MS};
    int status = slash_connect(&wire, failure);
    if (!status) status = slash_call(&wire, &ask, failure);
    for (uint32_t i = 0; i < *count && i < capacity && !status; i++) {
        struct device_info info;
        status = describe(&wire, i, &info, failure);
        if (status) break;
        memcpy(devices[i].bdf, info.bdf, sizeof devices[i].bdf);
        memcpy(devices[i].name, info.name, sizeof devices[i].name);
    }
    slash_disconnect(&wire);
    return status;
}

static double scaled(int32_t value, int8_t exponent) {
    double result = value;
    for (; exponent > 0; exponent--) result *= 10;
    for (; exponent < 0; exponent++) result /= 10;
    return result;
}

int lora_slash_sensors(const char *bdf, struct lora_slash_sensor *sensors, uint32_t capacity,
                       uint32_t *count, struct lora_failure *failure) {
    struct lora_failure spare;
    struct slash_wire wire;
    uint8_t body[LORA_SLASH_PACKET];
    uint32_t device, reported = 0;
    failure = lora_failure_begin(failure, &spare);
    *count = 0;
    int status = slash_connect(&wire, failure);
    if (!status) status = find(&wire, bdf, &device, failure);
    struct slash_request ask = {.opcode = SLASH_SENSORS,
                                .body = &device,
                                .body_bytes = 4,
                                .fd = -1,
                                .answer = body,
                                .answer_bytes = sizeof body,
                                .answer_any = 1,
                                .timeout_ms = SLASH_ANSWER_MS};
    if (!status) status = slash_call(&wire, &ask, failure);
    slash_disconnect(&wire);
    if (status) return status;
    if (ask.answer_found >= 4) memcpy(&reported, body, 4);
    if (ask.answer_found != 4 + (uint64_t)reported * sizeof(struct sensor))
        return lora_fail(failure, LORA_ERR_TRANSPORT, "vrtd reports %u sensors in %u B", reported,
                         ask.answer_found);
    for (uint32_t i = 0; i < reported && *count < capacity; i++) {
        struct sensor from;
        memcpy(&from, body + 4 + i * sizeof from, sizeof from);
        struct lora_slash_sensor *to = &sensors[(*count)++];
        memcpy(to->name, from.name, sizeof to->name);
        to->name[sizeof to->name - 1] = 0;
        to->type = from.type;
        to->value = scaled(from.value, from.exponent);
    }
    return LORA_OK;
}

int lora_slash_clock(const char *bdf, uint32_t *hz, struct lora_failure *failure) {
    struct lora_failure spare;
    struct slash_wire wire;
    struct slash_clock_body body = {.region = SLASH_USER_CLOCK};
    uint32_t device = 0;
    failure = lora_failure_begin(failure, &spare);
    int status = slash_connect(&wire, failure);
    if (!status) status = find(&wire, bdf, &device, failure);
    body.device = device;
    struct slash_request ask = {.opcode = SLASH_CLOCK,
                                .body = &body,
                                .body_bytes = sizeof body,
                                .fd = -1,
                                .answer = hz,
                                .answer_bytes = 4,
                                .timeout_ms = SLASH_ANSWER_MS};
    if (!status) status = slash_call(&wire, &ask, failure);
    slash_disconnect(&wire);
    return status;
}

int lora_slash_peek(const char *bdf, uint64_t address, uint32_t *words, uint32_t count,
                    struct lora_failure *failure) {
    struct lora_failure spare;
    struct slash_handle handle = {0};
    failure = lora_failure_begin(failure, &spare);
    snprintf(handle.bdf, sizeof handle.bdf, "%s", bdf);
    int status = slash_board_open(&handle, failure);
    if (status) return status;
    status = slash_bar_map(&handle, failure);
    handle.programmed = 1;
    handle.block_base[LORA_BLOCK_CONTROL] = address;
    for (uint32_t i = 0; i < count && !status; i++)
        status = slash_register_read(&handle, LORA_BLOCK_CONTROL, 4 * i, &words[i], failure);
    slash_board_close(&handle);
    return status;
}
