/* c10d_hooks.cpp: the hooks of pacehound/instrument/torch_calls.py without the interpreter.
 *
 * Same records, same numbers, same rings (collector/native/ring.h). A call costs well under a microsecond, needs no
 * GIL, and leaves no Python function in C++ that would outlive the interpreter. Built by build.py for one torch;
 * for one without hooks (PACEHOUND_DISPATCHED) it asks torch's dispatcher instead.
 *
 * Threads: each writes a ring of its own, got at its first record; when it ends, the next thread that comes takes it
 * over. Nothing here throws into c10d: the first error switches the hooks off, and Python asks why (error()).
 */
#include <torch/extension.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <c10/core/impl/VirtualGuardImpl.h>

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <shared_mutex>
#include <string>
#include <type_traits>
#include <unordered_map>
#include <vector>

#include "ring_room.h"

namespace py = pybind11;

namespace {

constexpr int64_t kHookId = 0x5041434548;
constexpr uint32_t kMainCapacity = 16384, kOtherCapacity = 2048;
constexpr uint8_t kSourceC10d = 1;

/* What all rings of the process share. Set under the GIL, before the first hook; never freed. */
struct Process {
    std::string run_dir;
    int32_t rank = -1, local_rank = -1, world_size = -1, attempt = 0;
    uint64_t start_ticks = 0;
};
Process& process() {
    static Process* the = new Process;
    return *the;
}
std::atomic<bool> is_on{false};
std::atomic<uint32_t> generation{0}; /* one more in each forked child: its parent's rings are not its own */
std::mutex& error_lock() {
    static std::mutex* the = new std::mutex;
    return *the;
}
std::string& error_text() {
    static std::string* the = new std::string;
    return *the;
}

void fail(const std::string& why) {
    is_on.store(false);
    std::lock_guard<std::mutex> guard(error_lock());
    if (error_text().empty()) error_text() = why;
}

uint64_t now_ns() {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return uint64_t(t.tv_sec) * 1000000000ull + uint64_t(t.tv_nsec);
}

class Ring;
std::mutex& rings_lock() {
    static std::mutex* the = new std::mutex;
    return *the;
}
std::set<Ring*>& rings() {
    static std::set<Ring*>* the = new std::set<Ring*>;
    return *the;
}

/* A mapped ring file, there for as long as the process. One thread at a time writes it; another one may close it when the
 * process leaves. */
class Ring {
  public:
    Ring() : generation_(generation.load()) {
        const auto tid = uint32_t(syscall(SYS_gettid));
        const auto pid = uint32_t(getpid());
        const std::string folder = process().run_dir + "/rings";
        capacity_ = ph_ring_room(folder.c_str(), tid == pid ? kMainCapacity : kOtherCapacity);
        if (!capacity_) throw std::runtime_error("the rings of this run have their share of " + folder);
        size_ = PH_RING_HEADER_BYTES + size_t(capacity_) * PH_RECORD_BYTES;
        const std::string path = folder + "/" + std::to_string(pid) + "-" + std::to_string(tid) + "-" +
                                 std::to_string(now_ns()) + ".ring"; /* as in recorder.py */
        const std::string temporary = path + ".new";
        const int fd = ::open(temporary.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        if (fd < 0) throw std::runtime_error("cannot make " + temporary + ": " + strerror(errno));
        /* Every block now: a store into a page that the file system cannot provide would be a SIGBUS. */
        int failed = posix_fallocate(fd, 0, off_t(size_));
        void* memory = failed ? MAP_FAILED : mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        ::close(fd);
        if (memory == MAP_FAILED) {
            ::unlink(temporary.c_str());
            throw std::runtime_error("no room for " + temporary + ": " + strerror(failed ? failed : errno));
        }
        header_ = static_cast<ph_ring_header*>(memory);
        records_ = reinterpret_cast<ph_record*>(static_cast<char*>(memory) + PH_RING_HEADER_BYTES);
        header_->magic = PH_RING_MAGIC;
        header_->version = PH_RING_VERSION;
        header_->header_bytes = PH_RING_HEADER_BYTES;
        header_->record_bytes = PH_RECORD_BYTES;
        header_->capacity = capacity_;
        header_->pid = pid;
        header_->tid = tid;
        header_->process_start_ticks = process().start_ticks;
        header_->rank = process().rank;
        header_->local_rank = process().local_rank;
        header_->world_size = process().world_size;
        header_->attempt = process().attempt;
        header_->created_ns = now_ns();
        if (::rename(temporary.c_str(), path.c_str()) != 0) {
            const int reason = errno;
            munmap(memory, size_);
            ::unlink(temporary.c_str());
            throw std::runtime_error("cannot name " + path + ": " + strerror(reason));
        }
        std::lock_guard<std::mutex> guard(rings_lock());
        rings().insert(this);
    }
    Ring(const Ring&) = delete;
    Ring& operator=(const Ring&) = delete;

    bool is_ours() const { return generation_ == generation.load(std::memory_order_relaxed); }

    /* Can't fail. A signal handler may come in between: each record takes its index first. */
    void write(const ph_record& record) {
        const uint64_t index = next_++;
        ph_record* slot = records_ + (index & (capacity_ - 1));
        __atomic_store_n(&slot->stamp, 2 * index + 1, __ATOMIC_RELAXED);
        __atomic_thread_fence(__ATOMIC_RELEASE);
        memcpy(reinterpret_cast<char*>(slot) + 8, reinterpret_cast<const char*>(&record) + 8, PH_RECORD_BYTES - 8);
        __atomic_store_n(&slot->stamp, 2 * index + 2, __ATOMIC_RELEASE);
        __atomic_store_n(&header_->written, next_, __ATOMIC_RELEASE);
    }
    void close() {
        if (is_ours()) header_->closed = 1;
    }

  private:
    uint32_t generation_, capacity_;
    size_t size_;
    ph_ring_header* header_;
    ph_record* records_;
    uint64_t next_ = 0;
};

/* Rings whose threads have ended, under rings_lock(). */
std::vector<Ring*>& idle() {
    static std::vector<Ring*>* the = new std::vector<Ring*>;
    return *the;
}

/* The ring of one thread, from its first record to its end. Libraries make a thread for a moment: a file for each adds up. */
class OwnRing {
  public:
    Ring& get() {
        if (!ring_ || !ring_->is_ours()) {
            ring_ = taken_over();
            if (!ring_) ring_ = new Ring;
        }
        return *ring_;
    }
    ~OwnRing() {
        if (!ring_ || !ring_->is_ours()) return; /* a fork's: the lock may have been copied while another thread held it */
        std::lock_guard<std::mutex> guard(rings_lock());
        idle().push_back(ring_);
    }

  private:
    static Ring* taken_over() {
        if (syscall(SYS_gettid) == getpid()) return nullptr; /* the main thread's is larger, and its own */
        std::lock_guard<std::mutex> guard(rings_lock());
        if (idle().empty()) return nullptr;
        Ring* ring = idle().back();
        idle().pop_back();
        return ring;
    }
    Ring* ring_ = nullptr;
};
thread_local OwnRing own_ring;

void write(const ph_record& record) { own_ring.get().write(record); }

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

#ifndef PACEHOUND_DISPATCHED

/* Positions in OPS of pacehound/model/codes.py, by HookOpName; -1 is no call of a communicator. */
int op_of(c10d::HookOpName name) {
    using Name = c10d::HookOpName;
    switch (name) {
        case Name::ALLREDUCE:
        case Name::ALLREDUCE_COALESCED: return 1;
        case Name::ALLGATHER:
        case Name::ALLGATHER_BASE:
        case Name::ALLGATHER_COALESCED:
        case Name::ALLGATHER_INTO_TENSOR_COALESCED: return 2;
        case Name::REDUCE_SCATTER:
        case Name::REDUCE_SCATTER_BASE:
        case Name::REDUCE_SCATTER_TENSOR_COALESCED: return 3;
        case Name::BROADCAST: return 4;
        case Name::REDUCE: return 5;
        case Name::ALLTOALL:
        case Name::ALLTOALL_BASE: return 6;
        case Name::GATHER: return 7;
        case Name::SCATTER: return 8;
        case Name::BARRIER: return 9;
        case Name::SEND: return 10;
        case Name::RECV: return 11;
        case Name::SPLIT:
        case Name::NEW_WINDOW: return -1;
        default: return 0;
    }
}

void watch(const c10::intrusive_ptr<c10d::ProcessGroup>& process_group, const std::shared_ptr<Group>& group) {
    process_group->registerPreHook(kHookId, [group](const c10d::PreHookArgs& args) {
        guarded([&] {
            const int op = op_of(args.name);
            const auto& tensors = args.input_tensors.empty() ? args.output_tensors : args.input_tensors;
            if (op >= 0) before(group, {op, args.op_id, args.root, args.async_op, tensors});
        });
    });
    process_group->registerPostHook(kHookId, [](const c10d::PostHookArgs& args) {
        guarded([&] { after(args.op_id, args.work); });
    });
}

void unwatch(const c10::intrusive_ptr<c10d::ProcessGroup>& process_group) {
    process_group->unregisterPreHook(kHookId);
    process_group->unregisterPostHook(kHookId);
}

#else /* as in dispatched_calls.py, which says why: a kernel under BackendSelect for each operator of c10d */

struct Watched {
    c10::weak_intrusive_ptr<c10d::ProcessGroup> process_group;
    std::shared_ptr<Group> group;
};
std::shared_mutex& watched_lock() {
    static std::shared_mutex* the = new std::shared_mutex;
    return *the;
}
std::unordered_map<const void*, Watched>& watched() {
    static auto* the = new std::unordered_map<const void*, Watched>;
    return *the;
}

std::shared_ptr<Group> group_of(const c10d::ProcessGroup* process_group) {
    std::shared_lock<std::shared_mutex> guard(watched_lock());
    const auto found = watched().find(process_group);
    /* Where the one that was watched is gone, another one may lie in its place. */
    return found == watched().end() || found->second.process_group.expired() ? nullptr : found->second.group;
}

/* Positions in OPS of pacehound/model/codes.py, by operator. */
const std::map<std::string, int>& operators() {
    static const auto* the = new std::map<std::string, int>{
        {"allreduce_", 1},
        {"allreduce_coalesced_", 1},
        {"allgather_", 2},
        {"_allgather_base_", 2},
        {"allgather_coalesced_", 2},
        {"allgather_into_tensor_coalesced_", 2},
        {"reduce_scatter_", 3},
        {"_reduce_scatter_base_", 3},
        {"reduce_scatter_tensor_coalesced_", 3},
        {"broadcast_", 4},
        {"reduce_", 5},
        {"alltoall_", 6},
        {"alltoall_base_", 6},
        {"gather_", 7},
        {"scatter_", 8},
        {"barrier", 9},
        {"send", 10},
        {"recv_", 11},
        {"recv_any_source_", 11},
    };
    return *the;
}

/* Where among the arguments of an operator stands what is told of it; -1: nowhere. */
struct Places {
    int op = 0;
    int group = -1, sent = -1, received = -1, root = -1, is_async = -1;
};

Places places_of(const std::string& name, const c10::FunctionSchema& schema) {
    static const std::set<std::string> sent{"tensors", "input_tensors", "input_tensor", "inputs", "input", "input_list"};
    static const std::set<std::string> received{"output_tensors", "output_tensor", "outputs", "output", "output_lists"};
    static const std::set<std::string> roots{"root_rank", "dst", "src"};
    Places places;
    places.op = operators().at(name);
    const auto& arguments = schema.arguments();
    for (size_t at = 0; at < arguments.size(); ++at) {
        const std::string& argument = arguments[at].name();
        if (argument == "process_group") places.group = int(at);
        if (argument == "async_op") places.is_async = int(at);
        if (sent.count(argument)) places.sent = int(at);
        if (received.count(argument)) places.received = int(at);
        if (roots.count(argument)) places.root = int(at);
    }
    return places;
}

std::unordered_map<std::string, Places>& places() {
    static auto* the = new std::unordered_map<std::string, Places>; /* by name; not written after it was filled */
    return *the;
}

void add_tensors(const c10::IValue& value, std::vector<at::Tensor>& tensors) {
    if (value.isTensor()) tensors.push_back(value.toTensor());
    else if (value.isTensorList()) {
        for (const at::Tensor& one : value.toTensorList()) tensors.push_back(one);
    } else if (value.isList()) {
        for (const c10::IValue& one : value.toListRef()) add_tensors(one, tensors);
    }
}

c10::intrusive_ptr<c10d::Work> work_in(const c10::IValue& result) {
    return result.isObject() ? result.toCustomClass<c10d::Work>() : nullptr;
}

void dispatched(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
    static std::atomic<int64_t> numbers{0};
    std::shared_ptr<Group> group;
    const int64_t number = numbers.fetch_add(1, std::memory_order_relaxed);
    guarded([&] {
        const Places& known = places().at(op.operator_name().name);
        const auto& schema = op.schema();
        const size_t first = stack->size() - schema.arguments().size();
        auto found = group_of((*stack)[first + known.group].toCustomClass<c10d::ProcessGroup>().get());
        if (!found) return;
        std::vector<at::Tensor> tensors;
        if (known.sent >= 0) add_tensors((*stack)[first + known.sent], tensors);
        if (tensors.empty() && known.received >= 0) add_tensors((*stack)[first + known.received], tensors);
        const int64_t root = known.root < 0 ? -1 : (*stack)[first + known.root].toInt();
        const bool is_async = known.is_async < 0 || (*stack)[first + known.is_async].toBool();
        before(found, {known.op, number, root, is_async, tensors});
        group = std::move(found);
    });
    op.redispatchBoxed(keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, c10::DispatchKey::BackendSelect),
                       stack);
    if (group) guarded([&] { after(number, stack->empty() ? nullptr : work_in(stack->back())); });
}

/* Once per process, at its first group; never taken back. */
void be_asked() {
    static torch::Library* library = nullptr;
    if (library) return;
    for (const auto& [name, _] : operators()) {
        const auto op = c10::Dispatcher::singleton().findSchema({"c10d::" + name, ""});
        if (op) places()["c10d::" + name] = places_of(name, op->schema());
    }
    library = new torch::Library(torch::Library::IMPL, "c10d", c10::DispatchKey::BackendSelect, __FILE__, __LINE__);
    for (const auto& [name, _] : operators()) {
        if (places().count("c10d::" + name))
            library->impl(name.c_str(), torch::CppFunction::makeFromBoxedFunction<&dispatched>());
    }
}

void watch(const c10::intrusive_ptr<c10d::ProcessGroup>& process_group, const std::shared_ptr<Group>& group) {
    be_asked();
    std::unique_lock<std::shared_mutex> guard(watched_lock());
    watched().insert_or_assign(process_group.get(),
                               Watched{c10::weak_intrusive_ptr<c10d::ProcessGroup>(process_group), group});
}

void unwatch(const c10::intrusive_ptr<c10d::ProcessGroup>& process_group) {
    std::unique_lock<std::shared_mutex> guard(watched_lock());
    watched().erase(process_group.get());
}

#endif

void attach(const c10::intrusive_ptr<c10d::ProcessGroup>& process_group, const std::string& handle,
            std::vector<int32_t> members, bool cpu_ends_by_future, std::string device_times, bool is_world) {
    auto group = std::make_shared<Group>();
    group->is_world = is_world;
    if (handle.size() != 16) throw std::invalid_argument("a handle has 16 bytes");
    memcpy(group->handle.data(), handle.data(), 16);
    group->members = std::move(members);
    group->cpu_ends_by_future = cpu_ends_by_future;
    group->device_times = std::move(device_times);
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
#ifdef PACEHOUND_DISPATCHED
        new (&watched_lock()) std::shared_mutex;
#endif
        new (&awaited()) std::list<Awaited>; /* the parent's, which goes on with them */
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
    module.def("settle", [](uint64_t now) {
        guarded([now] {
            if (expected) end(*std::exchange(expected, nullptr), PH_END_BOUND, now);
            end_what_is_over(now);
        });
    });
    module.def("stop", [] { is_on.store(false); });
    module.def("close", [] {
        std::lock_guard<std::mutex> guard(rings_lock());
        for (Ring* ring : rings()) ring->close();
    });
    module.def("error", [] {
        std::lock_guard<std::mutex> guard(error_lock());
        return error_text();
    });
}
