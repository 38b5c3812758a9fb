/* How many products a second this machine's cores make at most: sums in registers, nothing read. */
#define _GNU_SOURCE
#include <stddef.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "bench_threads.h"
#include "lora/bench.h"

#define SUMS 10 /* in flight: more than latency x units of any core */
#define TURNS 4096
/* The compiler neither knows the value nor leaves out what made it. */
#define OPAQUE(value) __asm__ volatile("" : "+x"(value))

struct part { /* of one thread */
    uint64_t (*turns)(void);
    uint32_t passes;
    uint64_t products;
};

/* Each function returns the products that it has made. */

static uint64_t fp32_plain(void) {
    float sum[SUMS] = {0}, factor = 0.5f;
    for (int turn = 0; turn < TURNS; turn++)
        for (int i = 0; i < SUMS; i++) {
            sum[i] = sum[i] * factor + 1.0f;
            __asm__ volatile("" : "+m"(sum[i]));
        }
    return (uint64_t)TURNS * SUMS;
}

static uint64_t int8_plain(void) {
    int32_t sum[SUMS] = {0};
    for (int turn = 0; turn < TURNS; turn++)
        for (int i = 0; i < SUMS; i++) {
            sum[i] += (int8_t)turn * (int8_t)i;
            __asm__ volatile("" : "+m"(sum[i]));
        }
    return (uint64_t)TURNS * SUMS;
}

#if defined(__x86_64__)
#define REPEAT(type, zero, step, lanes)                                                            \
    type sum[SUMS], factor = zero;                                                                 \
    for (int i = 0; i < SUMS; i++) sum[i] = zero;                                                  \
    for (int turn = 0; turn < TURNS; turn++) {                                                     \
        OPAQUE(factor);                                                                            \
        for (int i = 0; i < SUMS; i++) sum[i] = step;                                              \
    }                                                                                              \
    for (int i = 0; i < SUMS; i++) OPAQUE(sum[i]);                                                 \
    return (uint64_t)TURNS * SUMS * (lanes)

__attribute__((target("avx2,fma"))) static uint64_t fp32_avx2(void) {
    REPEAT(__m256, _mm256_setzero_ps(), _mm256_fmadd_ps(factor, factor, sum[i]), 8);
}

__attribute__((target("avx512f"))) static uint64_t fp32_avx512(void) {
    REPEAT(__m512, _mm512_setzero_ps(), _mm512_fmadd_ps(factor, factor, sum[i]), 16);
}

__attribute__((target("avx2"))) static uint64_t int8_avx2(void) {
    const __m256i ones = _mm256_set1_epi16(1);
    REPEAT(__m256i, _mm256_setzero_si256(),
           _mm256_add_epi32(sum[i], _mm256_madd_epi16(_mm256_maddubs_epi16(factor, sum[i]), ones)),
           32);
}

__attribute__((target("avxvnni"))) static uint64_t int8_avxvnni(void) {
    REPEAT(__m256i, _mm256_setzero_si256(), _mm256_dpbusd_avx_epi32(sum[i], factor, factor), 32);
}

__attribute__((target("avx512f,avx512vnni"))) static uint64_t int8_avx512(void) {
    REPEAT(__m512i, _mm512_setzero_si512(), _mm512_dpbusd_epi32(sum[i], factor, factor), 64);
}

static int has_avxvnni(void) {
    unsigned a, b, c, d; /* CPUID leaf 7, subleaf 1: EAX bit 4 */
    __asm__ volatile("cpuid" : "=a"(a), "=b"(b), "=c"(c), "=d"(d) : "a"(7), "c"(1));
    return __builtin_cpu_supports("avx2") && (a >> 4 & 1);
}
#endif

static const struct loop {
    const char *name;
    enum lora_bench_arithmetic arithmetic;
    uint64_t (*turns)(void);
} loops[] = {
    {"plain", LORA_BENCH_FP32, fp32_plain},        {"plain", LORA_BENCH_INT8, int8_plain},
#if defined(__x86_64__)
    {"avx2", LORA_BENCH_FP32, fp32_avx2},          {"avx512", LORA_BENCH_FP32, fp32_avx512},
    {"avx2", LORA_BENCH_INT8, int8_avx2},          {"avx-vnni", LORA_BENCH_INT8, int8_avxvnni},
    {"avx512-vnni", LORA_BENCH_INT8, int8_avx512},
#endif
};
#define LOOPS (sizeof loops / sizeof loops[0])

static int supported(const struct loop *loop) {
#if defined(__x86_64__)
    if (loop->turns == fp32_avx2)
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    if (loop->turns == fp32_avx512) return __builtin_cpu_supports("avx512f") != 0;
    if (loop->turns == int8_avx2) return __builtin_cpu_supports("avx2") != 0;
    if (loop->turns == int8_avxvnni) return has_avxvnni();
    if (loop->turns == int8_avx512) return __builtin_cpu_supports("avx512vnni") != 0;
#endif
    return loop->turns == fp32_plain || loop->turns == int8_plain;
}

static void work(void *context) {
    struct part *part = context;
    for (uint32_t pass = 0; pass < part->passes; pass++) part->products += part->turns();
}

const char *lora_bench_loop(uint32_t index, enum lora_bench_arithmetic *arithmetic) {
    if (index >= LOOPS) return NULL;
    *arithmetic = loops[index].arithmetic;
    return loops[index].name;
}

int lora_bench_loop_supported(uint32_t index) { return index < LOOPS && supported(loops + index); }

double lora_bench_products(uint32_t threads, uint32_t passes, uint32_t index) {
    struct part parts[LORA_BENCH_THREADS];
    if (threads - 1u >= LORA_BENCH_THREADS || !passes || !lora_bench_loop_supported(index))
        return 0;
    for (uint32_t i = 0; i < threads; i++) parts[i] = (struct part){loops[index].turns, passes, 0};
    uint64_t took = lora_bench_run(work, parts, sizeof parts[0], threads);
    double products = 0;
    for (uint32_t i = 0; i < threads; i++) products += (double)parts[i].products;
    return took ? products / ((double)took * 1e-9) : 0;
}
