/* hooked.h: calls of a torch whose process groups have hooks (2.15). */
#pragma once

#include "calls.h"

namespace {

constexpr int64_t kHookId = 0x5041434548;

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

}  // namespace
