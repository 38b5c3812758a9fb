/* The C reader of Alveo containers, on any bytes. */
#define _GNU_SOURCE
#include <string.h>
#include <sys/mman.h>

#include "descriptors.h"
#include "taken.h"
#include "transport_xrt.h"

uint32_t fuzz_taken;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    struct lora_failure failure;
    struct xrt_container container;
    unsigned char uuid[16];
    char path[32];
    int before = lowest_free(), file = memory_file(data, bytes, path);
    int status = xrt_container_read(path, xrt_facts_of(LORA_BOARD_U280, &failure), &container,
                                    lora_failure_begin(&failure, NULL));
    CHECK(status == LORA_OK || status == LORA_ERR_OVERLAY);
    CHECK(!status || (failure.message[0] && !strchr(failure.message, '\n')));
    fuzz_taken += status == LORA_OK;
    (void)xrt_container_uuid(path, uuid, lora_failure_begin(&failure, NULL));
    close(file);
    CHECK(lowest_free() == before);
    return 0;
}
