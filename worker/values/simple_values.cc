// SPDX-License-Identifier: BSD-3-Clause
#include "worker/values/simple_values.h"

#include <torch/csrc/Device.h>
#include <torch/csrc/Dtype.h>
#include <torch/csrc/Layout.h>
#include <torch/csrc/QScheme.h>
#include <torch/csrc/autograd/python_variable.h>

namespace isopool::worker {

namespace {

std::string utf8Of(PyObject* object) {
  Py_ssize_t size = 0;
  const char* bytes = PyUnicode_AsUTF8AndSize(object, &size);
  if (bytes == nullptr) {
    PyErr_Clear();
    throw NotInferable("the string has characters (lone surrogates) that UTF-8 can't express");
  }
  return {bytes, static_cast<size_t>(size)};
}

int64_t integerOf(PyObject* object) {
  const long long value = PyLong_AsLongLong(object);
  if (value == -1 && PyErr_Occurred() != nullptr) {
    PyErr_Clear();
    throw NotInferable("the integer does not fit into 64 bits");
  }
  return value;
}

}  // namespace

bool isTensor(PyObject* object) {
  return PyType_IsSubtype(Py_TYPE(object), reinterpret_cast<PyTypeObject*>(THPVariableClass)) != 0;
}

at::Tensor detached(PyObject* object) {
  const at::Tensor& tensor = THPVariable_Unpack(object);
  return tensor.requires_grad() ? tensor.detach() : tensor;
}

c10::TypePtr unified(const c10::TypePtr& known, const c10::TypePtr& next) {
  if (!known) return next;
  if (known.get() == next.get()) return known;
  const auto both = c10::unifyTypes(known, next);
  return both ? *both : nullptr;
}

// Checks the types in the tracer's order.
std::optional<TypedValue> simpleValue(PyObject* object) {
  if (isTensor(object)) return TypedValue{detached(object), c10::TensorType::get()};
  if (object == Py_None) return TypedValue{at::IValue(), c10::NoneType::get()};
  if (PyBool_Check(object)) return TypedValue{object == Py_True, c10::BoolType::get()};
  if (PyLong_Check(object)) return TypedValue{integerOf(object), c10::IntType::get()};
  if (PyFloat_Check(object)) return TypedValue{PyFloat_AS_DOUBLE(object), c10::FloatType::get()};
  if (PyComplex_CheckExact(object)) {
    const Py_complex number = PyComplex_AsCComplex(object);
    return TypedValue{c10::complex<double>(number.real, number.imag), c10::ComplexType::get()};
  }
  if (PyBytes_Check(object)) {
    return TypedValue{
        std::string(PyBytes_AS_STRING(object), static_cast<size_t>(PyBytes_GET_SIZE(object))),
        c10::StringType::get()};
  }
  if (PyUnicode_Check(object)) return TypedValue{utf8Of(object), c10::StringType::get()};
  if (THPDevice_Check(object)) {
    return TypedValue{reinterpret_cast<THPDevice*>(object)->device, c10::DeviceObjType::get()};
  }
  if (THPDtype_Check(object)) {
    return TypedValue{static_cast<int64_t>(reinterpret_cast<THPDtype*>(object)->scalar_type),
                      c10::IntType::get()};
  }
  if (THPLayout_Check(object)) {
    return TypedValue{static_cast<int64_t>(reinterpret_cast<THPLayout*>(object)->layout),
                      c10::IntType::get()};
  }
  if (THPQScheme_Check(object)) {
    return TypedValue{static_cast<int64_t>(reinterpret_cast<THPQScheme*>(object)->qscheme),
                      c10::IntType::get()};
  }
  return std::nullopt;
}

}  // namespace isopool::worker
