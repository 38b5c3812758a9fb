// What firmware.h declares, by the kernel that the vendor build packs.
#include "kernel_board.hpp"

extern "C" {
#include "firmware.h"
}

#include <atomic>
#include <map>
#include <mutex>

struct fw {
    uint32_t unused;
};

namespace {

constexpr uint32_t SLICE_CYCLES = 500, IDLE_CYCLES = 20; // between two looks of the other boards

std::mutex lock;
std::map<const fw *, std::unique_ptr<KernelBoard>> kernels;
uint64_t cycles_of_all = 0; // of kernels that are no more

KernelBoard &kernel_of(const fw *board) {
    {
        std::lock_guard<std::mutex> held(lock);
        if (auto found = kernels.find(board); found != kernels.end()) return *found->second;
    }
    auto made = std::make_unique<KernelBoard>(1);
    std::lock_guard<std::mutex> held(lock);
    return *(kernels[board] = std::move(made));
}

} // namespace

uint32_t fw_bytes(void) { return sizeof(fw); }

void fw_reset(fw *board) {
    std::lock_guard<std::mutex> held(lock);
    if (auto found = kernels.find(board); found != kernels.end()) {
        cycles_of_all += found->second->cycles();
        kernels.erase(found);
    }
}

uint32_t fw_poll(fw *board) {
    KernelBoard &kernel = kernel_of(board);
    if (kernel.run(kernel.runs() ? SLICE_CYCLES : IDLE_CYCLES)) return LORA_FW_DONE;
    return kernel.runs() ? LORA_FW_RUNNING : LORA_FW_IDLE;
}

// Of all kernels of this process.
extern "C" uint64_t simulated_cycles(void) {
    std::lock_guard<std::mutex> held(lock);
    uint64_t sum = cycles_of_all;
    for (const auto &[board, kernel] : kernels) sum += kernel->cycles();
    return sum;
}
