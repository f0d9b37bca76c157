/* calls.h: what is written of a call: its launch before it is issued, its end when it is known. */
#pragma once

#include <torch/extension.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <c10/core/impl/VirtualGuardImpl.h>

#include <array>
#include <list>
#include <map>
#include <memory>
#include <type_traits>

#include "own_rings.h"

namespace py = pybind11;

namespace {

constexpr uint8_t kSourceC10d = 1;

/* The trap and the times (collector/native/hold.c), where they are loaded: set under the GIL, before the first hook. */
struct Hold {
    bool (*asked)() = nullptr;
    void (*look)() = nullptr;
    void (*launched)() = nullptr;
    bool (*wants)(int64_t) = nullptr;
    void* (*time)(const void*, void*) = nullptr;
    void (*timed)(void*, void*, bool) = nullptr;
    void (*untimed)() = nullptr;
};
Hold hold;

/* Stops here where a controller asks for it; the interpreter goes on meanwhile. */
void stop_if_asked() {
    if (!hold.asked || !hold.asked()) return;
    if (PyGILState_Check()) {
        py::gil_scoped_release others;
        hold.look();
    } else {
        hold.look();
    }
}

/* One communicator that this process has joined. */
struct Group {
    std::array<uint8_t, 16> handle;
    bool is_world = false;
    std::vector<int32_t> members; /* world ranks, in the order of ranks within the group */
    bool cpu_ends_by_future = false;
    std::string device_times; /* as of WatchedGroup */
    std::atomic<int64_t> collectives{0};
    std::mutex pairs_lock;
    std::map<std::pair<int32_t, uint8_t>, int64_t> pairs;
    std::array<std::atomic<bool>, 32> without_future{}; /* by op */

    int64_t number(int32_t peer, uint8_t direction) {
        if (direction == PH_NONE) return collectives.fetch_add(1);
        std::lock_guard<std::mutex> guard(pairs_lock);
        return pairs[{peer, direction}]++;
    }
};

struct Call {
    std::shared_ptr<Group> group;
    ph_record record; /* its LAUNCH; the COMPLETE repeats it */
    c10::Device device{c10::kCPU};
    void* timed = nullptr; /* of hold.time */
    bool is_over = false;  /* under awaited_lock() */
};

/* Whether a stream of this torch says what it is to CUDA: before 2.9 none does, and nothing is timed. */
template <typename Stream, typename = void>
struct KnowsItself : std::false_type {
    static void* handle(const Stream&) { return nullptr; }
};
template <typename Stream>
struct KnowsItself<Stream, std::void_t<decltype(std::declval<const Stream&>().native_handle())>> : std::true_type {
    static void* handle(const Stream& stream) { return stream.native_handle(); }
};

void* current_stream(c10::Device device) {
    return KnowsItself<c10::Stream>::handle(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
}

/* As CallHooks._time in torch_calls.py. */
void time_on_device(Call& call) {
    if (call.group->device_times == "stream" && call.record.call.flags & PH_ASYNC) {
        hold.untimed();
        return;
    }
    call.timed = hold.time(reinterpret_cast<const char*>(&call.record) + 8, current_stream(call.device));
    if (call.timed) call.record.call.flags |= PH_TIMED;
}

/* As CallHooks._ends_on_device. */
void ends_on_device(const Call& call, const c10::intrusive_ptr<c10d::Work>& work) {
    if (!(call.record.call.flags & PH_ASYNC)) {
        hold.timed(call.timed, current_stream(call.device), true);
        return;
    }
    void* left = call.timed;
    try {
        const auto future = work ? work->getFuture() : nullptr;
        if (future && future->completed()) { /* it calls back at once, on this thread */
            future->addCallback([&left, &call](c10::ivalue::Future&) {
                hold.timed(std::exchange(left, nullptr), current_stream(call.device), true);
            });
        }
    } catch (...) { /* the call is not timed */
    }
    if (left) hold.timed(left, nullptr, false);
}

void end(const Call& call, uint8_t flags, uint64_t end_ns) {
    if (!is_on.load(std::memory_order_relaxed)) return;
    ph_record record = call.record;
    record.kind = PH_COMPLETE;
    record.call.flags |= flags;
    record.call.end_ns = end_ns;
    write(record);
}

void end(const Call& call, uint8_t flags) { end(call, flags, now_ns()); }

/* Calls whose futures have still to call back. A future tells its waiter first: where processors are short, the script has
 * ended its step before that thread gets one, so the end of a step looks here. */
struct Awaited {
    std::shared_ptr<Call> call;
    c10::intrusive_ptr<c10::ivalue::Future> future;
};
std::mutex& awaited_lock() {
    static std::mutex* the = new std::mutex;
    return *the;
}
std::list<Awaited>& awaited() {
    static std::list<Awaited>* the = new std::list<Awaited>;
    return *the;
}

/* Each call has its end written once, by whoever takes it out. */
bool is_taken_out(std::list<Awaited>::iterator at, const std::shared_ptr<Call>& call) {
    std::lock_guard<std::mutex> guard(awaited_lock());
    if (std::exchange(call->is_over, true)) return false;
    awaited().erase(at);
    return true;
}

void end_by_future(std::shared_ptr<Call> call, c10::intrusive_ptr<c10::ivalue::Future> future) {
    std::list<Awaited>::iterator at;
    {
        std::lock_guard<std::mutex> guard(awaited_lock());
        at = awaited().insert(awaited().end(), Awaited{call, future});
    }
    /* std::function wants something that can be copied. */
    future->addCallback([call = std::move(call), at](c10::ivalue::Future& done) {
        const uint64_t end_ns = now_ns();
        try {
            if (is_taken_out(at, call)) end(*call, done.hasError() ? PH_FAILED : 0, end_ns);
        } catch (const std::exception& error) {
            fail(error.what());
        } catch (...) {
            fail("the completion of a call");
        }
    });
}

/* What is over by now, if nobody has said so yet. */
void end_what_is_over(uint64_t now) {
    std::list<Awaited> over; /* let go of when the lock is: that may run code of the script's */
    {
        std::lock_guard<std::mutex> guard(awaited_lock());
        for (auto at = awaited().begin(); at != awaited().end();) {
            const auto next = std::next(at);
            if (at->future->completed()) {
                at->call->is_over = true;
                over.splice(over.end(), awaited(), at);
            }
            at = next;
        }
    }
    for (const auto& one : over) end(*one.call, one.future->hasError() ? PH_FAILED : 0, now);
}

/* Positions in DTYPES of pacehound/model/codes.py. */
uint8_t dtype_of(at::ScalarType type) {
    switch (type) {
        case at::kChar: return 1;
        case at::kByte: return 2;
        case at::kShort: return 3;
        case at::kInt: return 4;
        case at::kUInt32: return 5;
        case at::kLong: return 6;
        case at::kUInt64: return 7;
        case at::kHalf: return 8;
        case at::kBFloat16: return 9;
        case at::kFloat: return 10;
        case at::kDouble: return 11;
        case at::kFloat8_e4m3fn: return 12;
        case at::kFloat8_e5m2: return 13;
        case at::kBool: return 14;
        case at::kComplexFloat: return 15;
        case at::kComplexDouble: return 16;
        default: return 0;
    }
}

/* What this thread has launched and not yet issued, and what it has issued and nobody has waited for yet. */
struct Issuing {
    std::unique_ptr<Call> call;
    int64_t op_id = 0;
    bool ends_by_future = false;
};
thread_local Issuing issuing;
thread_local std::unique_ptr<Call> expected;

/* What there is to be known of a call before it is issued. */
struct Told {
    int op = 0; /* its position in OPS of pacehound/model/codes.py */
    int64_t op_id = 0;
    int64_t root = -1;
    bool is_async = false;
    const std::vector<at::Tensor>& tensors;
};

void before(const std::shared_ptr<Group>& group, const Told& told) {
    const int op = told.op;
    const auto& tensors = told.tensors;
    if (expected) end(*std::exchange(expected, nullptr), PH_END_BOUND); /* issued from C++; waited for by now */
    if (auto unissued = std::exchange(issuing.call, nullptr)) {
        if (unissued->timed) hold.timed(unissued->timed, nullptr, false);
        else end(*unissued, PH_FAILED); /* it raised between its two hooks */
    }
    stop_if_asked();
    auto call = std::make_unique<Call>();
    call->group = group;
    ph_record& record = call->record;
    memset(&record, 0, sizeof record);
    record.kind = PH_LAUNCH;
    record.rank = uint32_t(process().rank);
    memcpy(record.handle, group->handle.data(), 16);
    record.call.op = uint8_t(op);
    record.call.direction = op == 10 ? PH_SEND : op == 11 ? PH_RECV : PH_NONE;
    record.call.flags = told.is_async ? PH_ASYNC : 0;
    record.call.source = kSourceC10d;
    record.call.peer = told.root >= 0 && told.root < int64_t(group->members.size()) ? group->members[told.root] : -1;
    bool is_cpu = true;
    if (!tensors.empty()) {
        record.call.dtype = dtype_of(tensors[0].scalar_type());
        is_cpu = tensors[0].is_cpu();
        for (const auto& tensor : tensors) record.call.count += tensor.numel();
    }
    record.call.seq = group->number(record.call.peer, record.call.direction);
    record.call.send_count = record.call.recv_count = -1;
    record.call.launch_ns = now_ns();
    const bool may_be_timed = KnowsItself<c10::Stream>::value && hold.wants && !group->device_times.empty();
    if (may_be_timed && !is_cpu && tensors[0].is_cuda() && hold.wants(record.call.seq)) {
        call->device = tensors[0].device();
        time_on_device(*call);
    }
    write(record);
    if (hold.launched && group->is_world && record.call.direction == PH_NONE) hold.launched();
    issuing.call = std::move(call);
    issuing.op_id = told.op_id;
    issuing.ends_by_future = is_cpu && group->cpu_ends_by_future;
}

void after(int64_t op_id, const c10::intrusive_ptr<c10d::Work>& work) {
    auto call = std::exchange(issuing.call, nullptr);
    if (call && call->timed) {
        if (issuing.op_id == op_id) ends_on_device(*call, work);
        else hold.timed(call->timed, nullptr, false);
    }
    if (!call || issuing.op_id != op_id || !issuing.ends_by_future || !work) return;
    auto& without_future = call->group->without_future[call->record.call.op];
    if (!without_future.load(std::memory_order_relaxed)) {
        c10::intrusive_ptr<c10::ivalue::Future> future;
        try {
            future = work->getFuture();
        } catch (...) {
            without_future.store(true);
        }
        if (future) {
            end_by_future(std::move(call), std::move(future));
            return;
        }
    }
    expected = std::move(call);
}

template <typename Function>
void guarded(Function function) {
    if (!is_on.load(std::memory_order_relaxed)) return;
    try {
        function();
    } catch (const std::exception& error) {
        fail(error.what());
    } catch (...) {
        fail("a hook");
    }
}

}  // namespace
