/* c10d_hooks.cpp: the hooks of pacehound/instrument/torch_calls.py without the interpreter.
 *
 * Same records, same numbers, same rings (own_rings.h). A call costs well under a microsecond, needs no GIL, and leaves
 * no Python function in C++ that would outlive the interpreter. Built by build.py for one torch; for one without hooks
 * (PACEHOUND_DISPATCHED) it asks torch's dispatcher instead. Nothing here throws into c10d.
 */
#include <pthread.h>

#ifndef PACEHOUND_DISPATCHED
#include "hooked.h"
#else
#include "dispatched.h"
#endif
#include "tensor_waits.h"

namespace {

void attach(const c10::intrusive_ptr<c10d::ProcessGroup>& process_group, const std::string& handle,
            std::vector<int32_t> members, bool cpu_ends_by_future, std::string device_times, bool is_world) {
    auto group = std::make_shared<Group>();
    group->is_world = is_world;
    if (handle.size() != 16) throw std::invalid_argument("a handle has 16 bytes");
    memcpy(group->handle.data(), handle.data(), 16);
    group->members = std::move(members);
    group->cpu_ends_by_future = cpu_ends_by_future;
    group->device_times = std::move(device_times);
    if (cpu_ends_by_future) be_told_of_tensor_waits();
    watch(process_group, group);
}

/* As AT_ONCE_NS of torch_waits.py. */
constexpr uint64_t kAtOnceNs = 500'000;

/* A call whose end is seen by its wait, for torch_waits.py. */
struct Open {
    std::shared_ptr<Call> call;
    void end_at_wait(int flags, uint64_t waited_since_ns) {
        guarded([&] {
            const uint64_t now = now_ns(), waited = waited_since_ns ? now - waited_since_ns : now;
            auto& record = call->record.call;
            const bool is_through = record.direction == PH_SEND && waited < kAtOnceNs;
            if (record.direction == PH_RECV) record.start_ns = waited_since_ns;
            end(*call, uint8_t(flags) | PH_END_BOUND, is_through ? record.launch_ns + waited : now);
        });
    }
};

py::object take_expected() {
    if (!expected) return py::none();
    return py::cast(Open{std::shared_ptr<Call>(std::exchange(expected, nullptr))});
}

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
    pthread_atfork(nullptr, nullptr, [] {
        generation.fetch_add(1);
        is_on.store(false);
        new (&rings_lock()) std::mutex; /* whoever held it in the parent is not here */
        new (&awaited_lock()) std::mutex;
        new (&by_tensor_lock()) std::mutex;
#ifdef PACEHOUND_DISPATCHED
        new (&watched_lock()) std::shared_mutex;
#endif
        new (&awaited()) std::list<Awaited>; /* the parent's, which goes on with them */
        new (&by_tensor()) std::unordered_map<const void*, AwaitedByTensor>;
        rings().clear();
        idle().clear();
    });
    py::class_<Open>(module, "Open").def("end", &Open::end_at_wait, py::arg("flags") = 0, py::arg("waited_since_ns") = 0);
    module.def("start", [](const std::string& run_dir, int rank, int local_rank, int world_size, int attempt,
                           uint64_t start_ticks) {
        process() = Process{run_dir, rank, local_rank, world_size, attempt, start_ticks};
        is_on.store(true);
    });
    module.def("attach", [](const c10::intrusive_ptr<c10d::ProcessGroup>& process_group, const py::bytes& handle,
                            std::vector<int32_t> members, bool cpu_ends_by_future, std::string device_times,
                            bool is_world) {
        attach(process_group, handle, std::move(members), cpu_ends_by_future, std::move(device_times), is_world);
    });
    module.def("detach",
               [](const c10::intrusive_ptr<c10d::ProcessGroup>& process_group) { unwatch(process_group); });
    module.def("hold", [](uintptr_t asked, uintptr_t look, uintptr_t launched, uintptr_t wants, uintptr_t time,
                          uintptr_t timed, uintptr_t untimed) {
        hold = Hold{reinterpret_cast<bool (*)()>(asked),     reinterpret_cast<void (*)()>(look),
                    reinterpret_cast<void (*)()>(launched),  reinterpret_cast<bool (*)(int64_t)>(wants),
                    reinterpret_cast<void* (*)(const void*, void*)>(time),
                    reinterpret_cast<void (*)(void*, void*, bool)>(timed), reinterpret_cast<void (*)()>(untimed)};
    });
    module.def("write", [](const py::bytes& after_stamp) {
        const auto bytes = std::string_view(after_stamp);
        if (bytes.size() > PH_RECORD_BYTES - 8) throw std::invalid_argument("a record has 120 bytes after its stamp");
        ph_record record;
        memset(&record, 0, sizeof record);
        memcpy(reinterpret_cast<char*>(&record) + 8, bytes.data(), bytes.size());
        write(record);
    });
    module.def("take_expected", &take_expected);
    module.def("settle", [](uint64_t now, bool is_the_last) {
        guarded([now, is_the_last] {
            if (expected) end(*std::exchange(expected, nullptr), PH_END_BOUND, now);
            end_what_is_over(now);
            end_what_is_dropped(is_the_last);
        });
    });
    module.def("stop", [] { is_on.store(false); });
    module.def("switch_off", &switch_rings_off);
    module.def("close", [] {
        std::lock_guard<std::mutex> guard(rings_lock());
        for (Ring* ring : rings()) ring->close();
    });
    module.def("error", [] {
        std::lock_guard<std::mutex> guard(error_lock());
        return error_text();
    });
}
