// SPDX-License-Identifier: BSD-3-Clause
// The tracer's own inference is not used: it recurses as deep as the object is nested, compiles the
// classes of objects that it does not know, and raises exceptions of several kinds. A class of the
// object is asked for nothing, so that no code of it runs, and an object is a tensor only if its
// type is: one whose __class__ says so, such as a mock, has another layout in memory.
#include "python/native/arguments.h"

#include <ATen/core/Dict.h>
#include <ATen/core/List.h>
#include <ATen/core/jit_type.h>
#include <torch/csrc/Device.h>
#include <torch/csrc/Dtype.h>
#include <torch/csrc/Layout.h>
#include <torch/csrc/QScheme.h>
#include <torch/csrc/autograd/python_variable.h>

#include <array>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/python_parts.h"
#include "isopool/errors.h"

namespace isopool::python {

namespace py = pybind11;

namespace {

/// The deepest nesting that a call can pass.
constexpr int kMaxNesting = 64;
constexpr size_t kMaxShownCharacters = 100;

struct TypedValue {
  at::IValue value;
  c10::TypePtr type;
};

/// Where an object is in the arguments. It is formatted as text only for a refusal.
struct Place {
  const Place* container = nullptr;  // null: an argument
  PyObject* key = nullptr;           // of a dict, or an argument's name; null: by index
  Py_ssize_t index = 0;
  bool isKey = false;  // the object is a key of the dict, not its value
};

std::string shortened(std::string text) {
  if (text.size() <= kMaxShownCharacters) return text;
  return text.substr(0, kMaxShownCharacters) + "...";
}

std::string typeOf(PyObject* object) { return shortened(Py_TYPE(object)->tp_name); }

// repr() of a number or a text: it has no characters that a log does not show.
std::string shownText(PyObject* text) {
  const auto shown = py::reinterpret_steal<py::object>(PyObject_Repr(text));
  Py_ssize_t size = 0;
  const char* bytes = shown ? PyUnicode_AsUTF8AndSize(shown.ptr(), &size) : nullptr;
  if (bytes != nullptr) return shortened(std::string(bytes, static_cast<size_t>(size)));
  PyErr_Clear();
  return "a " + typeOf(text);
}

// Only of types whose repr() is not the program's.
std::string shownKey(PyObject* key) {
  const bool isPlain = PyUnicode_CheckExact(key) || PyLong_CheckExact(key) ||
                       PyFloat_CheckExact(key) || PyBool_Check(key) || PyComplex_CheckExact(key);
  return isPlain ? shownText(key) : "a " + typeOf(key);
}

std::string pathOf(const Place& place) {
  if (place.isKey) return "a key of " + pathOf(*place.container);
  const char* const named = place.key != nullptr ? "kwargs" : "args";
  return (place.container != nullptr ? pathOf(*place.container) : named) + "[" +
         (place.key != nullptr ? shownKey(place.key) : std::to_string(place.index)) + "]";
}

[[noreturn]] void refuse(const Place& place, PyObject* object, const std::string& reason) {
  throw Error(pathOf(place) + " (of type " + typeOf(object) + ") can't be passed: " + reason);
}

/// What to do with an object of a type that no value can hold.
std::string adviceFor(PyObject* object) {
  constexpr std::string_view kNumpy = "numpy.";
  constexpr const char* kElse =
      "pass tensors, numbers, bools, texts, None, devices, and tuples, lists and dicts of them, or "
      "use an isopool.Executor, whose arguments are pickled";
  static constexpr std::array<std::pair<std::string_view, const char*>, 5> kAdvice{{
      {"numpy.ndarray", "pass torch.from_numpy() of it"},
      {"bytearray", "pass a tensor of dtype uint8 with these bytes"},
      {"memoryview", "pass a tensor of dtype uint8 with these bytes"},
      {"torch._C.Generator", "pass a seed, and make the generator in the model"},
      {"torch.storage.UntypedStorage", "pass a tensor that lies in it"},
  }};
  const std::string_view type = Py_TYPE(object)->tp_name;
  for (const auto& [name, advice] : kAdvice) {
    if (type == name) return advice;
  }
  if (type.substr(0, kNumpy.size()) == kNumpy) return "pass its item(), a number of Python";
  if (PyAnySet_Check(object) || PyRange_Check(object) || PyIter_Check(object) != 0 ||
      PyDictViewSet_Check(object) || PyDictValues_Check(object)) {
    return "pass a list or a tensor of its items";
  }
  return kElse;
}

std::string differ(const char* what, const c10::Type& one, const c10::Type& other,
                   const char* advice) {
  return std::string(what) + " have different types, " + shortened(one.repr_str()) + " and " +
         shortened(other.repr_str()) + ": " + advice;
}

/// The common type of both by the tracer's rules; null if there is none.
c10::TypePtr unified(const c10::TypePtr& known, const c10::TypePtr& next) {
  if (!known || known.get() == next.get()) return next;
  const auto both = c10::unifyTypes(known, next);
  return both ? *both : nullptr;
}

bool isDictKeyType(const c10::Type& type) {
  switch (type.kind()) {
    case c10::TypeKind::IntType:
    case c10::TypeKind::StringType:
    case c10::TypeKind::FloatType:
    case c10::TypeKind::ComplexType:
    case c10::TypeKind::BoolType:
    case c10::TypeKind::TensorType:
    case c10::TypeKind::DeviceObjType:
      return true;
    default:
      return false;
  }
}

bool isTensor(PyObject* object) {
  return PyType_IsSubtype(Py_TYPE(object), reinterpret_cast<PyTypeObject*>(THPVariableClass)) != 0;
}

at::Tensor detached(PyObject* object) {
  const at::Tensor& tensor = THPVariable_Unpack(object);
  return tensor.defined() && tensor.requires_grad() ? tensor.detach() : tensor;
}

int64_t integerOf(PyObject* object, const Place& place) {
  int overflow = 0;
  const long long number = PyLong_AsLongLongAndOverflow(object, &overflow);
  if (overflow != 0) {
    refuse(place, object, "the integer does not fit into 64 bits: pass its str(), or a float");
  }
  return number;
}

std::string textOf(PyObject* object, const Place& place) {
  Py_ssize_t size = 0;
  const char* bytes = PyUnicode_AsUTF8AndSize(object, &size);
  if (bytes == nullptr) {
    PyErr_Clear();
    refuse(place, object,
           "it has characters (lone surrogates) that UTF-8 can't express: encode it, and pass a "
           "tensor of dtype uint8 with these bytes");
  }
  return {bytes, static_cast<size_t>(size)};
}

std::string textOfBytes(PyObject* object, const Place& place) {
  const char* bytes = PyBytes_AS_STRING(object);
  const Py_ssize_t size = PyBytes_GET_SIZE(object);
  const auto decoded =
      py::reinterpret_steal<py::object>(PyUnicode_DecodeUTF8(bytes, size, nullptr));
  if (!decoded) {
    PyErr_Clear();
    refuse(place, object,
           "bytes become a text, and these are not UTF-8: pass a tensor of dtype uint8 with these "
           "bytes");
  }
  return {bytes, static_cast<size_t>(size)};
}

/// The types are checked in the tracer's order, those that most arguments have first.
std::optional<TypedValue> simpleValue(PyObject* object, const Place& place) {
  if (isTensor(object)) return TypedValue{detached(object), c10::TensorType::get()};
  if (object == Py_None) return TypedValue{at::IValue(), c10::NoneType::get()};
  if (PyBool_Check(object)) return TypedValue{object == Py_True, c10::BoolType::get()};
  if (PyLong_Check(object)) return TypedValue{integerOf(object, place), c10::IntType::get()};
  if (PyFloat_Check(object)) return TypedValue{PyFloat_AS_DOUBLE(object), c10::FloatType::get()};
  if (PyComplex_CheckExact(object)) {
    const Py_complex number = PyComplex_AsCComplex(object);
    return TypedValue{c10::complex<double>(number.real, number.imag), c10::ComplexType::get()};
  }
  if (PyUnicode_Check(object)) return TypedValue{textOf(object, place), c10::StringType::get()};
  if (PyBytes_Check(object)) return TypedValue{textOfBytes(object, place), c10::StringType::get()};
  if (THPDevice_Check(object)) {
    return TypedValue{reinterpret_cast<THPDevice*>(object)->device, c10::DeviceObjType::get()};
  }
  const auto number = [](auto kind) {
    return TypedValue{static_cast<int64_t>(kind), c10::IntType::get()};
  };
  if (THPDtype_Check(object)) return number(reinterpret_cast<THPDtype*>(object)->scalar_type);
  if (THPLayout_Check(object)) return number(reinterpret_cast<THPLayout*>(object)->layout);
  if (THPQScheme_Check(object)) return number(reinterpret_cast<THPQScheme*>(object)->qscheme);
  return std::nullopt;
}

TypedValue inferred(PyObject* object, const Place& place, int depth);

TypedValue inferredTuple(PyObject* tuple, const Place& place, int depth) {
  const Py_ssize_t size = PyTuple_GET_SIZE(tuple);
  std::vector<at::IValue> values;
  std::vector<c10::TypePtr> types;
  values.reserve(static_cast<size_t>(size));
  types.reserve(static_cast<size_t>(size));
  for (Py_ssize_t i = 0; i < size; ++i) {
    TypedValue element = inferred(PyTuple_GET_ITEM(tuple, i), {&place, nullptr, i}, depth + 1);
    values.push_back(std::move(element.value));
    types.push_back(std::move(element.type));
  }
  return {c10::ivalue::Tuple::create(std::move(values)), c10::TupleType::create(std::move(types))};
}

TypedValue inferredList(PyObject* list, const Place& place, int depth) {
  const Py_ssize_t size = PyList_GET_SIZE(list);
  if (size == 0) {
    refuse(place, list, "an empty list has no type of elements: pass an empty tuple, or None");
  }
  std::vector<at::IValue> values;
  values.reserve(static_cast<size_t>(size));
  c10::TypePtr type;
  for (Py_ssize_t i = 0; i < size; ++i) {
    TypedValue element = inferred(PyList_GET_ITEM(list, i), {&place, nullptr, i}, depth + 1);
    const c10::TypePtr both = unified(type, element.type);
    if (!both) refuse(place, list, differ("its elements", *type, *element.type, "pass a tuple"));
    type = both;
    values.push_back(std::move(element.value));
  }
  c10::impl::GenericList result(type);
  result.reserve(values.size());
  for (at::IValue& value : values) result.push_back(std::move(value));
  return {std::move(result), c10::ListType::create(type)};
}

TypedValue inferredDict(PyObject* dict, const Place& place, int depth) {
  if (PyDict_GET_SIZE(dict) == 0) {
    refuse(place, dict, "an empty dict has no types of keys and values: pass None");
  }
  std::vector<std::pair<at::IValue, at::IValue>> entries;
  entries.reserve(static_cast<size_t>(PyDict_GET_SIZE(dict)));
  constexpr const char* kAsPairs = "pass tuple() of its items()";
  c10::TypePtr keyType;
  c10::TypePtr valueType;
  PyObject* key = nullptr;
  PyObject* value = nullptr;
  Py_ssize_t position = 0;
  while (PyDict_Next(dict, &position, &key, &value) != 0) {
    const Place keyPlace{&place, key, 0, /*isKey=*/true};
    std::optional<TypedValue> entryKey = simpleValue(key, keyPlace);
    if (!entryKey || !isDictKeyType(*entryKey->type)) {
      refuse(keyPlace, key,
             "keys can be texts, ints, floats, complex numbers, bools, tensors and devices: pass "
             "the keys and the values as two lists");
    }
    const c10::TypePtr bothKeys = unified(keyType, entryKey->type);
    if (!bothKeys) refuse(place, dict, differ("its keys", *keyType, *entryKey->type, kAsPairs));
    keyType = bothKeys;
    TypedValue entryValue = inferred(value, {&place, key}, depth + 1);
    const c10::TypePtr bothValues = unified(valueType, entryValue.type);
    if (!bothValues)
      refuse(place, dict, differ("its values", *valueType, *entryValue.type, kAsPairs));
    valueType = bothValues;
    entries.emplace_back(std::move(entryKey->value), std::move(entryValue.value));
  }
  c10::impl::GenericDict result(keyType, valueType);
  result.reserve(entries.size());
  for (auto& [entryKey, entryValue] : entries) {
    result.insert_or_assign(std::move(entryKey), std::move(entryValue));
  }
  return {std::move(result), c10::DictType::create(keyType, valueType)};
}

TypedValue inferred(PyObject* object, const Place& place, int depth) {
  if (auto simple = simpleValue(object, place)) return *std::move(simple);
  const bool hasParts = base::PythonParts::isContainer(object);
  if (hasParts && depth >= kMaxNesting) {
    // Without the path: that of one so deep would be too long to read.
    const Place* argument = &place;
    while (argument->container != nullptr) argument = argument->container;
    throw Error(pathOf(*argument) +
                " is nested more than 64 deep or contains itself, so it can't be passed: pass its "
                "parts one by one");
  }
  if (PyTuple_Check(object)) return inferredTuple(object, place, depth);
  if (PyDict_Check(object)) return inferredDict(object, place, depth);
  if (PyList_Check(object)) return inferredList(object, place, depth);
  refuse(place, object, adviceFor(object));
}

}  // namespace

at::IValue argumentValue(py::handle object, size_t index, py::handle name) {
  const Place place{nullptr, name.ptr(), static_cast<Py_ssize_t>(index)};
  if (auto simple = simpleValue(object.ptr(), place)) return std::move(simple->value);
  if (const std::string why = base::repetitionRefusal(object.ptr()); !why.empty()) {
    throw Error(pathOf(place) + ": " + why);
  }
  return inferred(object.ptr(), place, 0).value;
}

}  // namespace isopool::python
