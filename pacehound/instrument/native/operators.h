/* operators.h: kernels under BackendSelect, which come before torch chooses one by the tensors' device. */
#pragma once

#include <torch/library.h>

#include <vector>

namespace {

void pass_on(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
    op.redispatchBoxed(keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, c10::DispatchKey::BackendSelect),
                       stack);
}

void add_tensors(const c10::IValue& value, std::vector<at::Tensor>& tensors) {
    if (value.isTensor()) tensors.push_back(value.toTensor());
    else if (value.isTensorList()) {
        for (const at::Tensor& one : value.toTensorList()) tensors.push_back(one);
    } else if (value.isList()) {
        for (const c10::IValue& one : value.toListRef()) add_tensors(one, tensors);
    }
}

bool there_is(const std::string& name) { return c10::Dispatcher::singleton().findSchema({name, ""}).has_value(); }

}  // namespace
