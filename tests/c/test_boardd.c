/* Two board daemons in threads of this process, on Unix sockets: a cluster of both's boards, whose
 * cables lead from one to the other, and writes beside runs. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "emu_board.h"
#include "lora/boardd.h"

enum { SPEED = 20, ARENA = 1 << 20, CONTROL = TEST_DDR, LONGEST_S = 120 };

struct daemon {
    struct lora_boardd *boardd;
    uint32_t emulated;
    char path[64];
    int listening;
    atomic_bool ended;
    pthread_t accepting, cables[2];
    pthread_t sessions[16];
    uint32_t count;
};

struct served {
    struct daemon *daemon;
    int socket;
};

static void *serve(void *given) {
    struct served served = *(struct served *)given;
    free(given);
    lora_boardd_serve(served.daemon->boardd, served.socket);
    return NULL;
}

static void *accept_all(void *given) {
    struct daemon *daemon = given;
    int found;
    while ((found = accept4(daemon->listening, NULL, NULL, SOCK_CLOEXEC)) >= 0) {
        struct served *served = malloc(sizeof *served);
        CHECK(served != NULL && daemon->count < 16);
        *served = (struct served){daemon, found};
        CHECK(pthread_create(&daemon->sessions[daemon->count++], NULL, serve, served) == 0);
    }
    return NULL;
}

static uint32_t emulate(uint32_t first_serial) {
    struct lora_board_info infos[2] = {test_info(first_serial), test_info(first_serial + 1)};
    const struct lora_emu_cable cable = {0, 1, 1, 0};
    const struct lora_emu_config config = {.size = sizeof config,
                                           .boards = 2,
                                           .board_info = infos,
                                           .cable_count = 1,
                                           .clock_hz = TEST_CLOCK_HZ,
                                           .cables = &cable,
                                           .kernels = &test_kernels,
                                           .threads = 1,
                                           .link_configuration = TEST_CONFIGURATION};
    struct lora_failure failure;
    uint32_t id = 0;
    CHECK(lora_emu_create(&config, &id, &failure) == LORA_OK);
    return id;
}

static void begin(struct daemon *daemon, const char *folder, uint32_t number) {
    char uris[2][32];
    struct lora_boardd_board boards[2];
    struct lora_failure failure;
    const char *const names[2] = {"emu:u280/0", "emu:u280/1"};
    daemon->emulated = emulate(10 * number);
    for (uint32_t b = 0; b < 2; b++) {
        snprintf(uris[b], sizeof uris[b], "emu:%u/%u", daemon->emulated, b);
        boards[b] = (struct lora_boardd_board){names[b], uris[b], daemon->emulated, b};
    }
    const struct lora_boardd_config config = {.size = sizeof config,
                                              .board_count = 2,
                                              .boards = boards,
                                              .folder = folder,
                                              .speed = SPEED};
    CHECK(lora_boardd_create(&config, &daemon->boardd, &failure) == LORA_OK);
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    snprintf(daemon->path, sizeof daemon->path, "%s/%u.sock", folder, number);
    strcpy(at.sun_path, daemon->path);
    daemon->listening = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(bind(daemon->listening, (struct sockaddr *)&at, sizeof at) == 0);
    CHECK(listen(daemon->listening, 16) == 0);
    CHECK(pthread_create(&daemon->accepting, NULL, accept_all, daemon) == 0);
}

static void end(struct daemon *daemon) {
    lora_boardd_stop(daemon->boardd);
    shutdown(daemon->listening, SHUT_RDWR);
    pthread_join(daemon->accepting, NULL);
    for (uint32_t i = 0; i < daemon->count; i++) pthread_join(daemon->sessions[i], NULL);
    close(daemon->listening);
    unlink(daemon->path);
    lora_boardd_destroy(daemon->boardd);
    lora_emu_destroy(daemon->emulated);
}

struct cable {
    struct daemon *from;
    uint32_t board, port, far_port;
    char uri[96];
};

static void *hold(void *given) {
    struct cable *cable = given;
    struct lora_failure failure;
    lora_boardd_cable(cable->from->boardd, cable->board, cable->port, cable->uri, cable->far_port,
                      &failure);
    return NULL;
}

static void program(struct lora_cluster *cluster, uint32_t board) {
    uint8_t image[sizeof(struct lora_image_header) + 8] = {0};
    const struct lora_image_header header = {.magic = LORA_IMAGE_MAGIC,
                                             .size = sizeof header,
                                             .abi = LORA_ABI_NUMBER,
                                             .board = LORA_BOARD_U280,
                                             .code_bytes = 8,
                                             .code_crc = lora_crc32(0, image + sizeof header, 8)};
    memcpy(image, &header, sizeof header);
    const struct lora_program program = {.size = sizeof program,
                                         .board_kind = LORA_BOARD_U280,
                                         .abi = LORA_ABI_NUMBER,
                                         .onchip_bytes = TEST_ONCHIP,
                                         .image = image,
                                         .image_bytes = sizeof image};
    struct lora_failure failure;
    CHECK(lora_cluster_program(cluster, board, &program, CONTROL, &failure) == LORA_OK);
    CHECK(lora_cluster_reserve(cluster, board, CONTROL, 0, ARENA, &failure) == LORA_OK);
    CHECK(lora_cluster_reserve(cluster, board, 0, 0, ARENA, &failure) == LORA_OK);
}

static void *write_beside(void *given) {
    static uint8_t data[ARENA / 4];
    struct lora_failure failure;
    for (uint32_t i = 0; i < 40; i++) {
        memset(data, (int)i, sizeof data);
        CHECK(lora_cluster_write(given, i % 4, 0, ARENA / 2, data, sizeof data, &failure) ==
              LORA_OK);
    }
    return NULL;
}

static void use(struct lora_cluster *cluster) {
    static uint8_t data[ARENA / 2], back[ARENA / 4];
    struct lora_failure failure;
    pthread_t writer;
    uint32_t crc = 0;
    for (uint32_t i = 0; i < sizeof data; i++) data[i] = (uint8_t)(i * 7 + i / 251);
    for (uint32_t b = 0; b < 4; b++)
        CHECK(lora_cluster_write(cluster, b, 0, 0, data, sizeof data, &failure) == LORA_OK);
    CHECK(pthread_create(&writer, NULL, write_beside, cluster) == 0);
    for (uint32_t i = 0; i < 12; i++) {
        CHECK(lora_cluster_checksum(cluster, i % 4, 0, 0, sizeof data, &crc, &failure) == LORA_OK);
        CHECK(crc == lora_crc32(0, data, sizeof data));
    }
    pthread_join(writer, NULL);
    CHECK(lora_cluster_read(cluster, 3, 0, ARENA / 2, back, sizeof back, &failure) == LORA_OK);
    CHECK(back[0] == 39 && back[sizeof back - 1] == 39);
}

static void open_and_use(struct daemon daemons[2]) {
    char uris[4][96];
    const char *names[4];
    const struct lora_cable cables[4] = {{0, 1, 1, 0}, {1, 1, 2, 0}, {2, 1, 3, 0}, {3, 1, 0, 0}};
    struct lora_cluster *cluster = NULL;
    struct lora_failure failure;
    struct lora_timeouts timeouts;
    for (uint32_t b = 0; b < 4; b++) {
        snprintf(uris[b], sizeof uris[b], "unix:%s/emu:u280/%u", daemons[b / 2].path, b % 2);
        names[b] = uris[b];
    }
    CHECK(lora_cluster_open(names, 4, &cluster, &failure) == LORA_OK);
    lora_timeouts_default(&timeouts);
    timeouts.core_reset_us = 200000;
    timeouts.link_up_us = 20000000;
    timeouts.link_test_us = timeouts.checksum_us = 400000000; /* twenty seconds here */
    timeouts.watchdog_ms = 400000;
    timeouts.step_us = 401000000;
    CHECK(lora_cluster_set_timeouts(cluster, &timeouts) == LORA_OK);
    for (uint32_t b = 0; b < 4; b++) program(cluster, b);
    int status = lora_cluster_links_up(cluster, cables, 4, TEST_CONFIGURATION, ~0u, &failure);
    if (status) fprintf(stderr, "%s\n", failure.message);
    CHECK(status == LORA_OK);
    use(cluster);
    lora_cluster_close(cluster);
}

int main(void) {
    char folder[] = "/tmp/lora-boardd-c-XXXXXX";
    struct daemon daemons[2] = {0};
    struct cable cables[2];
    pthread_t threads[2];
    signal(SIGPIPE, SIG_IGN);
    alarm(LONGEST_S);
    CHECK(mkdtemp(folder) != NULL);
    for (uint32_t i = 0; i < 2; i++) begin(&daemons[i], folder, i + 1);
    cables[0] = (struct cable){.from = &daemons[0], .board = 1, .port = 1, .far_port = 0};
    cables[1] = (struct cable){.from = &daemons[0], .board = 0, .port = 0, .far_port = 1};
    snprintf(cables[0].uri, sizeof cables[0].uri, "unix:%s/emu:u280/0", daemons[1].path);
    snprintf(cables[1].uri, sizeof cables[1].uri, "unix:%s/emu:u280/1", daemons[1].path);
    for (int i = 0; i < 2; i++) CHECK(pthread_create(&threads[i], NULL, hold, &cables[i]) == 0);
    for (int i = 0; i < 2; i++) open_and_use(daemons); /* twice: what is closed is free */
    lora_boardd_stop(daemons[0].boardd);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < 2; i++) end(&daemons[i]);
    CHECK(rmdir(folder) == 0);
    return 0;
}
