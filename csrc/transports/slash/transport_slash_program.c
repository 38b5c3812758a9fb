/* Loading of a design. vrtd reports success even where its DMA failed, so identity is read back. */
#define _GNU_SOURCE
#include "transport_slash.h"

#include <string.h>
#include <time.h>
#include <unistd.h>

#define DESIGN_MS 120000 /* a full PDI over PCIe, with its boot */
#define IDENTITY_MS 3000 /* until the soft core answers: it starts in milliseconds */
#define LOOK_MS 5
#define CLOCK_TOLERANCE 50 /* a fiftieth: what the clock wizard may be off */

/* A service layer has a place in the service shell only. */
static uint8_t required_shell(const struct slash_archive *archive) {
    for (uint32_t i = 0; i < archive->count; i++)
        if (strstr(archive->designs[i].name, "service_layer")) return SLASH_SHELL_SERVICE;
    return SLASH_SHELL_COMPUTE;
}

static const char *design_cure(uint32_t result) {
    switch (result) {
    case SLASH_INTERNAL:
        return "writing it, the reset into its shell (which needs ami) or the scan of the bus "
               "after "
               "it failed: see 'journalctl -u vrtd', then run 'lora reset'";
    case SLASH_AUTH: return "the role of your user in vrtd.conf needs design-write";
    case SLASH_BUSY: return "another client loads one: try again";
    case SLASH_SHELL_LOCKED:
        return "the board was booted by JTAG into another shell: boot the design's shell";
    default: return "'journalctl -u vrtd' says why";
    }
}

static int write_design(struct slash_handle *handle, const struct slash_archive *archive,
                        uint32_t index, struct lora_failure *failure) {
    struct __attribute__((packed)) {
        uint32_t device;
        uint8_t shell; /* in the development branch */
    } body = {handle->device, required_shell(archive)};
    uint8_t answer;
    int fd = -1;
    int status = slash_archive_design(archive, index, &fd, failure);
    if (status) return status;
    struct slash_request ask = {.opcode = SLASH_DESIGN,
                                .body = &body,
                                .body_bytes = handle->wire.generation == SLASH_RELEASE ? 4 : 5,
                                .fd = fd,
                                .answer = &answer,
                                .answer_bytes = 1,
                                .timeout_ms = DESIGN_MS};
    status = slash_call(&handle->wire, &ask, failure);
    close(fd);
    if (status && ask.result)
        status = lora_fail(failure, LORA_ERR_TRANSPORT,
                           "board %s: vrtd refuses to load %.40s (request 8: %s); %s", handle->bdf,
                           archive->designs[index].name, slash_return_name(ask.result),
                           design_cure(ask.result));
    /* vrtd has scanned the bus: its index of the board may have changed. */
    return status ? status : slash_board_find(handle, failure);
}

static int write_designs(struct slash_handle *handle, const char *container,
                         struct lora_failure *failure) {
    struct slash_archive archive;
    if (!container)
        return lora_fail(failure, LORA_ERR_OVERLAY,
                         "board %s: the overlay has no container; a V80 needs a vrtbin",
                         handle->bdf);
    int status = slash_archive_open(container, &archive, failure);
    for (uint32_t i = 0; i < archive.count && !status; i++)
        status = write_design(handle, &archive, i, failure);
    slash_archive_close(&archive);
    return status;
}

static int set_clock(struct slash_handle *handle, uint32_t hz, struct lora_failure *failure) {
    const struct slash_clock_body body = {handle->device, hz, SLASH_CLOCK_SET, SLASH_USER_CLOCK};
    uint32_t rate = 0;
    struct slash_request ask = {.opcode = SLASH_CLOCK,
                                .body = &body,
                                .body_bytes = sizeof body,
                                .fd = -1,
                                .answer = &rate,
                                .answer_bytes = sizeof rate,
                                .timeout_ms = SLASH_ANSWER_MS};
    if (!hz) return LORA_OK;
    int status = slash_call(&handle->wire, &ask, failure);
    if (status) return status;
    uint32_t off = rate > hz ? rate - hz : hz - rate;
    if (off <= hz / CLOCK_TOLERANCE) return LORA_OK;
    failure->found = rate;
    failure->expected = hz;
    return lora_fail(failure, LORA_ERR_OVERLAY,
                     "board %s: user clock at %u Hz found, %u Hz expected by the overlay",
                     handle->bdf, rate, hz);
}

static int read_back(struct slash_handle *handle, const struct lora_program *program,
                     struct lora_failure *failure) {
    uint32_t wanted[3] = {LORA_ABI_NUMBER, program->board_kind, 0}, found[3] = {0};
    const uint32_t offsets[3] = {LORA_REG_IDENTITY_ABI, LORA_REG_IDENTITY_BOARD,
                                 LORA_REG_FIRMWARE_CRC};
    struct lora_image_header header;
    if (program->image_bytes < sizeof header)
        return lora_fail(failure, LORA_ERR_OVERLAY, "board %s: no firmware image", handle->bdf);
    memcpy(&header, program->image, sizeof header);
    wanted[2] = header.code_crc;
    for (uint32_t waited = 0; waited <= IDENTITY_MS; waited += LOOK_MS) {
        for (uint32_t i = 0; i < 3; i++) {
            int status = slash_register_read(handle, LORA_BLOCK_CONTROL, offsets[i], &found[i],
                                             failure);
            if (status) return status;
        }
        if (!memcmp(found, wanted, sizeof found)) return LORA_OK;
        if (!slash_alive(&handle->wire))
            return lora_fail(failure, LORA_ERR_TRANSPORT,
                             "board %s: vrtd is gone while its design starts", handle->bdf);
        struct timespec pause = {0, LOOK_MS * 1000000};
        nanosleep(&pause, NULL);
    }
    failure->found = found[2];
    failure->expected = wanted[2];
    return lora_fail(failure, LORA_ERR_IDENTITY,
                     "board %s: vrtd reports the design as written, but the board shows ABI %u, "
                     "board 0x%x, firmware 0x%08x; %u, 0x%x, 0x%08x expected; reset it",
                     handle->bdf, found[0], found[1], found[2], wanted[0], wanted[1], wanted[2]);
}

int slash_program(void *opened, const struct lora_program *program, struct lora_failure *failure) {
    struct slash_handle *handle = opened;
    slash_bar_unmap(handle);
    int status = write_designs(handle, program->container, failure);
    if (!status) status = slash_bar_map(handle, failure);
    if (!status) status = set_clock(handle, program->clock_hz, failure);
    if (status) return status;
    memcpy(handle->block_base, program->block_base, sizeof handle->block_base);
    handle->programmed = 1;
    status = read_back(handle, program, failure);
    if (status) slash_bar_unmap(handle);
    return status;
}
