/* The runtime's library: found and resolved once, at the first board that needs it. */
#define _GNU_SOURCE
#include "transport_xrt.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LIBRARY "libxrt_coreutil.so.2"

struct symbol {
    const char *name;
    size_t offset;
};

static const struct symbol device_symbols[] = {
    {"xrtDeviceOpen", offsetof(struct xrt_api, device_open)},
    {"xrtDeviceOpenByBDF", offsetof(struct xrt_api, device_open_bdf)},
    {"xrtDeviceClose", offsetof(struct xrt_api, device_close)},
    {"xrtDeviceLoadXclbinFile", offsetof(struct xrt_api, device_load)},
    {"xrtDeviceGetXclbinUUID", offsetof(struct xrt_api, device_uuid)},
    {"xrtDeviceToXclDevice", offsetof(struct xrt_api, device_shim)},
    {"xrtBOAlloc", offsetof(struct xrt_api, bo_alloc)},
    {"xrtBOFree", offsetof(struct xrt_api, bo_free)},
    {"xrtBOMap", offsetof(struct xrt_api, bo_map)},
    {"xrtBOAddress", offsetof(struct xrt_api, bo_address)},
    {"xrtBOSync", offsetof(struct xrt_api, bo_sync)},
    {"xrtPLKernelOpenExclusive", offsetof(struct xrt_api, kernel_open)},
    {"xrtKernelClose", offsetof(struct xrt_api, kernel_close)},
    {"xrtKernelReadRegister", offsetof(struct xrt_api, kernel_read)},
    {"xrtKernelWriteRegister", offsetof(struct xrt_api, kernel_write)},
};

static const struct symbol ip_symbols[] = {
    {"xclIPName2Index", offsetof(struct xrt_ip_api, index)},
    {"xclOpenContext", offsetof(struct xrt_ip_api, open)},
    {"xclCloseContext", offsetof(struct xrt_ip_api, close)},
    {"xclRegRead", offsetof(struct xrt_ip_api, read)},
    {"xclRegWrite", offsetof(struct xrt_ip_api, write)},
};

#define COUNT(table) (sizeof table / sizeof table[0])

static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;
static struct xrt_api api;
static struct xrt_ip_api ip_api;
static pthread_mutex_t resolving = PTHREAD_MUTEX_INITIALIZER;
static atomic_int have_api, have_ip_api;

void xrt_lock(void) { pthread_mutex_lock(&guard); }
void xrt_unlock(void) { pthread_mutex_unlock(&guard); }

/* Name of the first symbol that is not there, NULL when all are. */
static const char *resolve(void *library, const struct symbol *symbols, size_t count, void *table) {
    for (size_t i = 0; i < count; i++) {
        void *found = dlsym(library, symbols[i].name);
        if (!found) return symbols[i].name;
        memcpy((char *)table + symbols[i].offset, &found, sizeof found);
    }
    return NULL;
}

/* What the runtime loads from lib/ when a device is opened. */
static const char *driver_library(void) {
    const char *mode = getenv("XCL_EMULATION_MODE");
    if (mode && !strcmp(mode, "sw_emu")) return "libxrt_swemu.so.2";
    if (mode && !strcmp(mode, "hw_emu")) return "libxrt_hwemu.so.2";
    if (mode && !strcmp(mode, "noop")) return "libxrt_noop.so.2";
    return "libxrt_core.so.2";
}

/* Without it XRT 2.13 ends the whole process when a device is opened. */
static int check_environment(struct lora_failure *failure) {
    const char *folder = getenv("XILINX_XRT");
    if (!folder || !folder[0])
        return lora_fail(failure, LORA_ERR_TRANSPORT,
                         "XRT: XILINX_XRT is not set, the folder of the runtime expected; source "
                         "/opt/xilinx/xrt/setup.sh, or set it to the folder whose lib/ holds "
                         "libxrt_core.so.2");
    if (access(folder, R_OK | X_OK))
        return lora_fail(failure, LORA_ERR_TRANSPORT,
                         "XRT: XILINX_XRT names '%.100s', which cannot be read; set it to the "
                         "folder whose lib/ holds libxrt_core.so.2",
                         folder);
    char path[4096];
    int length = snprintf(path, sizeof path, "%s/lib/%s", folder, driver_library());
    if (length >= (int)sizeof path || access(path, R_OK))
        return lora_fail(failure, LORA_ERR_TRANSPORT,
                         "XRT: XILINX_XRT names '%.100s', which has no lib/%s; set it to a folder "
                         "that has (lora doctor shows how)",
                         folder, driver_library());
    return LORA_OK;
}

static int load(struct lora_failure *failure) {
    void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_GLOBAL);
    if (!library) {
        const char *said = dlerror();
        return lora_fail(failure, LORA_ERR_TRANSPORT,
                         "XRT: %.120s; install XRT 2.13 or newer (Debian: apt install libxrt1)",
                         said ? said : LIBRARY " cannot be loaded");
    }
    const char *missing = resolve(library, device_symbols, COUNT(device_symbols), &api);
    if (!missing) return LORA_OK; /* never closed: the runtime keeps threads and handlers */
    dlclose(library);
    return lora_fail(failure, LORA_ERR_TRANSPORT,
                     "XRT: " LIBRARY " has no %s; XRT 2.13 or newer expected, update it", missing);
}

const struct xrt_api *xrt_api(struct lora_failure *failure) {
    if (have_api) return &api;
    int status = check_environment(failure);
    if (status) return NULL;
    pthread_mutex_lock(&resolving);
    if (!have_api) status = load(failure);
    if (!status) have_api = 1;
    pthread_mutex_unlock(&resolving);
    return status ? NULL : &api;
}

const struct xrt_ip_api *xrt_ip_api(struct lora_failure *failure) {
    if (have_ip_api) return &ip_api;
    const char *missing = resolve(RTLD_DEFAULT, ip_symbols, COUNT(ip_symbols), &ip_api);
    if (missing) {
        lora_fail(failure, LORA_ERR_TRANSPORT,
                  "XRT: this runtime has no %s, so the link cores' registers cannot be reached; "
                  "take XRT 2.13 to 2.16",
                  missing);
        return NULL;
    }
    have_ip_api = 1;
    return &ip_api;
}

static const int signals_kept[XRT_SIGNALS] = {SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGABRT};

void xrt_signals_keep(struct xrt_signals *signals) {
    for (int i = 0; i < XRT_SIGNALS; i++) sigaction(signals_kept[i], NULL, &signals->kept[i]);
}

void xrt_signals_put_back(const struct xrt_signals *signals) {
    for (int i = 0; i < XRT_SIGNALS; i++) sigaction(signals_kept[i], &signals->kept[i], NULL);
}

uint32_t xrt_board_count(void) {
    unsigned int (*probe)(void) = NULL;
    void *found = dlsym(RTLD_DEFAULT, "xclProbe");
    memcpy(&probe, &found, sizeof probe);
    return probe ? probe() : LORA_NONE;
}
