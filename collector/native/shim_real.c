/* Finding the functions behind ours. Nothing is linked: a process may have no NCCL, no driver, or load them late. */
#define _GNU_SOURCE
#include "shim.h"

#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <string.h>

/* Whether a pointer is one of our own functions: looking one up in the global scope finds us first. */
static bool is_ours(void *function) {
    Dl_info found, own;
    return dladdr(function, &found) && dladdr((void *)&ph_real_find, &own) && found.dli_fbase == own.dli_fbase;
}

static void *look_in(const char *file, const char *name) {
    void *library = dlopen(file, RTLD_LAZY | RTLD_NOLOAD);
    if (!library) return NULL;
    void *function = dlsym(library, name);
    if (function && !is_ours(function)) return function; /* our count stays: a dlclose must not take it from under us */
    dlclose(library);
    return NULL;
}

struct search {
    const char *name;
    void *function;
};

/* One loaded file: is it an NCCL (or RCCL), and does it have the function? */
static int look_at(struct dl_phdr_info *info, size_t size, void *data) {
    struct search *search = data;
    const char *file = strrchr(info->dlpi_name, '/');
    (void)size;
    file = file ? file + 1 : info->dlpi_name;
    if (strncmp(file, "libnccl.so", 10) == 0 || strncmp(file, "librccl.so", 10) == 0)
        search->function = look_in(info->dlpi_name, search->name);
    return search->function != NULL;
}

/* In this order: what comes after us in the order of loading (a program linked with NCCL); what the caller's own
 * library is linked with (torch is loaded late and privately, so that its NCCL is in nobody else's scope); any NCCL
 * that is loaded. */
void *ph_real_find(const char *name, void *caller) {
    struct search search = {name, dlsym(RTLD_NEXT, name)};
    Dl_info info;
    if (search.function) return search.function;
    if (dladdr(caller, &info) && info.dli_fname) search.function = look_in(info.dli_fname, name);
    if (!search.function) dl_iterate_phdr(look_at, &search);
    return search.function;
}

void *ph_real_first(_Atomic(void *) *found, const char *name, void *caller) {
    void *function = ph_real_find(name, caller);
    if (function) atomic_store_explicit(found, function, memory_order_release);
    else fprintf(stderr, "pacehound: there is no %s behind the NCCL shim\n", name);
    return function;
}

void *ph_cuda_find(const char *name) {
    void *function = dlsym(RTLD_DEFAULT, name);
    return function ? function : look_in("libcuda.so.1", name);
}

typedef int (*is_capturing_t)(cudaStream_t, int *);
static _Atomic(is_capturing_t) is_capturing;

void ph_cuda_start(void) {
    if (!atomic_load_explicit(&is_capturing, memory_order_relaxed))
        atomic_store(&is_capturing, (is_capturing_t)ph_cuda_find("cuStreamIsCapturing"));
}

int ph_capture_status(cudaStream_t stream) {
    is_capturing_t ask = atomic_load_explicit(&is_capturing, memory_order_relaxed);
    int status = 0;
    if (!ask) return 0;
    return ask(stream, &status) != 0 ? -1 : status != 0;
}
