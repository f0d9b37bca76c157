/* Handles: numbers that NCCL carries around for us, and how a stale one is told (profiler.h).
 *
 * From the top: 14 bits of salt that differ between processes, 3 of kind, 8 of part, 10 of communicator, 17 of
 * generation, 12 of slot; a group has its number in the lowest 29.
 */
#include "profiler.h"

static _Atomic uint64_t salt;

void ph_handles_renew(uint64_t seed) {
    seed = (seed ^ (seed >> 31)) * 0x9e3779b97f4a7c15u;
    atomic_store(&salt, (seed >> 50) | 1); /* never 0: no handle is NULL */
}

void *ph_handle_pack(struct ph_handle handle) {
    uint64_t low = handle.kind == PH_HANDLE_GROUP
                       ? handle.group & PH_GROUP_MASK
                       : (uint64_t)(handle.generation & PH_GENERATION_MASK) << 12 | (handle.slot & (PH_MAX_SLOTS - 1));
    return (void *)(uintptr_t)(atomic_load_explicit(&salt, memory_order_relaxed) << 50 | (uint64_t)handle.kind << 47 |
                               (uint64_t)(handle.part & 0xff) << 39 |
                               (uint64_t)(handle.comm & (PH_MAX_COMMS - 1)) << 29 | low);
}

bool ph_handle_unpack(const void *packed, struct ph_handle *handle) {
    uint64_t bits = (uint64_t)(uintptr_t)packed;
    if (!bits || bits >> 50 != atomic_load_explicit(&salt, memory_order_relaxed)) return false;
    handle->kind = (enum ph_handle_kind)(bits >> 47 & 7);
    handle->part = (uint32_t)(bits >> 39 & 0xff);
    handle->comm = (uint32_t)(bits >> 29 & (PH_MAX_COMMS - 1));
    handle->generation = (uint32_t)(bits >> 12 & PH_GENERATION_MASK);
    handle->slot = (uint32_t)(bits & (PH_MAX_SLOTS - 1));
    handle->group = (uint32_t)(bits & PH_GROUP_MASK);
    return true;
}

void *ph_handle_of(enum ph_handle_kind kind, const struct ph_profiled *comm, uint32_t slot, uint32_t generation,
                       uint32_t part) {
    return ph_handle_pack(
        (struct ph_handle){.kind = kind, .comm = comm->index, .part = part, .generation = generation, .slot = slot});
}
