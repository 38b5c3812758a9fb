/* Memory of a board behind a daemon. */
#include "transport_remote.h"

#include <string.h>

#define WINDOW 8 /* reads that are on their way at once */

/* What the last run's answer brought along, once. */
static int take_arrived(struct remote_handle *remote, uint32_t bank, uint64_t offset, void *data,
                        uint64_t bytes) {
    for (uint32_t i = 0; i < remote->asked.count; i++) {
        const struct wire_range *range = &remote->asked.range[i];
        if (!(remote->arrived >> i & 1) || range->bank != bank || range->offset != offset ||
            range->bytes != bytes)
            continue;
        memcpy(data, remote->results + remote->result_at[i], bytes);
        remote->arrived &= ~(1u << i);
        return 1;
    }
    return 0;
}

/* Records come with every run; other reads are expected again after the next one. */
static void note(struct remote_handle *remote, uint32_t bank, uint64_t offset, uint64_t bytes) {
    struct remote_ranges *noted = &remote->noted;
    if (remote->run != REMOTE_IDLE || noted->count == WIRE_RANGES - 1 ||
        (offset == LORA_COMPLETION_OFFSET && bytes == LORA_RECORDS_BYTES) ||
        bytes > WIRE_RANGES_BYTES - LORA_RECORDS_BYTES - noted->bytes)
        return;
    noted->range[noted->count++] = (struct wire_range){
        .bank = bank, .offset = offset, .bytes = bytes};
    noted->bytes += bytes;
}

static uint64_t piece_of(uint64_t bytes, uint64_t done) {
    return bytes - done < WIRE_DATA ? bytes - done : WIRE_DATA;
}

static int ask(struct remote_handle *remote, uint32_t bank, uint64_t offset, uint64_t bytes,
               struct lora_failure *failure) {
    const struct wire_range range = {.bank = bank, .offset = offset, .bytes = bytes};
    const struct wire_part part = {&range, sizeof range};
    return remote_send(remote, WIRE_READ, &part, 1, failure);
}

static int take(struct remote_handle *remote, uint32_t sequence, uint8_t *data, uint64_t bytes,
                struct lora_failure *failure) {
    struct wire_part found = {0};
    int status = remote_await(remote, sequence, REMOTE_ANSWER_US, &found, failure);
    if (status) return status;
    if (found.bytes != bytes) {
        wire_fail(&remote->channel, "it sent %zu B of memory, %llu asked for", found.bytes,
                  (unsigned long long)bytes);
        return remote_gone(remote, failure);
    }
    memcpy(data, found.data, bytes);
    return LORA_OK;
}

/* Several pieces are asked for before the first has come. The answers to all are taken, also behind
 * one that failed. */
static int read_pieces(struct remote_handle *remote, uint32_t bank, uint64_t offset, uint8_t *data,
                       uint64_t bytes, struct lora_failure *failure) {
    struct lora_failure later;
    uint64_t sent = 0, done = 0;
    uint32_t flying = 0, first = remote->sequence + 1;
    int status = LORA_OK;
    while (done < sent || (!status && sent < bytes)) {
        while (!status && flying < WINDOW && sent < bytes) {
            status = ask(remote, bank, offset + sent, piece_of(bytes, sent), failure);
            if (status) return status;
            sent += piece_of(bytes, sent);
            flying++;
        }
        int found = take(remote, first++, data + done, piece_of(bytes, done),
                         status ? lora_failure_begin(NULL, &later) : failure);
        if (!status) status = found;
        if (remote->channel.socket < 0) return status;
        done += piece_of(bytes, done);
        flying--;
    }
    return status;
}

int remote_memory_read(void *handle, uint32_t bank, uint64_t offset, void *data, uint64_t bytes,
                       struct lora_failure *failure) {
    struct remote_handle *remote = handle;
    pthread_mutex_lock(&remote->lock);
    lora_count(&remote->counts.memory_reads);
    int status = LORA_OK;
    if (!take_arrived(remote, bank, offset, data, bytes))
        status = read_pieces(remote, bank, offset, data, bytes, failure);
    if (!status) note(remote, bank, offset, bytes);
    pthread_mutex_unlock(&remote->lock);
    return status;
}

/* Results in hand that are written over are old. */
static void forget_overlap(struct remote_handle *remote, uint32_t bank, uint64_t offset,
                           uint64_t bytes) {
    for (uint32_t i = 0; i < remote->asked.count; i++) {
        const struct wire_range *range = &remote->asked.range[i];
        if (range->bank == bank && range->offset < offset + bytes &&
            offset < range->offset + range->bytes)
            remote->arrived &= ~(1u << i);
    }
}

/* A small write waits for the next call, with which it travels; while the board runs it leaves at
 * once, since the run may wait for it. */
static int write_piece(struct remote_handle *remote, const struct wire_range *range,
                       const void *data, struct lora_failure *failure) {
    const struct wire_part parts[2] = {{range, sizeof *range}, {data, range->bytes}};
    pthread_mutex_lock(&remote->lock);
    forget_overlap(remote, range->bank, range->offset, range->bytes);
    int status = remote_send(remote, WIRE_WRITE, parts, 2, failure);
    if (!status && remote->run == REMOTE_RUNNING && wire_flush(&remote->channel))
        status = remote_gone(remote, failure);
    pthread_mutex_unlock(&remote->lock);
    return status;
}

int remote_memory_write(void *handle, uint32_t bank, uint64_t offset, const void *data,
                        uint64_t bytes, struct lora_failure *failure) {
    struct remote_handle *remote = handle;
    lora_count(&remote->counts.memory_writes);
    for (uint64_t done = 0; done < bytes; done += piece_of(bytes, done)) {
        const struct wire_range range = {
            .bank = bank, .offset = offset + done, .bytes = piece_of(bytes, done)};
        int status = write_piece(remote, &range, (const uint8_t *)data + done, failure);
        if (status) return status;
    }
    return LORA_OK;
}
