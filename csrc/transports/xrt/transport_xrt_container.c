/* What the transport needs from an xclbin (axlf), read from its own sections: no C call of XRT
 * tells the memory topology. The file may be anything. */
#define _POSIX_C_SOURCE 200809L
#include "transport_xrt.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define TOP_BYTES 456 /* of struct axlf before its section headers */
#define LENGTH_AT 304
#define UUID_AT 416
#define COUNT_AT 448
#define SECTION_BYTES 40
#define MAX_SECTIONS 256
enum {
    MEM_TOPOLOGY = 6,
    CONNECTIVITY = 7,
    IP_LAYOUT = 8,
    GROUP_TOPOLOGY = 26,
    GROUP_CONNECTIVITY = 27
};
#define MEMORY_BYTES 40
#define IP_BYTES 80
#define CONNECTION_BYTES 12
#define IP_KERNEL 1
#define PAGE 4096u

struct view {
    const char *path;
    const uint8_t *at;
    uint64_t bytes;
};

struct table { /* records of one section */
    const uint8_t *at;
    uint32_t count, bytes; /* of one */
};

static uint32_t word(const uint8_t *at) {
    uint32_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

static uint64_t wide(const uint8_t *at) {
    uint64_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

static const struct xrt_facts boards[] = {
    {LORA_BOARD_U280, "u280", 32, 2, 256ull << 20, 16ull << 30},
    {LORA_BOARD_U55C, "u55c", 32, 0, 512ull << 20, 0},
};

const struct xrt_facts *xrt_facts_of(uint32_t kind, struct lora_failure *failure) {
    for (size_t b = 0; b < sizeof boards / sizeof boards[0]; b++)
        if (boards[b].kind == kind) return &boards[b];
    lora_fail(failure, LORA_ERR_OVERLAY,
              "overlay's board kind 0x%x found, one of XRT's expected: 0x%x (u280) or 0x%x (u55c)",
              kind, LORA_BOARD_U280, LORA_BOARD_U55C);
    return NULL;
}

uint32_t xrt_bank_count(const struct xrt_facts *facts) {
    return facts->hbm_banks + facts->ddr_banks;
}

void xrt_bank_name(const struct xrt_facts *facts, uint32_t bank, char name[16]) {
    if (bank < facts->hbm_banks) snprintf(name, 16, "HBM[%u]", bank % 100);
    else snprintf(name, 16, "DDR[%u]", (bank - facts->hbm_banks) % 100);
}

/* The runtime keeps its own buffers in the first page of a bank. */
uint64_t xrt_bank_usable(const struct xrt_facts *facts, uint32_t bank) {
    return (bank < facts->hbm_banks ? facts->hbm_bytes : facts->ddr_bytes) - PAGE;
}

static int bad(const struct view *file, struct lora_failure *failure, const char *what) {
    return lora_fail(failure, LORA_ERR_OVERLAY,
                     "%.140s: %s; build it again or take the overlay's own container", file->path,
                     what);
}

static int check_top(const struct view *file, struct lora_failure *failure) {
    if (file->bytes < TOP_BYTES || memcmp(file->at, "xclbin2", 8))
        return bad(file, failure, "no xclbin: its beginning is not xclbin2's");
    if (wide(file->at + LENGTH_AT) != file->bytes)
        return bad(file, failure, "its length is not the one that its header names");
    uint32_t count = word(file->at + COUNT_AT);
    if (count > MAX_SECTIONS || TOP_BYTES + (uint64_t)count * SECTION_BYTES > file->bytes)
        return bad(file, failure, "more sections are named than it can hold");
    for (uint32_t i = 0; i < count; i++) { /* the runtime trusts all of them */
        const uint8_t *header = file->at + TOP_BYTES + (size_t)i * SECTION_BYTES;
        uint64_t offset = wide(header + 24), size = wide(header + 32);
        if (offset > file->bytes || size > file->bytes - offset)
            return bad(file, failure, "a section lies beyond its end");
    }
    return LORA_OK;
}

/* 0 and `table` where the section is there and whole; -1 where it is damaged. `head`: bytes before
 * the first record. A section that is not there has no records. */
static int section(const struct view *file, uint32_t kind, uint32_t head, uint32_t bytes,
                   struct table *table) {
    *table = (struct table){NULL, 0, bytes};
    for (uint32_t i = 0; i < word(file->at + COUNT_AT); i++) {
        const uint8_t *header = file->at + TOP_BYTES + (size_t)i * SECTION_BYTES;
        uint64_t offset = wide(header + 24), size = wide(header + 32);
        if (word(header) != kind) continue;
        if (offset > file->bytes || size > file->bytes - offset || size < head) return -1;
        uint32_t count = word(file->at + offset);
        if (count > 0xffff || head + (uint64_t)count * bytes > size) return -1;
        *table = (struct table){file->at + offset + head, count, bytes};
        return 0;
    }
    return 0;
}

static void read_banks(const struct table *memories, const struct xrt_facts *facts,
                       struct xrt_container *container) {
    for (uint32_t bank = 0; bank < xrt_bank_count(facts); bank++) {
        char name[16];
        xrt_bank_name(facts, bank, name);
        container->memory[bank] = -1;
        for (uint32_t m = 0; m < memories->count; m++) {
            const uint8_t *memory = memories->at + (size_t)m * MEMORY_BYTES;
            if (!memory[1] || strncmp((const char *)memory + 24, name, 16)) continue;
            container->memory[bank] = (int32_t)m;
            container->bytes[bank] = wide(memory + 8) << 10;
            break;
        }
    }
}

static int check_banks(const struct view *file, const struct xrt_facts *facts,
                       const struct xrt_container *container, struct lora_failure *failure) {
    for (uint32_t bank = 0; bank < xrt_bank_count(facts); bank++) {
        char name[16];
        xrt_bank_name(facts, bank, name);
        if (container->memory[bank] >= 0 && container->bytes[bank] >= xrt_bank_usable(facts, bank))
            continue;
        failure->bank = (int32_t)bank;
        return lora_fail(failure, LORA_ERR_OVERLAY,
                         "%.120s: bank %s has %.0f MiB, %.0f MiB expected (%s); lora inspect shows "
                         "all",
                         file->path, name,
                         container->memory[bank] < 0 ? 0 : (double)container->bytes[bank] / 1048576,
                         (double)(xrt_bank_usable(facts, bank) + PAGE) / 1048576, facts->name);
    }
    return LORA_OK;
}

static int32_t read_units(const struct table *ips, struct xrt_container *container) {
    static const char *const kernels[LORA_BLOCKS] = {
        "lora_ctrl:", "aurora_flow_0:", "aurora_flow_1:"};
    int32_t control = -1;
    for (uint32_t i = 0; i < ips->count; i++) {
        const uint8_t *ip = ips->at + (size_t)i * IP_BYTES;
        const char *name = (const char *)ip + 16;
        if (word(ip) != IP_KERNEL || !memchr(name, 0, XRT_NAME)) continue;
        for (uint32_t block = 0; block < LORA_BLOCKS; block++) {
            if (strncmp(name, kernels[block], strlen(kernels[block]))) continue;
            memcpy(container->unit[block], name, XRT_NAME);
            container->unit_base[block] = wide(ip + 8);
            if (block == LORA_BLOCK_CONTROL) control = (int32_t)i;
        }
    }
    return control;
}

static void read_connections(const struct table *rows, int32_t control,
                             const struct xrt_facts *facts, struct xrt_container *container) {
    for (uint32_t i = 0; i < rows->count; i++) {
        const uint8_t *row = rows->at + (size_t)i * CONNECTION_BYTES;
        if ((int32_t)word(row + 4) != control) continue;
        for (uint32_t bank = 0; bank < xrt_bank_count(facts); bank++)
            if (container->memory[bank] == (int32_t)word(row + 8)) container->connected[bank] = 1;
    }
}

static int read_sections(const struct view *file, const struct xrt_facts *facts,
                         struct xrt_container *container, struct lora_failure *failure) {
    struct table memories, groups, ips, rows, group_rows;
    int status = check_top(file, failure);
    if (status) return status;
    memcpy(container->uuid, file->at + UUID_AT, sizeof container->uuid);
    if (section(file, MEM_TOPOLOGY, 8, MEMORY_BYTES, &memories) ||
        section(file, GROUP_TOPOLOGY, 8, MEMORY_BYTES, &groups))
        return bad(file, failure, "its memory topology is damaged");
    if (section(file, IP_LAYOUT, 8, IP_BYTES, &ips))
        return bad(file, failure, "its IP layout is damaged");
    if (section(file, CONNECTIVITY, 4, CONNECTION_BYTES, &rows) ||
        section(file, GROUP_CONNECTIVITY, 4, CONNECTION_BYTES, &group_rows))
        return bad(file, failure, "its connectivity is damaged");
    /* The vendor's linker adds groups; where there are any, buffer objects count by them. */
    read_banks(groups.at ? &groups : &memories, facts, container);
    int32_t control = read_units(&ips, container);
    if (control < 0) return bad(file, failure, "it has no kernel lora_ctrl");
    read_connections(group_rows.at ? &group_rows : &rows, control, facts, container);
    return check_banks(file, facts, container, failure);
}

static int read_uuid(const struct view *file, const struct xrt_facts *facts,
                     struct xrt_container *container, struct lora_failure *failure) {
    (void)facts;
    int status = check_top(file, failure);
    if (!status) memcpy(container->uuid, file->at + UUID_AT, sizeof container->uuid);
    return status;
}

typedef int read_fn(const struct view *file, const struct xrt_facts *facts,
                    struct xrt_container *container, struct lora_failure *failure);

static int read_file(const char *path, read_fn *read, const struct xrt_facts *facts,
                     struct xrt_container *container, struct lora_failure *failure) {
    struct stat state;
    memset(container, 0, sizeof *container);
    int file = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (file < 0 || fstat(file, &state) || !S_ISREG(state.st_mode)) {
        int reason = errno;
        if (file >= 0) close(file);
        return lora_fail(failure, LORA_ERR_OVERLAY, "%.160s: container cannot be read: %s", path,
                         file < 0 ? strerror(reason) : "no plain file");
    }
    struct view view = {path, NULL, (uint64_t)state.st_size};
    if (view.bytes < TOP_BYTES) {
        close(file);
        return bad(&view, failure, "no xclbin: too short");
    }
    void *mapping = mmap(NULL, view.bytes, PROT_READ, MAP_PRIVATE, file, 0);
    close(file);
    if (mapping == MAP_FAILED)
        return lora_fail(failure, LORA_ERR_MEMORY, "%.160s: cannot be mapped", path);
    view.at = mapping;
    int status = read(&view, facts, container, failure);
    munmap(mapping, view.bytes);
    return status;
}

int xrt_container_read(const char *path, const struct xrt_facts *facts,
                       struct xrt_container *container, struct lora_failure *failure) {
    return read_file(path, read_sections, facts, container, failure);
}

int xrt_container_uuid(const char *path, unsigned char uuid[16], struct lora_failure *failure) {
    struct xrt_container container;
    int status = read_file(path, read_uuid, NULL, &container, failure);
    if (!status) memcpy(uuid, container.uuid, sizeof container.uuid);
    return status;
}
