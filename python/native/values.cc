// SPDX-License-Identifier: BSD-3-Clause
#include "python/native/values.h"

#include <torch/csrc/jit/python/pybind.h>
#include <torch/csrc/jit/python/pybind_utils.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "isopool/errors.h"
#include "python/native/arguments.h"
#include "python/native/python_entry.h"

namespace isopool::python {

namespace py = pybind11;

namespace {

// The name of an argument is a str of Python, which may have lone surrogates.
std::string nameOf(py::handle name) {
  Py_ssize_t size = 0;
  const char* bytes = PyUnicode_AsUTF8AndSize(name.ptr(), &size);
  if (bytes == nullptr) {
    PyErr_Clear();
    throw Error(
        "the name of an argument has characters (lone surrogates) that UTF-8 can't express: pass "
        "it by another name");
  }
  return {bytes, static_cast<size_t>(size)};
}

}  // namespace

at::IValue toValue(py::handle object, size_t index) { return argumentValue(object, index); }

std::pair<std::string, at::IValue> toNamedValue(py::handle name, py::handle object) {
  return {nameOf(name), argumentValue(object, 0, name)};
}

std::vector<at::IValue> toValues(const py::tuple& args) {
  std::vector<at::IValue> values;
  values.reserve(args.size());
  for (const py::handle each : args) values.push_back(toValue(each, values.size()));
  return values;
}

std::unordered_map<std::string, c10::IValue> toNamedValues(const py::dict& kwargs) {
  std::unordered_map<std::string, c10::IValue> values;
  for (const auto& [name, each] : kwargs) values.insert(toNamedValue(name, each));
  return values;
}

py::object tensorOf(const py::object& buffer) {
  auto view = std::make_unique<Py_buffer>();
  if (PyObject_GetBuffer(buffer.ptr(), view.get(), PyBUF_SIMPLE) != 0)
    throw py::error_already_set();
  void* const bytes = view->buf;
  const auto size = static_cast<int64_t>(view->len);
  const auto release = [held = view.release()](void*) {
    const PythonEntry entry;
    if (!entry) return;
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
