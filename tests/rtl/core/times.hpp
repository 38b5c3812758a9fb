// The cycles at which a board's runs and their commands begin and end, as lines of the file that
// LORA_TEST_TIMES names: board, cycle, what.
#ifndef LORA_TEST_TIMES_HPP
#define LORA_TEST_TIMES_HPP

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <mutex>

class Times {
  public:
    static Times &all() {
        static Times one;
        return one;
    }

    void run(uint32_t board, uint64_t cycle, bool end) {
        if (file_) note(board, cycle, end ? "done" : "doorbell", 0);
    }
    void command(uint32_t board, uint64_t cycle, uint32_t index, bool end) {
        if (file_) note(board, cycle, end ? "end" : "start", index);
    }
    bool wanted() const { return file_ != nullptr; }

  private:
    Times() {
        const char *name = getenv("LORA_TEST_TIMES");
        if (name) file_ = fopen(name, "w");
    }

    void note(uint32_t board, uint64_t cycle, const char *what, uint32_t index) {
        std::lock_guard<std::mutex> held(lock_);
        fprintf(file_, "%u %llu %s %u\n", board, static_cast<unsigned long long>(cycle), what,
                index);
        fflush(file_);
    }

    std::mutex lock_; // boards of several threads
    FILE *file_ = nullptr;
};

#endif
