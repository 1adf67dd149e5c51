// SPDX-License-Identifier: BSD-3-Clause
#include "python/native/values.h"

#include <ATen/core/Dict.h>
#include <ATen/core/List.h>
#include <torch/csrc/jit/python/pybind.h>
#include <torch/csrc/jit/python/pybind_utils.h>

#include <string>
#include <utility>
#include <vector>

#include "isopool/errors.h"

namespace isopool::python {

namespace py = pybind11;

namespace {

at::IValue detached(const at::IValue& value) {
  if (value.isTensor()) {
    const at::Tensor& tensor = value.toTensor();
    return tensor.defined() && tensor.requires_grad() ? tensor.detach() : tensor;
  }
  if (value.isTuple()) {
    std::vector<at::IValue> elements;
    for (const at::IValue& each : value.toTupleRef().elements()) elements.push_back(detached(each));
    return c10::ivalue::Tuple::create(std::move(elements));
  }
  if (value.isList()) {
    const auto list = value.toList();
    c10::impl::GenericList elements(list.elementType());
    for (const at::IValue& each : value.toListRef()) elements.push_back(detached(each));
    return elements;
  }
  if (value.isGenericDict()) {
    const auto dict = value.toGenericDict();
    c10::impl::GenericDict entries(dict.keyType(), dict.valueType());
    for (const auto& entry : dict) entries.insert(entry.key(), detached(entry.value()));
    return entries;
  }
  return value;
}

}  // namespace

at::IValue toValue(py::handle object) {
  // libtorch_python does not export the inference itself, but this Python function calls it.
  const py::object inferred = py::module_::import("torch._C").attr("_jit_try_infer_type")(object);
  if (!inferred.attr("success")().cast<bool>()) {
    throw Error("Tracer cannot infer type of " + py::str(object).cast<std::string>() +
                "\n:" + inferred.attr("reason")().cast<std::string>());
  }
  return detached(torch::jit::toIValue(object, inferred.attr("type")().cast<c10::TypePtr>()));
}

py::object toObject(at::IValue value) { return torch::jit::toPyObject(std::move(value)); }

}  // namespace isopool::python
