// The library's interface.
#include "sim.hpp"

#include "board.hpp"

#include <atomic>
#include <new>

namespace {

constexpr uint32_t MOST_SLICES = 16; // a person's Ctrl-C waits for these

struct Cluster {
    lora_control control;
    lora_sim_config config;
    Board *boards[LORA_MAX_BOARDS];
    std::atomic<uint32_t> users{1}; // boards, and who opened it
};

struct Core { // what a Board is to the cluster that has it
    Board board;
    Cluster *cluster;
    uint32_t number;
};

void drop(Cluster *cluster) {
    if (--cluster->users == 0) delete cluster;
}

Board &board_of(void *core) { return static_cast<Core *>(core)->board; }

void *open_core(void *context, uint32_t number, const lora_board_calls *calls) {
    auto *cluster = static_cast<Cluster *>(context);
    if (calls->size != sizeof *calls || number >= LORA_MAX_BOARDS) return nullptr;
    auto *core = new (std::nothrow) Core{Board(cluster->config, *calls, number), cluster, number};
    if (!core) return nullptr;
    cluster->boards[number] = &core->board;
    cluster->users++;
    return core;
}

int load(void *core, const uint8_t *code, uint64_t bytes) {
    return !board_of(core).load(code, bytes);
}
void begin(void *core) { board_of(core).begin(); }
uint32_t poll(void *core) { return board_of(core).poll(); }
void send(void *core) { board_of(core).send(); }
void take(void *core) { board_of(core).take(); }

void close_core(void *core) {
    auto *found = static_cast<Core *>(core);
    Cluster *cluster = found->cluster;
    cluster->boards[found->number] = nullptr;
    delete found;
    drop(cluster);
}

bool valid(const lora_sim_config *config) {
    return config && config->size == sizeof *config && config->boards &&
           config->boards <= LORA_MAX_BOARDS && config->cycles_per_ms && config->slice &&
           config->latency && config->onchip &&
           (config->boards == 1 || config->slice <= config->link_latency);
}

} // namespace

extern "C" {

#define EXPORTED __attribute__((visibility("default")))

EXPORTED uint32_t lora_sim_version(void) { return LORA_SIM_VERSION; }

EXPORTED uint32_t lora_sim_lanes(void) { return CARD_LANES; }

EXPORTED uint32_t lora_sim_channels(void) { return CARD_CHANNELS; }

EXPORTED uint32_t lora_sim_onchip_bytes(void) { return CARD_ONCHIP_BYTES; }

EXPORTED const lora_control *lora_sim_open(const lora_sim_config *config) {
    auto *cluster = valid(config) ? new (std::nothrow) Cluster() : nullptr;
    if (!cluster) return nullptr;
    cluster->config = *config;
    lora_control &control = cluster->control;
    control.size = sizeof control;
    control.most_slices = MOST_SLICES;
    control.context = cluster;
    control.open = open_core;
    control.load = load;
    control.begin = begin;
    control.poll = poll;
    control.send = send;
    control.take = take;
    control.close = close_core;
    return &control;
}

EXPORTED void lora_sim_close(const lora_control *control) {
    drop(static_cast<Cluster *>(control->context));
}

EXPORTED void lora_sim_read_counts(const lora_control *control, uint32_t board,
                                   lora_sim_counts *counts) {
    const auto *cluster = static_cast<const Cluster *>(control->context);
    const Board *found = board < LORA_MAX_BOARDS ? cluster->boards[board] : nullptr;
    *counts = found ? found->counts() : lora_sim_counts{};
}

} // extern "C"
