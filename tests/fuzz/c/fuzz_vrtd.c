/* Answers of any bytes from vrtd, as the V80's transport reads them. Input: a byte that chooses
 * what is asked, then answers: a byte (bits 0..3 the return, 4 a descriptor, 5 another sequence, 6
 * another length), two bytes (length) and the body. Linked with --wrap=slash_connect. */
#define _GNU_SOURCE
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "descriptors.h"
#include "taken.h"
#include "transport_slash.h"

uint32_t fuzz_taken;

enum { ANSWERS = 16, BODY = LORA_SLASH_PACKET - 8, BAR_FILE = 1 << 16 };

static int ends[2] = {-1, -1}, given = -1;

int __wrap_slash_connect(struct slash_wire *wire, struct lora_failure *failure);
int __wrap_slash_connect(struct slash_wire *wire, struct lora_failure *failure) {
    *wire = (struct slash_wire){.socket = ends[0]};
    ends[0] = -1; /* the transport closes it */
    return wire->socket < 0 ? lora_fail(failure, LORA_ERR_TRANSPORT, "one connection") : LORA_OK;
}

static void answer(const uint8_t *body, size_t bytes, unsigned manner, uint32_t sequence) {
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(2 * sizeof(int))];
    } control = {0};
    const int both[2] = {given, given};
    struct {
        uint16_t bytes, result;
        uint32_t sequence;
    } header = {(uint16_t)bytes, manner & 15, sequence};
    if (manner & 32) header.sequence ^= 1;
    if (manner & 64) header.bytes ^= 5;
    struct iovec parts[2] = {{&header, sizeof header}, {(void *)body, bytes}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = bytes ? 2 : 1};
    if (manner & 16) {
        message.msg_control = control.bytes;
        message.msg_controllen = sizeof control.bytes;
        struct cmsghdr *rights = CMSG_FIRSTHDR(&message);
        rights->cmsg_level = SOL_SOCKET;
        rights->cmsg_type = SCM_RIGHTS;
        rights->cmsg_len = CMSG_LEN(sizeof both);
        memcpy(CMSG_DATA(rights), both, sizeof both);
    }
    CHECK(sendmsg(ends[1], &message, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0);
}

static void answers(const uint8_t *data, size_t bytes) {
    for (uint32_t i = 1; i <= ANSWERS && bytes >= 3; i++) {
        size_t length = (size_t)data[1] | (size_t)data[2] << 8;
        if (length > bytes - 3) length = bytes - 3;
        if (length > BODY) length = BODY;
        answer(data + 3, length, data[0], i);
        data += length + 3, bytes -= length + 3;
    }
}

/* What a run asks of a board: its arenas, its BAR, registers and a transfer. */
static int use_board(unsigned chosen, struct lora_failure *failure) {
    struct slash_handle handle = {.bdf = "0000:21:00.0"};
    uint64_t base;
    uint32_t word;
    uint8_t bytes[64] = {0};
    int status = slash_board_open(&handle, failure);
    if (status) return status;
    if (chosen & 8) status = slash_bar_map(&handle, failure);
    if (!status && chosen & 8) {
        handle.programmed = 1;
        handle.block_base[LORA_BLOCK_CONTROL] = 0;
        status = slash_register_read(&handle, LORA_BLOCK_CONTROL, 0x10, &word, failure);
    }
    uint32_t bank = chosen & 16 ? SLASH_DDR_BANK : 3;
    uint64_t size = chosen & 32 ? SLASH_REGION_BYTES + 1 : 4096;
    if (!status) status = slash_reserve(&handle, bank, 0, size, &base, failure);
    if (!status && chosen & 64) status = slash_memory_write(&handle, bank, 0, bytes, 64, failure);
    if (!status) status = slash_release(&handle, bank, 0, failure);
    slash_board_close(&handle);
    return status;
}

static int ask(unsigned chosen, struct lora_failure *failure) {
    struct lora_slash_device devices[4];
    struct lora_slash_sensor sensors[4];
    uint32_t count;
    switch (chosen & 3) {
    case 0: return lora_slash_devices(devices, 4, &count, failure);
    case 1: return lora_slash_sensors("0000:21:00.0", sensors, 4, &count, failure);
    case 2: return lora_slash_clock("0000:21:00.0", &count, failure);
    default: return use_board(chosen, failure);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    struct lora_failure failure;
    if (!bytes) return 0;
    if (given < 0) {
        given = memfd_create("bar", MFD_CLOEXEC);
        CHECK(given >= 0 && !ftruncate(given, BAR_FILE));
    }
    int before = lowest_free();
    CHECK(!socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends));
    answers(data + 1, bytes - 1);
    CHECK(!shutdown(ends[1], SHUT_WR));
    int status = ask(data[0], lora_failure_begin(&failure, NULL));
    CHECK(!status || (failure.message[0] && !strchr(failure.message, '\n')));
    fuzz_taken += status == LORA_OK;
    if (ends[0] >= 0) close(ends[0]);
    close(ends[1]);
    CHECK(lowest_free() == before);
    return 0;
}
