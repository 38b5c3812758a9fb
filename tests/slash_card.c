/* What a V80 does that the stand-in's memory files cannot, for a client that preloads this: DMA of
 * vrtd 1.0.0 wraps inside a page of 4096 bytes and pins its source for writing; the done bit clears
 * when it is read. Reads of any register clear it here, which is stricter than the card. A DMA
 * transfer or an access to the BAR may never end. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/dma-buf.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#define PAGE 4096
#define DONE 0x2u

static int is(int fd, const char *kind) {
    char link[64], name[128];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, name, sizeof name - 1);
    if (length <= 0) return 0;
    name[length] = 0;
    return strstr(name, "memfd:v80-") && strstr(name, kind);
}

static int writable(const void *at) {
    char byte;
    struct iovec local = {&byte, 1}, remote = {(void *)at, 1};
    byte = *(const char *)at;
    return process_vm_writev(getpid(), &local, 1, &remote, 1, 0) == 1;
}

static void wait_while(const char *variable) { /* the file that it names exists */
    const char *stuck = getenv(variable);
    while (stuck && access(stuck, F_OK) == 0) usleep(10000);
}

/* Accesses as the card sees them, in the file that CARD_COUNTS names: reads and writes of memory,
 * in pages, then reads and writes of registers. */
enum { MEMORY_READS, MEMORY_WRITES, REGISTER_READS, REGISTER_WRITES, COUNTS };
static uint64_t *counts;

__attribute__((constructor)) static void open_counts(void) {
    const char *name = getenv("CARD_COUNTS");
    int fd = name ? open(name, O_RDWR | O_CREAT, 0600) : -1;
    if (fd < 0 || ftruncate(fd, COUNTS * sizeof *counts)) return;
    counts = mmap(NULL, COUNTS * sizeof *counts, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
}

static void count(int which) {
    if (counts) __atomic_fetch_add(&counts[which], 1, __ATOMIC_SEQ_CST);
}

typedef ssize_t move_fn(int fd, void *data, size_t bytes, off_t at);

static ssize_t wrapped(const char *name, int fd, uint8_t *data, size_t bytes, off_t at) {
    move_fn *next = (move_fn *)dlsym(RTLD_NEXT, name);
    if (!is(fd, "-memory")) return next(fd, data, bytes, at);
    wait_while("STUCK_DMA");
    count(name[1] == 'r' ? MEMORY_READS : MEMORY_WRITES);
    if (bytes && !writable(data)) {
        errno = EFAULT;
        return -1;
    }
    off_t page = at / PAGE * PAGE;
    for (size_t done = 0; done < bytes;) {
        size_t inside = (size_t)(at + (off_t)done) % PAGE, now = PAGE - inside;
        if (now > bytes - done) now = bytes - done;
        if (next(fd, data + done, now, page + (off_t)inside) != (ssize_t)now) return -1;
        done += now;
    }
    return (ssize_t)bytes;
}

ssize_t pread(int fd, void *data, size_t bytes, off_t at) {
    return wrapped("pread", fd, data, bytes, at);
}
ssize_t pread64(int fd, void *data, size_t bytes, off_t at) {
    return wrapped("pread64", fd, data, bytes, at);
}
ssize_t pwrite(int fd, const void *data, size_t bytes, off_t at) {
    return wrapped("pwrite", fd, (void *)data, bytes, at);
}
ssize_t pwrite64(int fd, const void *data, size_t bytes, off_t at) {
    return wrapped("pwrite64", fd, (void *)data, bytes, at);
}

int ioctl(int fd, unsigned long request, ...) {
    typedef int ioctl_fn(int, unsigned long, ...);
    ioctl_fn *next = (ioctl_fn *)dlsym(RTLD_NEXT, "ioctl");
    va_list rest;
    va_start(rest, request);
    void *argument = va_arg(rest, void *);
    va_end(rest);
    if (request != DMA_BUF_IOCTL_SYNC || !is(fd, "-bar")) return next(fd, request, argument);
    wait_while("STUCK_BAR");
    static _Thread_local uint32_t seen; /* at the bracket's begin: a later bit was not read */
    uint64_t flags = ((struct dma_buf_sync *)argument)->flags;
    if (flags == (DMA_BUF_SYNC_START | DMA_BUF_SYNC_READ)) count(REGISTER_READS);
    if (flags == (DMA_BUF_SYNC_START | DMA_BUF_SYNC_WRITE)) count(REGISTER_WRITES);
    uint32_t *control = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (control == MAP_FAILED) return -1;
    if (flags == (DMA_BUF_SYNC_START | DMA_BUF_SYNC_READ)) seen = *(volatile uint32_t *)control;
    if (flags == (DMA_BUF_SYNC_END | DMA_BUF_SYNC_READ) && seen & DONE)
        __atomic_fetch_and(control, ~DONE, __ATOMIC_SEQ_CST);
    munmap(control, PAGE);
    return 0;
}
