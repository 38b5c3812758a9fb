/* Finding, opening and resetting a V80 through vrtd, and what the lab tools ask of it. */
#define _GNU_SOURCE
#include "transport_slash.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define ANSWER_MS 5000   /* vrtd answers in milliseconds unless it hangs */
#define HOTPLUG_MS 60000 /* a reset takes 15 s or more */
#define RETURN_MS 60000  /* until the board is on the bus again */
#define RETRY_MS 200
#define BAR_LIMIT (1ull << 32)
#define HOTPLUG_RESET 4

struct bar_info { /* op 2 */
    uint32_t size;
    uint8_t bar, usable, in_use, pad;
    uint64_t start, bytes;
};

struct device_info { /* op 1, 168 bytes */
    char name[128];
    char bdf[32];
    uint16_t ids[4];
};

struct sensor { /* op 14, 72 bytes */
    char name[64];
    uint8_t type, status;
    int8_t exponent;
    uint8_t reserved;
    int32_t value;
};

static int find(struct slash_wire *wire, const char *bdf, uint32_t *device,
                struct lora_failure *failure) {
    char name[32] = "";
    strncpy(name, bdf, sizeof name - 1);
    struct slash_request ask = {.opcode = SLASH_BY_BDF,
                                .body = name,
                                .body_bytes = sizeof name,
                                .fd = -1,
                                .answer = device,
                                .answer_bytes = 4,
                                .timeout_ms = ANSWER_MS};
    int status = slash_call(wire, &ask, failure);
    if (status && ask.result)
        return lora_fail(failure, LORA_ERR_URI,
                         "vrtd at %.80s knows no board %.31s; 'lora list' shows those it serves",
                         slash_socket_path(), name);
    return status;
}

static int map_bar(struct slash_handle *handle, struct lora_failure *failure) {
    struct __attribute__((packed)) {
        uint32_t device;
        uint8_t bar;
    } body = {handle->device, SLASH_BAR};
    struct bar_info info;
    uint64_t bytes = 0;
    struct slash_request ask = {.opcode = SLASH_BAR_INFO,
                                .body = &body,
                                .body_bytes = sizeof body,
                                .fd = -1,
                                .answer = &info,
                                .answer_bytes = sizeof info,
                                .timeout_ms = ANSWER_MS};
    int status = slash_call(&handle->wire, &ask, failure);
    if (status) return status;
    if (info.size != sizeof info || !info.usable)
        return lora_fail(failure, LORA_ERR_TRANSPORT,
                         "board %s: BAR %d: %u B of information, usable %u; %zu B and usable "
                         "expected; is the SLASH shell loaded?",
                         handle->bdf, SLASH_BAR, info.size, info.usable, sizeof info);
    ask = (struct slash_request){.opcode = SLASH_BAR_FD,
                                 .body = &body,
                                 .body_bytes = sizeof body,
                                 .fd = -1,
                                 .answer = &bytes,
                                 .answer_bytes = sizeof bytes,
                                 .answer_fd = &handle->bar_fd,
                                 .timeout_ms = ANSWER_MS};
    status = slash_call(&handle->wire, &ask, failure);
    if (status) return status;
    if (!bytes || bytes > BAR_LIMIT || bytes % SLASH_PAGE)
        return lora_fail(failure, LORA_ERR_TRANSPORT, "board %s: BAR %d of %llu B", handle->bdf,
                         SLASH_BAR, (unsigned long long)bytes);
    /* A file shorter than that would end the process with SIGBUS. A dma-buf has no such end. */
    struct stat facts;
    if (fstat(handle->bar_fd, &facts) ||
        (S_ISREG(facts.st_mode) && (uint64_t)facts.st_size < bytes))
        return lora_fail(failure, LORA_ERR_TRANSPORT,
                         "board %s: BAR %d of %llu B found in a file of %lld B", handle->bdf,
                         SLASH_BAR, (unsigned long long)bytes, (long long)facts.st_size);
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, handle->bar_fd, 0);
    if (at == MAP_FAILED)
        return lora_fail(failure, LORA_ERR_TRANSPORT, "board %s: BAR %d cannot be mapped: %s",
                         handle->bdf, SLASH_BAR, strerror(errno));
    handle->bar = at;
    handle->bar_bytes = bytes;
    return LORA_OK;
}

int slash_board_open(struct slash_handle *handle, struct lora_failure *failure) {
    handle->bar_fd = -1;
    int status = slash_connect(&handle->wire, failure);
    if (!status) status = find(&handle->wire, handle->bdf, &handle->device, failure);
    if (!status) status = map_bar(handle, failure);
    if (status) slash_board_close(handle);
    return status;
}

void slash_board_close(struct slash_handle *handle) {
    slash_release_all(handle);
    if (handle->bar) munmap((void *)handle->bar, handle->bar_bytes);
    if (handle->bar_fd >= 0) close(handle->bar_fd);
    handle->bar = NULL;
    handle->bar_fd = -1;
    handle->programmed = 0;
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
        uint8_t operation, function;
    } body = {.operation = HOTPLUG_RESET};
    uint8_t answer;
    uint32_t device = 0;
    failure = lora_failure_begin(failure, &spare);
    int status = slash_connect(&wire, failure);
    if (!status) status = find(&wire, bdf, &device, failure);
    body.device = device;
    struct slash_request ask = {.opcode = SLASH_HOTPLUG,
                                .body = &body,
                                .body_bytes = sizeof body,
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
    slash_board_close(handle);
    int status = lora_slash_reset(handle->bdf, failure);
    return status ? status : slash_board_open(handle, failure);
}

const char *lora_slash_socket(void) { return slash_socket_path(); }

static int describe(struct slash_wire *wire, uint32_t index, struct lora_slash_device *device,
                    struct lora_failure *failure) {
    struct device_info info;
    struct slash_request ask = {.opcode = SLASH_INFO,
                                .body = &index,
                                .body_bytes = 4,
                                .fd = -1,
                                .answer = &info,
                                .answer_bytes = sizeof info,
                                .timeout_ms = ANSWER_MS};
    int status = slash_call(wire, &ask, failure);
    if (status) return status;
    memcpy(device->bdf, info.bdf, sizeof device->bdf);
    memcpy(device->name, info.name, sizeof device->name);
    device->bdf[sizeof device->bdf - 1] = device->name[sizeof device->name - 1] = 0;
    return LORA_OK;
}

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
                                .timeout_ms = ANSWER_MS};
    int status = slash_connect(&wire, failure);
    if (!status) status = slash_call(&wire, &ask, failure);
    for (uint32_t i = 0; i < *count && i < capacity && !status; i++)
        status = describe(&wire, i, &devices[i], failure);
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
                                .timeout_ms = ANSWER_MS};
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
                                .timeout_ms = ANSWER_MS};
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
    handle.programmed = 1;
    handle.block_base[LORA_BLOCK_CONTROL] = address;
    for (uint32_t i = 0; i < count && !status; i++)
        status = slash_register_read(&handle, LORA_BLOCK_CONTROL, 4 * i, &words[i], failure);
    slash_board_close(&handle);
    return status;
}
