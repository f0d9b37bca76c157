/* dispatched.h: calls of an older torch, seen where it dispatches them.
 *
 * As in dispatched_calls.py, which says why: a kernel under BackendSelect for each operator of c10d.
 */
#pragma once

#include <set>
#include <shared_mutex>
#include <unordered_map>

#include "calls.h"
#include "operators.h"

namespace {

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
    pass_on(op, keys, stack);
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

}  // namespace
