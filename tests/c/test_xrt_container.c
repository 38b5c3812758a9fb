/* Containers as files of any content: the reader of transport xrt under the sanitizers. */
#define _POSIX_C_SOURCE 200809L
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "transport_xrt.h"

static char path[] = "/tmp/lora-container-XXXXXX";
static struct lora_failure failure;

static const struct xrt_facts *facts;

static int read_bytes(const uint8_t *data, size_t bytes, struct xrt_container *container) {
    FILE *file = fopen(path, "wb");
    assert(file && fwrite(data, 1, bytes, file) == bytes && !fclose(file));
    return xrt_container_read(path, facts, container, lora_failure_begin(&failure, NULL));
}

static uint8_t *load(const char *name, size_t *bytes) {
    FILE *file = fopen(name, "rb");
    assert(file && !fseek(file, 0, SEEK_END));
    *bytes = (size_t)ftell(file);
    rewind(file);
    uint8_t *data = malloc(*bytes);
    assert(data && fread(data, 1, *bytes, file) == *bytes && !fclose(file));
    return data;
}

static void whole(const uint8_t *data, size_t bytes) {
    struct xrt_container container;
    assert(read_bytes(data, bytes, &container) == LORA_OK);
    for (uint32_t bank = 0; bank < xrt_bank_count(facts); bank++) {
        assert(container.memory[bank] == (int32_t)bank && container.connected[bank]);
        assert(container.bytes[bank] == xrt_bank_usable(facts, bank) + 4096);
    }
    assert(!strcmp(container.unit[LORA_BLOCK_CONTROL], "lora_ctrl:lora_ctrl_1"));
    assert(container.unit_base[LORA_BLOCK_LINK1] == 0x820000);
}

static void cut(const uint8_t *data, size_t bytes) {
    struct xrt_container container;
    for (size_t length = 0; length < bytes; length += 499) {
        assert(read_bytes(data, length, &container) == LORA_ERR_OVERLAY);
        assert(failure.message[0] && !strchr(failure.message, '\n'));
    }
}

/* Lengths, offsets and counts of the header and of every table, one after another. */
static void damaged(uint8_t *data, size_t bytes) {
    static const uint32_t values[] = {0xffffffff, 0x7fffffff, 0x80000000, 0x1000};
    struct xrt_container container;
    uint32_t kept;
    for (size_t at = 304; at + 4 <= bytes && at < 1200; at += 4)
        for (size_t v = 0; v < sizeof values / sizeof values[0]; v++) {
            memcpy(&kept, data + at, 4);
            memcpy(data + at, &values[v], 4);
            int status = read_bytes(data, bytes, &container);
            assert(status == LORA_OK || status == LORA_ERR_OVERLAY);
            memcpy(data + at, &kept, 4);
        }
}

int main(void) {
    size_t bytes;
    struct xrt_container container;
    int file = mkstemp(path);
    assert(file >= 0 && !close(file));
    assert(!xrt_facts_of(LORA_BOARD_V80, lora_failure_begin(&failure, NULL)));
    assert(strstr(failure.message, "board kind 0x80 found"));
    facts = xrt_facts_of(LORA_BOARD_U55C, &failure);
    uint8_t *data = load("../../overlays/lora_f_u55c/lora_f_u55c.xclbin", &bytes);
    whole(data, bytes);
    facts = xrt_facts_of(LORA_BOARD_U280, &failure); /* whose banks of DDR this one has not */
    assert(read_bytes(data, bytes, &container) == LORA_ERR_OVERLAY);
    assert(strstr(failure.message, "bank DDR[0] has 0 MiB, 16384 MiB expected (u280)"));
    free(data);
    data = load("../../overlays/lora_f_u280/lora_f_u280.xclbin", &bytes);
    whole(data, bytes);
    cut(data, bytes);
    damaged(data, bytes);
    assert(xrt_container_read("/nowhere", facts, &container, lora_failure_begin(&failure, NULL)) ==
           LORA_ERR_OVERLAY);
    assert(xrt_container_read("/tmp", facts, &container, lora_failure_begin(&failure, NULL)) ==
           LORA_ERR_OVERLAY);
    free(data);
    return unlink(path);
}
