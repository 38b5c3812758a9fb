#include "job.h"

#include <stdlib.h>

void *lora_job_memory(struct lora_job *job, uint64_t bytes) {
    struct job_workspace *workspace = job->workspace;
    if (bytes <= sizeof(workspace->bytes) - workspace->used) {
        void *found = workspace->bytes + workspace->used;
        workspace->used += (uint32_t)((bytes + LORA_LINE_BYTES - 1) / LORA_LINE_BYTES *
                                      LORA_LINE_BYTES);
        return found;
    }
    job->memory = malloc(bytes);
    return job->memory;
}
