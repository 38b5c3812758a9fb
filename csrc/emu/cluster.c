/* Emulated clusters: creation, the registry by id, destruction once nobody uses one any more. */
#include "board.h"
#include "far.h"

#include <stdlib.h>
#include <string.h>

#define LOWEST_CLOCK_HZ 1000000

static pthread_mutex_t registry = PTHREAD_MUTEX_INITIALIZER;
static struct emu_cluster *clusters;
static uint32_t last_id;

static void board_free(struct emu_board *board) {
    emu_memory_clear(&board->memory);
    pthread_mutex_destroy(&board->write_faults.lock);
    pthread_mutex_destroy(&board->ecc.lock);
    for (uint32_t p = 0; p < LORA_PORTS; p++) {
        emu_far_free(board->ports[p].far);
        emu_port_free(&board->ports[p]);
    }
    if (board->core) board->cluster->control->close(board->core);
    free(board->trace.records);
}

static void cluster_free(struct emu_cluster *cluster) {
    for (uint32_t i = 0; i < cluster->boards; i++) board_free(&cluster->board[i]);
    for (uint32_t i = 0; i < EMU_PLANS; i++) free(cluster->plans.plans[i]);
    lora_pool_free(cluster->pool);
    pthread_mutex_destroy(&cluster->lock);
    free(cluster);
}

/* Both ends of the lock order: the registry first, and never while waiting for a cluster. */
struct emu_cluster *emu_cluster_acquire(uint32_t id) {
    pthread_mutex_lock(&registry);
    struct emu_cluster *cluster = clusters;
    while (cluster && (cluster->id != id || cluster->destroyed)) cluster = cluster->next;
    if (cluster) cluster->users++;
    pthread_mutex_unlock(&registry);
    if (cluster) pthread_mutex_lock(&cluster->lock);
    return cluster;
}

static void unlink_cluster(struct emu_cluster *cluster) {
    struct emu_cluster **at = &clusters;
    while (*at != cluster) at = &(*at)->next;
    *at = cluster->next;
}

static void drop_user(struct emu_cluster *cluster) {
    pthread_mutex_lock(&registry);
    bool last = --cluster->users == 0;
    if (last) unlink_cluster(cluster);
    pthread_mutex_unlock(&registry);
    if (last) cluster_free(cluster);
}

void emu_cluster_release(struct emu_cluster *cluster) {
    pthread_mutex_unlock(&cluster->lock);
    drop_user(cluster);
}

void emu_cluster_hold(struct emu_cluster *cluster) {
    pthread_mutex_lock(&registry);
    cluster->users++;
    pthread_mutex_unlock(&registry);
}

void emu_cluster_drop(struct emu_cluster *cluster) { drop_user(cluster); }

void lora_emu_destroy(uint32_t id) {
    pthread_mutex_lock(&registry);
    struct emu_cluster *cluster = clusters;
    while (cluster && (cluster->id != id || cluster->destroyed)) cluster = cluster->next;
    if (cluster) cluster->destroyed = true;
    pthread_mutex_unlock(&registry);
    if (cluster) drop_user(cluster); /* the creator's use; open handles keep it alive */
}

/* --- creation --------------------------------------------------------------------------------- */
static bool kernels_complete(const struct lora_kernels *kernels) {
    return kernels && kernels->size == sizeof *kernels && kernels->matrix && kernels->vector &&
           kernels->attention;
}

static int check_boards(const struct lora_emu_config *config, struct lora_failure *failure) {
    if (config->boards == 0 || config->boards > LORA_MAX_BOARDS || !config->board_info)
        return emu_fail(failure, LORA_ERR_ARGUMENT, NULL,
                        "an emulated cluster has 1 to %d boards, not %u", LORA_MAX_BOARDS,
                        config->boards);
    for (uint32_t i = 0; i < config->boards; i++) {
        const struct lora_board_info *info = &config->board_info[i];
        if (info->size != sizeof *info || info->bank_count == 0 ||
            info->bank_count > LORA_MAX_BANKS)
            return emu_fail(failure, LORA_ERR_ARGUMENT, NULL,
                            "emulated board %u: %u banks and a record of %u bytes; expected 1 to "
                            "%d banks, %zu bytes",
                            i, info->bank_count, info->size, LORA_MAX_BANKS, sizeof *info);
    }
    return LORA_OK;
}

static int check_cable(const struct lora_emu_config *config, uint32_t index, bool *used,
                       struct lora_failure *failure) {
    const struct lora_emu_cable *cable = &config->cables[index];
    bool known = cable->board_a < config->boards && cable->board_b < config->boards &&
                 cable->port_a < LORA_PORTS && cable->port_b < LORA_PORTS;
    uint32_t a = known ? cable->board_a * LORA_PORTS + cable->port_a : 0;
    uint32_t b = known ? cable->board_b * LORA_PORTS + cable->port_b : 0;
    if (!known || a == b || used[a] || used[b])
        return emu_fail(failure, LORA_ERR_ARGUMENT, NULL,
                        "cable %u (board %u port %u to board %u port %u): unknown port, or one "
                        "that has a cable already",
                        index, cable->board_a, cable->port_a, cable->board_b, cable->port_b);
    used[a] = used[b] = true;
    return LORA_OK;
}

static bool control_complete(const struct lora_control *control) {
    return !control ||
           (control->size == sizeof *control && control->open && control->begin && control->poll &&
            control->close && control->most_slices && !control->send == !control->take);
}

static int check_config(const struct lora_emu_config *config, struct lora_failure *failure) {
    if (!config || config->size != sizeof *config)
        return emu_fail(failure, LORA_ERR_ARGUMENT, NULL,
                        "emulated cluster: configuration of %u bytes, expected %zu",
                        config ? config->size : 0, sizeof *config);
    if (!kernels_complete(config->kernels))
        return emu_fail(failure, LORA_ERR_ARGUMENT, NULL,
                        "emulated cluster: the kernel table is incomplete");
    if (!control_complete(config->control))
        return emu_fail(failure, LORA_ERR_ARGUMENT, NULL,
                        "emulated cluster: the control's table is incomplete");
    if (config->clock_hz < LOWEST_CLOCK_HZ || (config->cable_count && !config->cables))
        return emu_fail(failure, LORA_ERR_ARGUMENT, NULL,
                        "emulated cluster: clock of %u Hz (at least %d), %u cables",
                        config->clock_hz, LOWEST_CLOCK_HZ, config->cable_count);
    int status = check_boards(config, failure);
    bool used[LORA_MAX_BOARDS * LORA_PORTS] = {false};
    for (uint32_t i = 0; status == LORA_OK && i < config->cable_count; i++)
        status = check_cable(config, i, used, failure);
    return status;
}

static int board_init(struct emu_cluster *cluster, uint32_t index,
                      const struct lora_emu_config *config) {
    struct emu_board *board = &cluster->board[index];
    board->cluster = cluster;
    board->index = index;
    emu_units_init(board);
    board->info = config->board_info[index];
    pthread_mutex_init(&board->write_faults.lock, NULL);
    pthread_mutex_init(&board->ecc.lock, NULL);
    emu_memory_init(&board->memory, &board->info);
    for (uint32_t p = 0; p < LORA_PORTS; p++)
        if (emu_port_init(&board->ports[p], board, p)) return LORA_ERR_MEMORY;
    board->trace.capacity = config->trace_capacity;
    if (config->trace_capacity == 0) return LORA_OK;
    board->trace.records = calloc(config->trace_capacity, sizeof *board->trace.records);
    return board->trace.records ? LORA_OK : LORA_ERR_MEMORY;
}

static void connect_cables(struct emu_cluster *cluster, const struct lora_emu_config *config) {
    for (uint32_t i = 0; i < config->cable_count; i++) {
        const struct lora_emu_cable *cable = &config->cables[i];
        struct emu_port *a = &cluster->board[cable->board_a].ports[cable->port_a];
        struct emu_port *b = &cluster->board[cable->board_b].ports[cable->port_b];
        a->peer = b;
        b->peer = a;
    }
}

static struct emu_cluster *make(const struct lora_emu_config *config) {
    size_t bytes = sizeof(struct emu_cluster) + config->boards * sizeof(struct emu_board);
    struct emu_cluster *cluster = aligned_alloc(LORA_LINE_BYTES, bytes);
    if (!cluster) return NULL;
    memset(cluster, 0, bytes);
    pthread_mutex_init(&cluster->lock, NULL);
    cluster->boards = config->boards;
    cluster->clock_hz = config->clock_hz;
    cluster->link_configuration = config->link_configuration;
    cluster->kernels = config->kernels;
    cluster->control = config->control ? config->control : &emu_firmware_control;
    cluster->users = 1;
    for (uint32_t i = 0; i < config->boards; i++)
        if (board_init(cluster, i, config)) {
            cluster_free(cluster);
            return NULL;
        }
    connect_cables(cluster, config);
    if (config->kernels->batch && config->threads != 1) {
        cluster->pool = lora_pool_create(config->threads);
        if (!cluster->pool) {
            cluster_free(cluster);
            return NULL;
        }
    }
    return cluster;
}

int lora_emu_create(const struct lora_emu_config *config, uint32_t *id,
                    struct lora_failure *failure) {
    int status = check_config(config, failure);
    if (status) return status;
    struct emu_cluster *cluster = make(config);
    if (!cluster)
        return emu_fail(failure, LORA_ERR_MEMORY, NULL, "no memory for %u emulated boards",
                        config->boards);
    pthread_mutex_lock(&registry);
    cluster->id = ++last_id;
    cluster->next = clusters;
    clusters = cluster;
    *id = cluster->id;
    pthread_mutex_unlock(&registry);
    return LORA_OK;
}

uint32_t lora_emu_threads(uint32_t cluster) {
    struct emu_cluster *found = emu_cluster_acquire(cluster);
    if (!found) return 0;
    uint32_t threads = lora_pool_threads(found->pool);
    emu_cluster_release(found);
    return threads;
}

int lora_emu_link_bytes(uint32_t cluster, uint32_t board, uint32_t port, uint64_t *frame_bytes,
                        uint64_t *payload_bytes) {
    struct emu_cluster *found = emu_cluster_acquire(cluster);
    if (!found) return LORA_ERR_ARGUMENT;
    int status = board < found->boards && port < LORA_PORTS ? LORA_OK : LORA_ERR_ARGUMENT;
    if (status == LORA_OK) {
        *frame_bytes = found->board[board].ports[port].frame_bytes;
        *payload_bytes = found->board[board].ports[port].payload_bytes;
    }
    emu_cluster_release(found);
    return status;
}

int lora_emu_weight_bytes(uint32_t cluster, uint32_t board, uint64_t *bytes) {
    struct emu_cluster *found = emu_cluster_acquire(cluster);
    if (!found) return LORA_ERR_ARGUMENT;
    int status = board < found->boards ? LORA_OK : LORA_ERR_ARGUMENT;
    if (status == LORA_OK) *bytes = found->board[board].weight_bytes;
    emu_cluster_release(found);
    return status;
}

int lora_emu_attach(uint32_t cluster, uint32_t board, const struct lora_arena_record *arenas,
                    uint32_t count, int fd, struct lora_failure *failure) {
    struct emu_cluster *found = emu_cluster_acquire(cluster);
    if (!found || board >= found->boards || count > LORA_MAX_ARENAS) {
        if (found) emu_cluster_release(found);
        return emu_fail(failure, LORA_ERR_ARGUMENT, NULL,
                        "emulated cluster %u board %u: %u arenas to attach", cluster, board, count);
    }
    int status = emu_memory_attach(&found->board[board], arenas, count, fd, failure);
    emu_cluster_release(found);
    return status;
}

int lora_emu_profile(uint32_t cluster, uint32_t on) {
    struct emu_cluster *found = emu_cluster_acquire(cluster);
    if (!found) return LORA_ERR_ARGUMENT;
    if (on && !found->profiler.on) emu_profiler_calibrate(&found->profiler);
    found->profiler.on = on != 0;
    emu_cluster_release(found);
    return LORA_OK;
}

int lora_emu_times(uint32_t cluster, struct lora_emu_times *times) {
    struct emu_cluster *found = times ? emu_cluster_acquire(cluster) : NULL;
    if (!found) return LORA_ERR_ARGUMENT;
    const struct emu_profiler *profiler = &found->profiler;
    const struct emu_tally *tally = &profiler->tally;
    times->kernels_ns = (uint64_t)((double)tally->ticks[EMU_KERNELS] * profiler->tick_ns);
    times->moves_ns = (uint64_t)((double)tally->ticks[EMU_MOVES] * profiler->tick_ns);
    times->links_ns = (uint64_t)((double)tally->ticks[EMU_LINKS] * profiler->tick_ns);
    times->profiler_ns = (uint64_t)((double)tally->readings * profiler->spare_ns);
    emu_cluster_release(found);
    return LORA_OK;
}
