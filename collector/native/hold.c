/* The trap of control.h for a process whose calls torch's hooks see: no shim is loaded, the hooks say what is launched.
 *
 * A library of its own (pacehound/instrument/hold.py), of shim_trap.c and what that needs of a process. What it offers
 * may be called on any thread, with or without the interpreter's lock; `pacehound_hold_look` may wait.
 */
#define _GNU_SOURCE
#include "shim.h"

#include <dlfcn.h>
#include <stddef.h>

#define PH_OFFERED __attribute__((visibility("default")))

static _Atomic bool has_world;
static _Atomic(void *) context;
static struct ph_comm world;

struct ph_comm *ph_comm_world(void) { return atomic_load(&has_world) ? &world : NULL; }

void *ph_cuda_find(const char *name) {
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    void *function = driver ? dlsym(driver, name) : NULL;
    if (driver) dlclose(driver);
    return function;
}

/* The context of the thread that is held: its kernels are those that must have ended. */
int ph_comm_contexts(void **contexts, int room) {
    if (!ph_cuda_find("cuInit")) return -1;
    contexts[0] = atomic_load(&context);
    return contexts[0] && room > 0 ? 1 : 0;
}

/* The process has joined a group. True where it has a control block: it can be held. */
PH_OFFERED bool pacehound_hold_start(int32_t rank) {
    if (!ph_process_start()) return false;
    struct ph_control *control = atomic_load(&ph_process.control);
    ph_process.rank = rank;
    control->rank = rank;
    return control->magic == PH_CONTROL_MAGIC;
}

/* There is a group of all ranks, or none any more: who waits goes on. */
PH_OFFERED void pacehound_hold_world(bool is_there) {
    atomic_store(&has_world, is_there);
    if (!is_there) ph_trap_abandon();
}

/* A collective of the group of all ranks is launched. */
PH_OFFERED void pacehound_hold_launched(void) {
    struct ph_control *control = atomic_load_explicit(&ph_process.control, memory_order_relaxed);
    atomic_fetch_add_explicit(&control->world_launched, 1, memory_order_release);
}

/* Whether somebody asks this process to stop; a call that is about to be made then looks. */
PH_OFFERED bool pacehound_hold_asked(void) {
    struct ph_control *control = atomic_load_explicit(&ph_process.control, memory_order_relaxed);
    return atomic_load_explicit(&control->trap_id, memory_order_relaxed) !=
           atomic_load_explicit(&ph_trap_answered, memory_order_relaxed);
}

/* Stops here if the trap says so; returns when the hold is over. */
PH_OFFERED void pacehound_hold_look(void) {
    int (*current)(void **) = (int (*)(void **))ph_cuda_find("cuCtxGetCurrent");
    void *found = NULL;
    if (current && current(&found) == 0 && found) atomic_store(&context, found);
    ph_trap_look();
}
