/* Kernel calls as jobs: begun one after another, their items taken by all threads, then closed. */
#include <stdlib.h>

#include "lora/native.h"
#include "lora/pool.h"
#include "prefetch.h"
#include "prefetch_own.h"
#include "units/job.h"

#define MAX_CALLS 64
#define ALONE_NS 4000 /* less work than this is done sooner than shared */

typedef int (*begin_job)(struct lora_job *job);

static int begin_nothing(struct lora_job *job) {
    (void)job;
    return LORA_ERR_OPCODE;
}

static begin_job begin_attention(const struct lora_unit_call *call) {
    return call->list->kv_type == LORA_KV_INT8 ? lora_attention_int8_begin : lora_attention_begin;
}

static begin_job begin_of(const struct lora_unit_call *call) {
    switch (call->command->opcode) {
    case LORA_CMD_MATRIX: return lora_matrix_begin;
    case LORA_CMD_VECTOR: return lora_vector_begin;
    case LORA_CMD_ATTENTION: return begin_attention(call);
    case LORA_CMD_ADAPTER: return lora_adapter_begin;
    case LORA_CMD_EXPERTS: return lora_experts_begin;
    case LORA_CMD_RECURRENCE: return lora_recurrence_begin;
    default: return begin_nothing;
    }
}

static void fail(struct lora_job *job, uint32_t item, int status) {
    uint64_t failed = (uint64_t)item << 16 | (uint16_t)status;
    uint64_t before = atomic_load(&job->failed);
    while (failed < before && !atomic_compare_exchange_weak(&job->failed, &before, failed)) {
    }
}

/* Its `following` is set. */
static void open_job(struct lora_job *job, struct lora_unit_call *call, begin_job begin,
                     struct lora_pool *pool, struct job_workspace *workspace) {
    job->call = call;
    job->workspace = workspace;
    job->variant = lora_variant_current();
    job->pool = pool;
    job->threads = lora_pool_threads(pool);
    job->rows = call_rows(call);
    job->items = 0;
    job->work = 0;
    job->memory = NULL;
    atomic_init(&job->failed, ~0ull);
    atomic_init(&job->nonfinite_count, 0);
    atomic_init(&job->nonfinite_row, NO_ROW);
    int status = LORA_OK;
    if (job->rows > LORA_MAX_ROWS) status = LORA_ERR_SIZE;
    else if (job->rows || call->command->opcode == LORA_CMD_RECURRENCE) status = begin(job);
    if (status != LORA_OK) fail(job, 0, status);
}

static int close_job(struct lora_job *job) {
    uint64_t failed = atomic_load(&job->failed);
    free(job->memory);
    job->call->nonfinite_count = atomic_load(&job->nonfinite_count);
    job->call->nonfinite_row = atomic_load(&job->nonfinite_row);
    return failed == ~0ull ? LORA_OK : (int)(failed & 0xffff);
}

struct batch {
    uint32_t count;
    struct job_workspace workspace;
    struct lora_job jobs[MAX_CALLS];
};

/* Items are numbered through the jobs. */
static void run_item(void *context, uint32_t item, uint32_t thread) {
    struct batch *batch = context;
    struct lora_job *job = batch->jobs;
    for (; item >= job->items; job++) item -= job->items;
    int status = job->run(job, item, thread);
    if (status != LORA_OK) fail(job, item, status);
}

static void run_jobs(struct batch *batch, struct lora_pool *pool) {
    uint32_t items = 0;
    uint64_t work = 0;
    for (uint32_t i = 0; i < batch->count; i++) {
        if (atomic_load(&batch->jobs[i].failed) != ~0ull) batch->jobs[i].items = 0;
        items += batch->jobs[i].items;
        work += batch->jobs[i].work;
    }
    lora_pool_run(work < ALONE_NS ? NULL : pool, items, run_item, batch);
}

static void native_batch(void *context, struct lora_pool *pool, struct lora_unit_call *calls,
                         int *statuses, uint32_t count) {
    (void)context;
    struct batch batch;
    for (uint32_t first = 0; first < count; first += batch.count) {
        batch.workspace.used = 0;
        batch.count = count - first < MAX_CALLS ? count - first : MAX_CALLS;
        for (uint32_t i = 0; i < batch.count; i++) {
            batch.jobs[i].following = i + 1 < batch.count ? &batch.jobs[i + 1] : NULL;
            open_job(&batch.jobs[i], &calls[first + i], begin_of(&calls[first + i]), pool,
                     &batch.workspace);
        }
        if (lora_pool_threads(pool) > 1) lora_prefetch_note(pool, batch.jobs, batch.count);
        run_jobs(&batch, pool);
        for (uint32_t i = 0; i < batch.count; i++) statuses[first + i] = close_job(&batch.jobs[i]);
    }
}

/* Where this thread has boards of its own it knows what it will read next. */
static void look_ahead(struct lora_job *job) {
    uint32_t thread;
    struct lora_pool *pool = lora_pool_running(&thread);
    const struct own_matmul *next = pool ? lora_prefetch_note_own(pool, thread, job) : NULL;
    if (!next) return;
    job->matrix.after = next->blocks;
    job->matrix.after_count = next->count;
}

/* A call on its own, on the caller's thread. */
static int run_one(struct lora_unit_call *call, begin_job begin) {
    struct lora_job job;
    struct job_workspace workspace;
    workspace.used = 0;
    job.following = NULL;
    open_job(&job, call, begin, NULL, &workspace);
    int status = LORA_OK;
    if (atomic_load(&job.failed) != ~0ull) job.items = 0;
    if (job.items && call->command->opcode == LORA_CMD_MATRIX) look_ahead(&job);
    for (uint32_t item = 0; item < job.items && status == LORA_OK; item++)
        status = job.run(&job, item, 0);
    if (status != LORA_OK) fail(&job, 0, status);
    return close_job(&job);
}

static int native_matrix(void *context, struct lora_unit_call *call) {
    (void)context;
    return run_one(call, lora_matrix_begin);
}

static int native_vector(void *context, struct lora_unit_call *call) {
    (void)context;
    return run_one(call, lora_vector_begin);
}

static int native_attention(void *context, struct lora_unit_call *call) {
    (void)context;
    return run_one(call, begin_attention(call));
}

static int native_adapter(void *context, struct lora_unit_call *call) {
    (void)context;
    return run_one(call, lora_adapter_begin);
}

static int native_experts(void *context, struct lora_unit_call *call) {
    (void)context;
    return run_one(call, lora_experts_begin);
}

static int native_recurrence(void *context, struct lora_unit_call *call) {
    (void)context;
    return run_one(call, lora_recurrence_begin);
}

const struct lora_kernels lora_kernels_native = {
    .size = sizeof(struct lora_kernels),
    .name = "native",
    .matrix = native_matrix,
    .vector = native_vector,
    .attention = native_attention,
    .adapter = native_adapter,
    .experts = native_experts,
    .recurrence = native_recurrence,
    .batch = native_batch,
};
