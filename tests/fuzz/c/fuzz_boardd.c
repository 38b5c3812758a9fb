/* What a connected host sends a board daemon that serves an emulated board. Input: a byte of
 * manner, then messages of a byte of kind, u16 bytes of the body and the body; where the manner's
 * first bit is set the whole rest goes out as it is. */
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include "emu_board.h"
#include "lora/boardd.h"
#include "message.h"
#include "taken.h"

uint32_t fuzz_taken;

enum { MOST = 60000 }; /* fits a socket's buffer */

static struct lora_boardd *boardd;

static void begin(void) {
    static struct test_cluster cluster;
    static char uri[32];
    struct lora_failure failure;
    cluster = test_open(1, TEST_PATH, 0);
    transport->close(cluster.handle[0]);
    snprintf(uri, sizeof uri, "emu:%u/0", cluster.id);
    const struct lora_boardd_board board = {
        .name = "emu:u280/0", .uri = uri, .emulated = cluster.id};
    const struct lora_boardd_config config = {
        .size = sizeof config, .board_count = 1, .boards = &board, .folder = "/tmp"};
    CHECK(lora_boardd_create(&config, &boardd, &failure) == LORA_OK);
}

static size_t put(uint8_t *out, size_t used, uint32_t kind, const void *body, uint32_t bytes) {
    const struct wire_header header = {
        .magic = WIRE_MAGIC, .kind = (uint16_t)kind, .bytes = bytes, .sequence = (uint32_t)used};
    if (used + sizeof header + bytes > MOST) return used;
    memcpy(out + used, &header, sizeof header);
    if (bytes) memcpy(out + used + sizeof header, body, bytes);
    return used + sizeof header + bytes;
}

static size_t messages(uint8_t *out, size_t used, const uint8_t *data, size_t bytes) {
    while (bytes >= 3) {
        uint32_t kind = data[0], size = (uint32_t)data[1] | (uint32_t)data[2] << 8;
        data += 3;
        bytes -= 3;
        if (size > bytes) size = (uint32_t)bytes;
        used = put(out, used, kind, data, size);
        data += size;
        bytes -= size;
    }
    return used;
}

static size_t spell(uint8_t *out, const uint8_t *data, size_t bytes) {
    struct wire_hello hello = {.version = WIRE_VERSION, .abi = LORA_ABI_NUMBER};
    if (bytes && data[0] & 1) {
        size_t raw = bytes - 1 < MOST ? bytes - 1 : MOST;
        memcpy(out, data + 1, raw);
        return raw;
    }
    hello.role = bytes && data[0] & 2 ? WIRE_ROLE_CABLE : WIRE_ROLE_BOARD;
    snprintf(hello.board, sizeof hello.board, "emu:u280");
    size_t used = put(out, 0, WIRE_HELLO, &hello, sizeof hello);
    return bytes ? messages(out, used, data + 1, bytes - 1) : used;
}

static void *drain(void *given) {
    uint8_t data[65536];
    while (read(*(int *)given, data, sizeof data) > 0) {
    }
    return NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    static uint8_t out[MOST];
    struct lora_boardd_state state;
    int ends[2];
    pthread_t reader;
    if (!boardd) begin();
    size_t used = spell(out, data, bytes);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    CHECK(write(ends[0], out, used) == (ssize_t)used);
    CHECK(shutdown(ends[0], SHUT_WR) == 0);
    CHECK(pthread_create(&reader, NULL, drain, &ends[0]) == 0);
    fuzz_taken += lora_boardd_serve(boardd, ends[1]) != 0;
    pthread_join(reader, NULL);
    close(ends[0]);
    CHECK(lora_boardd_states(boardd, &state, 1) == 1);
    CHECK(state.holder[0] == '\0' && !state.busy);
    return 0;
}
