/* Places tensors by several threads. Each begins with its own part of the jobs and then helps the
 * others: threads in one tensor would wait for each other's page faults in the file. The failure
 * reported is that of the first job that fails, whichever thread ran it: jobs before it are run,
 * jobs after it are left out. */
#include <inttypes.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "pack_job.h"

#define MAX_MERGE 1024u
#define MAX_OFFSET (1ull << 48)

struct share { /* jobs that one thread begins with */
    _Alignas(LORA_LINE_BYTES) atomic_ullong next;
    uint64_t end;
};

struct jobs {
    struct lora_cluster *cluster;
    const struct lora_placing *placing;
    uint64_t *first_job;     /* of each task, and behind the last one */
    uint64_t buffer_bytes;   /* a thread */
    struct lora_range *runs; /* LORA_MAX_BANKS a job */
    struct share *shares;    /* one a thread */
    atomic_uint threads;
    atomic_ullong failed; /* the first job that failed, ~0 none; changed under the lock */
    pthread_mutex_t lock; /* of what follows */
    int status;
    struct lora_failure failure;
};

static int check_task(struct lora_cluster *cluster, const struct lora_placing *placing,
                      const struct lora_pack_task *task, struct lora_failure *failure) {
    int table = task->kind == LORA_PACK_TABLE;
    int status = lora_check_ready(cluster, task->board, failure);
    if (!status) status = pack_check(placing->parts, placing->part_count, task, failure);
    if (status) return status;
    int wrong = task->bank_count - 1u >= LORA_MAX_BANKS || task->offset >= MAX_OFFSET ||
                task->offset % LORA_LINE_BYTES;
    if (table)
        wrong |= task->bank_count != 1 || task->row_bytes < 2 * task->n ||
                 task->row_bytes % LORA_LINE_BYTES || task->row_bytes >= MAX_OFFSET;
    else
        wrong |= task->merge - 1u >= MAX_MERGE ||
                 task->k > (uint64_t)LORA_PACK_K_BLOCKS * LORA_BLOCK_K;
    if (!wrong) return LORA_OK;
    return lora_fail(failure, LORA_ERR_ARGUMENT,
                     "placing %.100s: %u banks at %" PRIu64 ", merge %u, rows of %" PRIu64
                     " B: out of range",
                     placing->parts[task->part_first].name, task->bank_count, task->offset,
                     task->merge, task->row_bytes);
}

/* Counts the jobs of every task. */
static int count_jobs(struct jobs *jobs, struct lora_failure *failure) {
    const struct lora_placing *placing = jobs->placing;
    for (uint32_t t = 0; t < placing->task_count; t++) {
        const struct lora_pack_task *task = placing->tasks + t;
        int status = check_task(jobs->cluster, placing, task, failure);
        if (status) return status;
        uint64_t units = pack_job_units(task, jobs->buffer_bytes);
        if (!units)
            return lora_fail(failure, LORA_ERR_ARGUMENT,
                             "placing %.100s: scratch memory of %" PRIu64
                             " B a thread holds not one tile or row",
                             placing->parts[task->part_first].name, jobs->buffer_bytes);
        jobs->first_job[t + 1] = jobs->first_job[t] + (task->count + units - 1) / units;
    }
    return LORA_OK;
}

static void fail_job(struct jobs *jobs, uint64_t job, int status,
                     const struct lora_failure *failure) {
    pthread_mutex_lock(&jobs->lock);
    if (job < atomic_load(&jobs->failed)) {
        atomic_store(&jobs->failed, job);
        jobs->status = status;
        jobs->failure = *failure;
    }
    pthread_mutex_unlock(&jobs->lock);
}

static int run_job(struct jobs *jobs, uint64_t job, const struct pack_thread *thread,
                   struct lora_failure *failure) {
    const struct lora_placing *placing = jobs->placing;
    uint32_t t = 0, end = placing->task_count;
    while (end - t > 1) { /* the last task whose first job is not behind this one */
        uint32_t middle = t + (end - t) / 2;
        if (jobs->first_job[middle] <= job) t = middle;
        else end = middle;
    }
    const struct lora_pack_task *task = placing->tasks + t;
    uint64_t units = pack_job_units(task, jobs->buffer_bytes);
    uint64_t done = (job - jobs->first_job[t]) * units, left = task->count - done;
    return pack_job(jobs->cluster, placing, task, task->first + done, left < units ? left : units,
                    thread, jobs->runs + job * LORA_MAX_BANKS, failure);
}

/* The thread's next job, of its own share or of what others have left. */
static bool take_job(struct jobs *jobs, uint32_t index, uint64_t *job) {
    uint32_t threads = jobs->placing->threads;
    for (uint32_t i = 0; i < threads; i++) {
        struct share *share = &jobs->shares[(index + i) % threads];
        while ((*job = atomic_fetch_add(&share->next, 1)) < share->end)
            if (*job < atomic_load(&jobs->failed)) return true;
    }
    return false;
}

static void *work(void *context) {
    struct jobs *jobs = context;
    struct lora_failure failure;
    uint32_t index = atomic_fetch_add(&jobs->threads, 1);
    uint64_t job;
    struct pack_thread thread = {
        .buffer = (uint8_t *)jobs->placing->scratch + index * jobs->buffer_bytes,
        .buffer_bytes = jobs->buffer_bytes,
        .blocks = malloc((jobs->buffer_bytes / PACK_MIN_BLOCK + 1) * sizeof(void *)),
    };
    lora_failure_begin(&failure, &failure);
    while (take_job(jobs, index, &job)) {
        int status = thread.blocks ? run_job(jobs, job, &thread, &failure)
                                   : lora_fail(&failure, LORA_ERR_MEMORY, "placing: no memory");
        if (status) fail_job(jobs, job, status, &failure);
    }
    free(thread.blocks);
    return NULL;
}

static void assign_jobs(struct jobs *jobs) {
    uint64_t count = jobs->first_job[jobs->placing->task_count];
    uint32_t threads = jobs->placing->threads;
    for (uint32_t i = 0; i < threads; i++) {
        atomic_init(&jobs->shares[i].next, count * i / threads);
        jobs->shares[i].end = count * (i + 1) / threads;
    }
}

static void run_threads(struct jobs *jobs) {
    pthread_t thread[LORA_PACK_THREADS];
    uint32_t started = 0;
    uint64_t count = jobs->first_job[jobs->placing->task_count];
    while (started + 1 < jobs->placing->threads && started + 1 < count &&
           !pthread_create(&thread[started], NULL, work, jobs))
        started++; /* with fewer than asked for it takes longer, no more */
    work(jobs);
    for (uint32_t i = 0; i < started; i++) pthread_join(thread[i], NULL);
}

static int run_jobs(struct jobs *jobs, struct lora_placing *placing, struct lora_failure *failure) {
    int status = count_jobs(jobs, failure);
    if (status) return status;
    uint64_t room = jobs->first_job[placing->task_count] * LORA_MAX_BANKS;
    jobs->runs = calloc(room + 1, sizeof *jobs->runs);
    if (!jobs->runs || room > UINT32_MAX)
        return lora_fail(failure, LORA_ERR_MEMORY, "placing: no memory for %" PRIu64 " runs", room);
    assign_jobs(jobs);
    run_threads(jobs);
    if (jobs->status) {
        *failure = jobs->failure;
        return jobs->status;
    }
    uint32_t ranges = pack_join(jobs->runs, (uint32_t)room);
    if (ranges > placing->range_capacity)
        return lora_fail(failure, LORA_ERR_ARGUMENT, "placing: %u ranges written, room for %u",
                         ranges, placing->range_capacity);
    memcpy(placing->ranges, jobs->runs, ranges * sizeof *jobs->runs);
    placing->range_count = ranges;
    return LORA_OK;
}

int lora_cluster_place(struct lora_cluster *cluster, struct lora_placing *placing,
                       struct lora_failure *failure) {
    struct lora_failure spare;
    failure = lora_failure_begin(failure, &spare);
    int status = lora_check_ready(cluster, 0, failure);
    if (status) return status;
    if (!placing || placing->size != sizeof *placing ||
        placing->threads - 1u >= LORA_PACK_THREADS || !placing->parts || !placing->tasks ||
        !placing->ranges || !placing->scratch || (uintptr_t)placing->scratch % LORA_LINE_BYTES)
        return lora_fail(failure, LORA_ERR_ARGUMENT, "placing: a field is missing or out of range");
    struct jobs jobs = {.cluster = cluster, .placing = placing, .lock = PTHREAD_MUTEX_INITIALIZER};
    atomic_init(&jobs.failed, ~0ull);
    jobs.buffer_bytes = placing->scratch_bytes / placing->threads / LORA_LINE_BYTES *
                        LORA_LINE_BYTES;
    placing->range_count = 0;
    jobs.first_job = calloc((size_t)placing->task_count + 1, sizeof *jobs.first_job);
    jobs.shares = aligned_alloc(LORA_LINE_BYTES, placing->threads * sizeof *jobs.shares);
    status = jobs.first_job && jobs.shares
                 ? run_jobs(&jobs, placing, failure)
                 : lora_fail(failure, LORA_ERR_MEMORY, "placing: no memory");
    free(jobs.first_job);
    free(jobs.shares);
    free(jobs.runs);
    return status;
}
