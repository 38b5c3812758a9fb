/* How fast this machine reads memory, and copies it into fresh pages. */
#define _GNU_SOURCE
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "bench_threads.h"
#include "lora/bench.h"

#define PAGE 4096ull
#define HUGE (2ull << 20)
#define STRIDE 512ull /* bytes an iteration of every reader */
#define PREFETCH 2048 /* bytes asked for early */
#define STREAMS 8

typedef uint64_t read_all(const uint8_t *at, uint64_t bytes);

static uint64_t read_plain(const uint8_t *at, uint64_t bytes) {
    uint64_t sum[8] = {0};
    for (uint64_t i = 0; i < bytes; i += sizeof sum)
        for (int lane = 0; lane < 8; lane++) {
            uint64_t word;
            memcpy(&word, at + i + 8 * (uint64_t)lane, sizeof word);
            sum[lane] += word;
        }
    return sum[0] + sum[1] + sum[2] + sum[3] + sum[4] + sum[5] + sum[6] + sum[7];
}

#if defined(__x86_64__)
#define AVX2 __attribute__((target("avx2")))
#define AVX512 __attribute__((target("avx512f")))

AVX2 static inline uint64_t avx2_transposes(const uint8_t *at, uint64_t bytes, int early) {
    __m256i sum[4] = {_mm256_setzero_si256(), _mm256_setzero_si256(), _mm256_setzero_si256(),
                      _mm256_setzero_si256()};
    for (uint64_t i = 0; i < bytes; i += STRIDE) {
        for (uint64_t line = 0; early && line < STRIDE; line += 64)
            __builtin_prefetch(at + i + line + PREFETCH);
        for (uint64_t offset = 0; offset < STRIDE; offset += 32) {
            __m256i *to = sum + offset / 32 % 4;
            *to = _mm256_add_epi64(
                *to, _mm256_loadu_si256((const __m256i *)(const void *)(at + i + offset)));
        }
    }
    uint64_t words[4];
    __m256i all = _mm256_add_epi64(_mm256_add_epi64(sum[0], sum[1]),
                                   _mm256_add_epi64(sum[2], sum[3]));
    _mm256_storeu_si256((__m256i *)(void *)words, all);
    return words[0] + words[1] + words[2] + words[3];
}

AVX2 static uint64_t read_avx2(const uint8_t *at, uint64_t bytes) {
    return avx2_transposes(at, bytes, 0);
}

AVX2 static uint64_t read_avx2_early(const uint8_t *at, uint64_t bytes) {
    return avx2_transposes(at, bytes, 1);
}

AVX2 static inline __m256i line_sum(const uint8_t *at) {
    const __m256i *line = (const __m256i *)(const void *)at;
    return _mm256_add_epi64(_mm256_loadu_si256(line), _mm256_loadu_si256(line + 1));
}

/* Eight streams at once, into the second cache first: more requests are under way than the first
 * cache keeps. */
AVX2 static uint64_t read_streams(const uint8_t *at, uint64_t bytes) {
    __m256i sum[STREAMS];
    uint64_t apart = bytes / STREAMS / STRIDE * STRIDE, words[4], rest = apart * STREAMS;
    for (int stream = 0; stream < STREAMS; stream++) sum[stream] = _mm256_setzero_si256();
    for (uint64_t i = 0; i < apart; i += 64)
        for (int stream = 0; stream < STREAMS; stream++) {
            const uint8_t *line = at + (uint64_t)stream * apart + i;
            __builtin_prefetch(line + 2 * PREFETCH, 0, 2);
            sum[stream] = _mm256_add_epi64(sum[stream], line_sum(line));
        }
    for (int stream = 1; stream < STREAMS; stream++) sum[0] = _mm256_add_epi64(sum[0], sum[stream]);
    _mm256_storeu_si256((__m256i *)(void *)words, sum[0]);
    return words[0] + words[1] + words[2] + words[3] + read_avx2(at + rest, bytes - rest);
}

AVX512 static uint64_t read_avx512(const uint8_t *at, uint64_t bytes) {
    __m512i sum[4] = {_mm512_setzero_si512(), _mm512_setzero_si512(), _mm512_setzero_si512(),
                      _mm512_setzero_si512()};
    for (uint64_t i = 0; i < bytes; i += STRIDE)
        for (uint64_t offset = 0; offset < STRIDE; offset += 64) {
            __m512i *to = sum + offset / 64 % 4;
            *to = _mm512_add_epi64(*to, _mm512_loadu_si512(at + i + offset));
        }
    __m512i all = _mm512_add_epi64(_mm512_add_epi64(sum[0], sum[1]),
                                   _mm512_add_epi64(sum[2], sum[3]));
    return (uint64_t)_mm512_reduce_add_epi64(all);
}
#endif

static const struct reader {
    const char *name;
    read_all *read;
} readers[] = {
    {"plain", read_plain},
#if defined(__x86_64__)
    {"avx2", read_avx2},
    {"avx2 with prefetch", read_avx2_early},
    {"avx2, 8 streams", read_streams},
    {"avx512", read_avx512},
#endif
};
#define READERS (sizeof readers / sizeof readers[0])

const char *lora_bench_reader(uint32_t index) {
    return index < READERS ? readers[index].name : NULL;
}

int lora_bench_reader_supported(uint32_t index) {
    if (index >= READERS) return 0;
#if defined(__x86_64__)
    if (readers[index].read == read_avx512) return __builtin_cpu_supports("avx512f") != 0;
    if (readers[index].read != read_plain) return __builtin_cpu_supports("avx2") != 0;
#endif
    return 1;
}

static void *map(uint64_t bytes) {
    if (!bytes || bytes > 1ull << 46) return NULL;
    uint64_t whole = (bytes + PAGE - 1) / PAGE * PAGE;
    uint8_t *mapping = mmap(NULL, whole + HUGE, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapping == MAP_FAILED) return NULL;
    uint64_t before = (HUGE - (uintptr_t)mapping % HUGE) % HUGE;
    if (before) munmap(mapping, before);
    munmap(mapping + before + whole, HUGE - before);
    (void)madvise(mapping + before, whole, MADV_HUGEPAGE); /* advice: failing costs speed only */
    return mapping + before;
}

void *lora_bench_buffer(uint64_t bytes) {
    uint8_t *buffer = map(bytes);
    for (uint64_t i = 0; buffer && i < bytes; i += PAGE) buffer[i] = 1;
    return buffer;
}

void lora_bench_free(void *buffer, uint64_t bytes) {
    if (buffer) munmap(buffer, bytes);
}

struct part { /* of one thread */
    const uint8_t *from;
    uint8_t *to; /* NULL: read */
    uint64_t bytes;
    uint32_t passes;
    read_all *read;
    volatile uint64_t sum; /* so that reading cannot be left out */
};

static void work(void *context) {
    struct part *part = context;
    for (uint32_t pass = 0; pass < part->passes; pass++) {
        if (part->to) memcpy(part->to, part->from, part->bytes);
        else part->sum += part->read(part->from, part->bytes);
    }
}

static uint64_t share(uint64_t bytes, uint32_t threads, uint32_t index) {
    uint64_t lines = bytes / STRIDE;
    return lines * index / threads * STRIDE;
}

uint64_t lora_bench_read(const void *buffer, uint64_t bytes, uint32_t threads, uint32_t passes,
                         uint32_t reader) {
    struct part parts[LORA_BENCH_THREADS];
    if (!buffer || threads - 1u >= LORA_BENCH_THREADS || !lora_bench_reader_supported(reader))
        return 0;
    for (uint32_t i = 0; i < threads; i++) {
        uint64_t first = share(bytes, threads, i);
        parts[i] = (struct part){.from = (const uint8_t *)buffer + first,
                                 .bytes = share(bytes, threads, i + 1) - first,
                                 .passes = passes,
                                 .read = readers[reader].read};
    }
    return lora_bench_run(work, parts, sizeof parts[0], threads);
}

uint64_t lora_bench_copy(const void *from, uint64_t bytes, uint32_t threads) {
    struct part parts[LORA_BENCH_THREADS];
    if (!from || threads - 1u >= LORA_BENCH_THREADS) return 0;
    uint8_t *fresh = map(bytes);
    if (!fresh) return 0;
    for (uint32_t i = 0; i < threads; i++) {
        uint64_t first = share(bytes, threads, i);
        uint64_t last = i + 1 < threads ? share(bytes, threads, i + 1) : bytes;
        parts[i] = (struct part){.from = (const uint8_t *)from + first,
                                 .to = fresh + first,
                                 .bytes = last - first,
                                 .passes = 1};
    }
    uint64_t took = lora_bench_run(work, parts, sizeof parts[0], threads);
    munmap(fresh, bytes);
    return took;
}
