/* What the plugin asks of a version of NCCL. What was reported to be slow, or to break, is kernel events: versions with such
 * a report are asked for calls and transfers alone, and then nobody is told when a call ends. It refuses to work where
 * NCCL would crash with any plugin: a job that is not watched is better off than one that dies of being watched.
 */
#define _GNU_SOURCE
#include "profiler.h"

#include <dlfcn.h>
#include <sys/statvfs.h>

enum { VERSION = 10000, NEEDED_SHM_BYTES = 256 << 20 };

static const struct {
    int below; /* all versions below this one, and not of the entries before */
    const char *why;
} versions[] = {
    {1, "this NCCL does not say its version, and some versions crash with a profiler plugin"},
    {2 * VERSION + 2700, "it needs NCCL 2.27 or newer: older ones do not know the plugin's interface"},
    {2 * VERSION + 3000, NULL},
    {2 * VERSION + 3004, "NCCL 2.30.3 was reported to crash with a profiler plugin (NVIDIA/nccl#2112); use 2.30.4 or newer"},
    {INT32_MAX, NULL},
};

static const struct {
    int from, below;
    const char *why;
} without_kernels[] = {
    {2 * VERSION + 2700, 2 * VERSION + 2800,
     "NCCL 2.27 was reported to lose its proxy thread with kernel events on, 'Proxy append out of bounds' (NVIDIA/nccl#2039)"},
    {2 * VERSION + 3100, INT32_MAX,
     "from 2.31 on NCCL was reported to lose 4 to 13 % of its speed with kernel events on (NVIDIA/nccl#2355), and no later "
     "version is known to be free of it"},
};

const char *ph_no_kernel_events(int version) {
    for (size_t i = 0; i < sizeof without_kernels / sizeof without_kernels[0]; i++)
        if (version >= without_kernels[i].from && version < without_kernels[i].below) return without_kernels[i].why;
    return NULL;
}

const char *ph_refused_version(int version) {
    for (size_t i = 0; i < sizeof versions / sizeof versions[0]; i++)
        if (version < versions[i].below) return versions[i].why;
    return versions[sizeof versions / sizeof versions[0] - 1].why;
}

/* For `pacehound doctor`, which asks without an NCCL. */
__attribute__((visibility("default"))) const char *pacehound_profiler_refusal(int version) {
    return ph_refused_version(version);
}
__attribute__((visibility("default"))) const char *pacehound_profiler_no_kernels(int version) {
    return ph_no_kernel_events(version);
}

/* The plugin is not linked with NCCL, and more than one may be loaded: the one that called us is where its logger is. */
int ph_version_behind(ph_nccl_log_t log) {
    Dl_info info;
    int version = 0;
    if (!log || !dladdr((void *)(uintptr_t)log, &info) || !info.dli_fname) return 0;
    void *library = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    if (!library) library = dlopen(NULL, RTLD_LAZY); /* NCCL is in the program itself */
    if (!library) return 0;
    ncclResult_t (*ask)(int *) = (ncclResult_t(*)(int *))dlsym(library, "ncclGetVersion");
    if (ask && ask(&version) != ncclSuccess) version = 0;
    dlclose(library);
    return version;
}

/* With kernel events NCCL allocates its proxy's pool in any case, and does not look whether it got it: with 64 MiB
 * of /dev/shm it crashed, with 1 GiB it did not (NVIDIA/nccl#2326). */
bool ph_shared_memory_is_short(void) {
    struct statvfs found;
    return statvfs("/dev/shm", &found) == 0 && (uint64_t)found.f_bavail * found.f_frsize < NEEDED_SHM_BYTES;
}
