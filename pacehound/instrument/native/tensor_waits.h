/* tensor_waits.h: ends of calls without a future that torch issues for itself, as tensor_waits.py.
 *
 * A functional collective (sequence parallel, compiled graphs) returns the tensor that its call will fill, and whoever
 * needs it waits for that tensor. So such a call ends with the wait for its result.
 */
#pragma once

#include <unordered_map>
#include <utility>

#include "calls.h"
#include "operators.h"

namespace {

/* A call to be waited for, and how many steps had ended when it was issued. */
struct AwaitedByTensor {
    std::shared_ptr<Call> call;
    uint64_t issued_in = 0;
};
uint64_t steps_ended = 0; /* under by_tensor_lock() */
std::mutex& by_tensor_lock() {
    static std::mutex* the = new std::mutex;
    return *the;
}
std::unordered_map<const void*, AwaitedByTensor>& by_tensor() { /* by the memory of a result */
    static auto* the = new std::unordered_map<const void*, AwaitedByTensor>;
    return *the;
}

const void* memory_of(const at::Tensor& tensor) {
    return tensor.has_storage() ? tensor.storage().unsafeGetStorageImpl() : nullptr;
}

using Calls = std::vector<std::shared_ptr<Call>>;

/* Each call has its end written once, though there may be several tensors of it. */
void end_each(const Calls& calls, uint8_t flags) {
    for (const auto& call : calls) {
        {
            std::lock_guard<std::mutex> guard(by_tensor_lock());
            if (std::exchange(call->is_over, true)) continue;
        }
        end(*call, flags | PH_END_BOUND);
    }
}

/* At the end of a step, or of all: what was issued before the last one, and not waited for, nobody waits for. (Torch keeps
 * its Work, and that its result.) */
void end_what_is_dropped(bool is_the_last) {
    Calls dropped;
    {
        std::lock_guard<std::mutex> guard(by_tensor_lock());
        for (auto at = by_tensor().begin(); at != by_tensor().end();) {
            if (is_the_last || at->second.issued_in < steps_ended) {
                dropped.push_back(std::move(at->second.call));
                at = by_tensor().erase(at);
            } else {
                ++at;
            }
        }
        ++steps_ended;
    }
    end_each(dropped, 0);
}

void issue_for_tensors(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
    pass_on(op, keys, stack);
    if (!expected) return;
    guarded([stack] {
        std::vector<at::Tensor> results;
        add_tensors(stack->back(), results);
        if (results.empty()) return;
        const std::shared_ptr<Call> call = std::exchange(expected, nullptr);
        Calls before; /* into the same memory, and not waited for */
        {
            std::lock_guard<std::mutex> guard(by_tensor_lock());
            for (const at::Tensor& result : results) {
                const void* memory = memory_of(result);
                if (auto taken = by_tensor().extract(memory)) before.push_back(std::move(taken.mapped().call));
                if (memory) by_tensor().emplace(memory, AwaitedByTensor{call, steps_ended});
            }
        }
        end_each(before, 0);
    });
}

void wait_for_tensors(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
    Calls calls;
    guarded([&calls, stack] {
        {
            std::lock_guard<std::mutex> guard(by_tensor_lock());
            if (by_tensor().empty()) return;
        }
        std::vector<at::Tensor> results;
        add_tensors(stack->back(), results);
        std::lock_guard<std::mutex> guard(by_tensor_lock());
        for (const at::Tensor& result : results) {
            if (auto taken = by_tensor().extract(memory_of(result))) calls.push_back(std::move(taken.mapped().call));
        }
    });
    try {
        pass_on(op, keys, stack);
    } catch (...) {
        guarded([&calls] { end_each(calls, PH_FAILED); });
        throw;
    }
    guarded([&calls] { end_each(calls, 0); });
}

/* Once per process, at its first group whose calls end by futures; never taken back. */
void be_told_of_tensor_waits() {
    static torch::Library* library = nullptr;
    if (library) return;
    library = new torch::Library(torch::Library::IMPL, "_c10d_functional", c10::DispatchKey::BackendSelect, __FILE__,
                                 __LINE__);
    for (const char* name : {"reduce_scatter_tensor", "reduce_scatter_tensor_coalesced", "reduce_scatter_tensor_out"}) {
        if (there_is(std::string("_c10d_functional::") + name))
            library->impl(name, torch::CppFunction::makeFromBoxedFunction<&issue_for_tensors>());
    }
    for (const char* name : {"wait_tensor", "wait_tensors"}) {
        if (there_is(std::string("_c10d_functional::") + name))
            library->impl(name, torch::CppFunction::makeFromBoxedFunction<&wait_for_tensors>());
    }
}

}  // namespace
