// SPDX-License-Identifier: BSD-3-Clause
#include "worker/backends/script_weights.h"

#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/python/module_python.h>

namespace isopool::worker {

namespace {

void shareTensor(const at::Tensor& tensor, WeightSharing& sharing) {
  if (tensor.defined() && tensor.has_storage()) sharing.share(tensor.storage());
}

void shareInside(const at::IValue& value, WeightSharing& sharing) {
  at::IValue::HashAliasedIValues inside;
  value.getSubValues(inside);
  for (const at::IValue& each : inside) {
    if (each.isTensor()) shareTensor(each.toTensor(), sharing);
  }
}

void shareConstants(const torch::jit::Block& block, WeightSharing& sharing) {
  for (const torch::jit::Node* node : block.nodes()) {
    if (node->kind() == c10::prim::Constant && node->hasAttribute(c10::attr::value)) {
      switch (node->kindOf(c10::attr::value)) {
        case torch::jit::AttributeKind::t:
          shareTensor(node->t(c10::attr::value), sharing);
          break;
        case torch::jit::AttributeKind::ts:
          for (const at::Tensor& each : node->ts(c10::attr::value)) shareTensor(each, sharing);
          break;
        case torch::jit::AttributeKind::ival:
          shareInside(node->ival(c10::attr::value), sharing);
          break;
        default:
          break;
      }
    }
    for (const torch::jit::Block* inner : node->blocks()) shareConstants(*inner, sharing);
  }
}

}  // namespace

bool shareScriptWeights(PyObject* module, WeightSharing& sharing) {
  const auto script = torch::jit::as_module(py::handle(module));
  if (!script) return false;
  shareInside(script->_ivalue(), sharing);
  for (const torch::jit::Module& each : script->modules()) {
    for (const torch::jit::Method& method : each.get_methods()) {
      if (torch::jit::tryToGraphFunction(method.function()) == nullptr) continue;
      shareConstants(*method.graph()->block(), sharing);
    }
  }
  return true;
}

}  // namespace isopool::worker
