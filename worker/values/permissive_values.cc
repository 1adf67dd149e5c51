// SPDX-License-Identifier: BSD-3-Clause
#include "worker/values/permissive_values.h"

#include <ATen/Functions.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>

#include <cstring>
#include <string>
#include <unordered_set>
#include <vector>

#include "base/python_parts.h"
#include "ipc/tensor/dict_builder.h"
#include "ipc/tensor/payload_types.h"
#include "ipc/tensor/value_codec.h"
#include "worker/python/interpreter.h"
#include "worker/python/py_ref.h"
#include "worker/python/python_errors.h"
#include "worker/values/simple_values.h"

namespace isopool::worker {

namespace {

constexpr size_t kMaxShownKey = 100;
constexpr size_t kMostPlainAgain = size_t{1} << 20;

// The position of an element in the result. It is formatted as text only for a refusal.
struct Place {
  const Place* container = nullptr;
  PyObject* key = nullptr;  // of a dict; null: by index
  Py_ssize_t index = 0;
  bool isKey = false;  // the element is the key itself, not its value
};

std::string shownKey(PyObject* key) {
  const PyRef text = PyRef::steal(PyUnicode_Check(key) ? PyObject_Str(key) : PyObject_Repr(key));
  const char* bytes = text ? PyUnicode_AsUTF8(text.get()) : nullptr;
  if (bytes == nullptr) {
    PyErr_Clear();
    return std::string("a ") + Py_TYPE(key)->tp_name;
  }
  std::string shown(bytes);
  if (shown.size() > kMaxShownKey) shown = shown.substr(0, kMaxShownKey) + "...";
  return PyUnicode_Check(key) ? '"' + shown + '"' : shown;
}

std::string pathOf(const Place& place) {
  if (place.container == nullptr) return "result";
  if (place.isKey) return "key " + shownKey(place.key) + " of " + pathOf(*place.container);
  return pathOf(*place.container) + "[" +
         (place.key != nullptr ? shownKey(place.key) : std::to_string(place.index)) + "]";
}

[[noreturn]] void refuse(const Place& place, const std::string& reason) {
  throw ipc::ValueError(pathOf(place) + " can't become a value: " + reason);
}

// The value of one result.
class Conversion {
 public:
  explicit Conversion(PyObject* root) : check_(root) {}
  TypedValue convert(PyObject* object, const Place& place, int depth);

 private:
  TypedValue convertList(PyObject* list, const Place& place, int depth);
  TypedValue convertTuple(PyObject* tuple, const Place& place, int depth);
  TypedValue convertDict(PyObject* dict, const Place& place, int depth);
  PyRef plainOf(PyObject* object, const Place& place);

  base::PythonRepetitionCheck check_;
  std::unordered_set<PyObject*> plain_;  // objects that plainOf() has replaced
  size_t plainAgain_ = 0;                // how often it replaced one of them again
};

// Widens `type` to the common type with `next`; Any if they have none.
void widen(c10::TypePtr& type, const c10::TypePtr& next) {
  if (type && type->kind() == c10::TypeKind::AnyType) return;
  type = unified(type, next);
  if (!type) type = c10::AnyType::get();
}

TypedValue Conversion::convertList(PyObject* list, const Place& place, int depth) {
  std::vector<at::IValue> values;
  values.reserve(static_cast<size_t>(PyList_GET_SIZE(list)));
  c10::TypePtr type;
  // The size is read each time: user code may run and change the list.
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list); ++i) {
    const PyRef element = PyRef::share(PyList_GET_ITEM(list, i));
    TypedValue converted = convert(element.get(), {&place, nullptr, i}, depth + 1);
    widen(type, converted.type);
    values.push_back(std::move(converted.value));
  }
  if (!type) type = c10::AnyType::get();
  c10::impl::GenericList result(type);
  result.reserve(values.size());
  for (at::IValue& value : values) result.push_back(std::move(value));
  return {std::move(result), c10::ListType::create(type)};
}

TypedValue Conversion::convertTuple(PyObject* tuple, const Place& place, int depth) {
  std::vector<at::IValue> values;
  std::vector<c10::TypePtr> types;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); ++i) {
    TypedValue element = convert(PyTuple_GET_ITEM(tuple, i), {&place, nullptr, i}, depth + 1);
    values.push_back(std::move(element.value));
    types.push_back(std::move(element.type));
  }
  return {c10::ivalue::Tuple::create(std::move(values)), c10::TupleType::create(std::move(types))};
}

TypedValue Conversion::convertDict(PyObject* dict, const Place& place, int depth) {
  std::vector<std::pair<at::IValue, at::IValue>> entries;
  c10::TypePtr keyType;
  c10::TypePtr valueType;
  // A copy, because user code may run and change the dict.
  const PyRef items = PyRef::steal(PyDict_Items(dict));
  if (!items) throw python_error();
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(items.get()); ++i) {
    PyObject* item = PyList_GET_ITEM(items.get(), i);
    PyObject* key = PyTuple_GET_ITEM(item, 0);
    const Place keyPlace{&place, key, 0, /*isKey=*/true};
    TypedValue entryKey = convert(key, keyPlace, depth + 1);
    if (!ipc::isDictKey(entryKey.value) || PyBytes_Check(key)) {
      refuse(keyPlace, "a dict's keys can be texts, numbers, bools, tensors and devices");
    }
    TypedValue entryValue = convert(PyTuple_GET_ITEM(item, 1), {&place, key}, depth + 1);
    widen(keyType, entryKey.type);
    widen(valueType, entryValue.type);
    entries.emplace_back(std::move(entryKey.value), std::move(entryValue.value));
  }
  if (!keyType) keyType = valueType = c10::AnyType::get();
  // The common type may be one that a dict can't have for its keys, such as an optional type.
  if (!ipc::isDictKeyType(*keyType)) keyType = c10::AnyType::get();
  ipc::DictBuilder result(keyType, valueType, entries.size());
  for (auto& [key, value] : entries) {
    if (!result.set(std::move(key), std::move(value))) {
      refuse(place, "two of its keys become the same value");
    }
  }
  return {result.take(), c10::DictType::create(keyType, valueType)};
}

TypedValue bytesAsTensor(PyObject* bytes) {
  const Py_ssize_t size = PyBytes_GET_SIZE(bytes);
  at::Tensor tensor = at::empty({size}, at::kByte);
  if (size > 0) {
    std::memcpy(tensor.mutable_data_ptr(), PyBytes_AS_STRING(bytes), static_cast<size_t>(size));
  }
  return {std::move(tensor), c10::TensorType::get()};
}

// A simpler Python object in place of one that has no counterpart as a value.
PyRef Conversion::plainOf(PyObject* object, const Place& place) {
  // The check does not see the parts of such objects.
  if (Py_REFCNT(object) > 1 && !plain_.insert(object).second && ++plainAgain_ > kMostPlainAgain) {
    base::Repetition many;
    many.repeated = base::Repetition::kMost + 1;
    refuse(Place(), many.refusal());
  }
  static PyObject* const plain = workerFunction("values", "plain").release();
  PyRef result = plain == nullptr ? PyRef() : PyRef::steal(PyObject_CallOneArg(plain, object));
  if (!result) refuse(place, takePythonError().message);
  return result;
}

TypedValue Conversion::convert(PyObject* object, const Place& place, int depth) {
  if (const auto why = check_.refusalBefore(object); !why.empty()) refuse(Place(), why);
  if (depth > kMaxNesting) refuse(place, "it is nested too deeply, or holds itself");
  if (PyBytes_Check(object)) return bytesAsTensor(object);
  if (PyComplex_Check(object)) {
    const Py_complex number = PyComplex_AsCComplex(object);
    return {c10::complex<double>(number.real, number.imag), c10::ComplexType::get()};
  }
  try {
    if (auto simple = simpleValue(object)) return std::move(*simple);
  } catch (const NotInferable& error) {
    refuse(place, error.reason());
  } catch (python_error&) {
    PyErr_Clear();
    refuse(place, "its class raises an exception when its type is checked");
  }
  if (PyTuple_Check(object)) return convertTuple(object, place, depth);
  if (PyDict_CheckExact(object)) return convertDict(object, place, depth);
  if (PyList_Check(object)) return convertList(object, place, depth);
  const PyRef plain = plainOf(object, place);
  return convert(plain.get(), place, depth + 1);
}

}  // namespace

at::IValue fromPythonPermissive(PyObject* object) {
  if (THPVariable_CheckExact(object)) return detached(object);
  try {
    return Conversion(object).convert(object, {}, 0).value;
  } catch (const c10::Error& error) {
    throw ipc::ValueError(std::string("the result can't become a value: ") +
                          error.what_without_backtrace());
  } catch (python_error&) {
    throw ipc::ValueError("the result can't become a value: " + takePythonError().message);
  }
}

}  // namespace isopool::worker
