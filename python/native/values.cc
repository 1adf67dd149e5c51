// SPDX-License-Identifier: BSD-3-Clause
#include "python/native/values.h"

#include <ATen/core/Dict.h>
#include <ATen/core/List.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/jit/python/pybind.h>
#include <torch/csrc/jit/python/pybind_utils.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/python_parts.h"
#include "isopool/errors.h"
#include "python/native/unlocked.h"

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

// Values of the types that most arguments have, without the inference, which takes tens of
// microseconds. Nothing for other types, and for numbers and texts that no value can hold.
std::optional<at::IValue> simpleValue(py::handle object) {
  PyObject* raw = object.ptr();
  if (raw == Py_None) return at::IValue();
  if (THPVariable_CheckExact(raw)) return detached(at::IValue(THPVariable_Unpack(raw)));
  if (PyBool_Check(raw)) return at::IValue(raw == Py_True);
  if (PyFloat_CheckExact(raw)) return at::IValue(PyFloat_AS_DOUBLE(raw));
  if (PyLong_CheckExact(raw)) {
    int overflow = 0;
    const long long number = PyLong_AsLongLongAndOverflow(raw, &overflow);
    return overflow == 0 ? std::optional(at::IValue(static_cast<int64_t>(number))) : std::nullopt;
  }
  if (PyUnicode_CheckExact(raw)) {
    Py_ssize_t bytes = 0;
    if (const char* text = PyUnicode_AsUTF8AndSize(raw, &bytes)) {
      return at::IValue(std::string(text, static_cast<size_t>(bytes)));
    }
    PyErr_Clear();
  }
  return std::nullopt;
}

}  // namespace

at::IValue toValue(py::handle object) {
  if (auto simple = simpleValue(object)) return *std::move(simple);
  if (const std::string why = base::repetitionRefusal(object.ptr()); !why.empty()) throw Error(why);
  // libtorch_python does not export the inference itself, but this Python function calls it.
  const py::object inferred = py::module_::import("torch._C").attr("_jit_try_infer_type")(object);
  if (!inferred.attr("success")().cast<bool>()) {
    throw Error("Tracer cannot infer type of " + py::str(object).cast<std::string>() +
                "\n:" + inferred.attr("reason")().cast<std::string>());
  }
  return detached(torch::jit::toIValue(object, inferred.attr("type")().cast<c10::TypePtr>()));
}

std::vector<at::IValue> toValues(const py::tuple& args) {
  std::vector<at::IValue> values;
  values.reserve(args.size());
  for (const py::handle each : args) values.push_back(toValue(each));
  return values;
}

std::unordered_map<std::string, c10::IValue> toNamedValues(const py::dict& kwargs) {
  std::unordered_map<std::string, c10::IValue> values;
  for (const auto& [name, each] : kwargs) values.emplace(name.cast<std::string>(), toValue(each));
  return values;
}

py::object tensorOf(const py::object& buffer) {
  auto view = std::make_unique<Py_buffer>();
  if (PyObject_GetBuffer(buffer.ptr(), view.get(), PyBUF_SIMPLE) != 0)
    throw py::error_already_set();
  void* const bytes = view->buf;
  const auto size = static_cast<int64_t>(view->len);
  const auto release = [held = view.release()](void*) {
    if (isEnding()) return;
    const py::gil_scoped_acquire acquired;
    PyBuffer_Release(held);
    delete held;
  };
  // Python's memory may be constant: nothing writes to the tensor of an argument.
  return toObject(at::from_blob(bytes, {size}, release, at::TensorOptions(at::kByte)));
}

py::str toText(std::string_view bytes) {
  return py::reinterpret_steal<py::str>(PyUnicode_DecodeUTF8(
      bytes.data(), static_cast<Py_ssize_t>(bytes.size()), "backslashreplace"));
}

py::object toObject(at::IValue value) {
  try {
    return torch::jit::toPyObject(std::move(value));
  } catch (py::error_already_set& error) {
    if (!error.matches(PyExc_UnicodeDecodeError)) throw;
    throw Error(
        "the result has a string that is not UTF-8, so it can't become a Python str: return a "
        "tensor of dtype uint8 with these bytes");
  }
}

}  // namespace isopool::python
