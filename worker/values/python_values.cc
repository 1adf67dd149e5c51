// SPDX-License-Identifier: BSD-3-Clause
#include "worker/values/python_values.h"

#include <ATen/core/jit_type.h>
#include <torch/csrc/Dtype.h>
#include <torch/csrc/DynamicTypes.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/jit/python/pybind_utils.h>

#include <string>
#include <utility>
#include <vector>

#include "base/python_parts.h"
#include "ipc/tensor/dict_builder.h"
#include "ipc/tensor/payload_types.h"
#include "ipc/tensor/value_codec.h"
#include "worker/values/simple_values.h"

namespace isopool::worker {

namespace {

constexpr size_t kMaxShownCharacters = 2000;
// Appended to the tracer's own text.
constexpr const char* kPermissively =
    ". The permissive conversion takes it (CallOptions::permissive, Obj::toIValuePermissive)";

// The value of one object; counts the values made.
class Inference {
 public:
  explicit Inference(PyObject* root) : check_(root) {}
  TypedValue infer(PyObject* object, int depth);

 private:
  TypedValue inferList(PyObject* list, int depth);
  TypedValue inferDict(PyObject* dict, int depth);
  TypedValue inferTuple(PyObject* tuple, int depth);

  base::PythonRepetitionCheck check_;
};

std::string textOf(PyObject* object) {
  // Its text would be as long as the value that is refused.
  if (!base::repetitionRefusal(object).empty()) {
    return std::string("a ") + Py_TYPE(object)->tp_name;
  }
  const PyRef text = PyRef::steal(PyObject_Str(object));
  Py_ssize_t size = 0;
  const char* bytes = text ? PyUnicode_AsUTF8AndSize(text.get(), &size) : nullptr;
  if (bytes == nullptr) {
    PyErr_Clear();
    return std::string("a ") + Py_TYPE(object)->tp_name;
  }
  std::string result(bytes, static_cast<size_t>(size));
  if (result.size() > kMaxShownCharacters) result.resize(kMaxShownCharacters);
  return result;
}

[[noreturn]] void refuse(PyObject* object, const std::string& reason) {
  throw ipc::ValueError("Tracer cannot infer type of " + textOf(object) + "\n:" + reason);
}

std::string disagreement(const char* container, const c10::TypePtr& one,
                         const c10::TypePtr& other) {
  return std::string(container) + one->repr_str() + " and " + other->repr_str() + kPermissively;
}

TypedValue Inference::inferList(PyObject* list, int depth) {
  const Py_ssize_t size = PyList_GET_SIZE(list);
  if (size == 0) {
    throw NotInferable(std::string("List trace inputs must have elements") + kPermissively);
  }
  std::vector<at::IValue> values;
  values.reserve(static_cast<size_t>(size));
  c10::TypePtr type;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list); ++i) {
    TypedValue element;
    try {
      element = infer(PyList_GET_ITEM(list, i), depth + 1);
    } catch (const NotInferable& error) {
      throw NotInferable("Could not infer type of list element: " + error.reason());
    }
    const c10::TypePtr both = unified(type, element.type);
    if (!both) {
      throw NotInferable(
          disagreement("List inputs to traced functions must have consistent element type. Found ",
                       type, element.type));
    }
    type = both;
    values.push_back(std::move(element.value));
  }
  c10::impl::GenericList result(type);
  result.reserve(values.size());
  for (at::IValue& value : values) result.push_back(std::move(value));
  return {std::move(result), c10::ListType::create(type)};
}

TypedValue Inference::inferDict(PyObject* dict, int depth) {
  if (PyDict_GET_SIZE(dict) == 0) {
    throw NotInferable(std::string("Dictionary inputs must have entries") + kPermissively);
  }
  std::vector<std::pair<at::IValue, at::IValue>> entries;
  entries.reserve(static_cast<size_t>(PyDict_GET_SIZE(dict)));
  c10::TypePtr keyType;
  c10::TypePtr valueType;
  constexpr const char* kDisagree =
      "Dictionary inputs to traced functions must have consistent type. Found ";
  PyObject* key = nullptr;
  PyObject* value = nullptr;
  Py_ssize_t position = 0;
  while (PyDict_Next(dict, &position, &key, &value) != 0) {
    TypedValue entryKey = infer(key, depth + 1);
    const c10::TypePtr bothKeys = unified(keyType, entryKey.type);
    if (!bothKeys) throw NotInferable(disagreement(kDisagree, keyType, entryKey.type));
    keyType = bothKeys;
    TypedValue entryValue = infer(value, depth + 1);
    const c10::TypePtr bothValues = unified(valueType, entryValue.type);
    if (!bothValues) throw NotInferable(disagreement(kDisagree, valueType, entryValue.type));
    valueType = bothValues;
    entries.emplace_back(std::move(entryKey.value), std::move(entryValue.value));
  }
  if (!ipc::isDictKeyType(*keyType)) {
    throw NotInferable("Cannot create dict for key type '" + keyType->repr_str() +
                       "', only int, float, complex, Tensor, device and string keys are supported");
  }
  ipc::DictBuilder result(keyType, valueType, entries.size());
  for (auto& [entryKey, entryValue] : entries) {
    result.set(std::move(entryKey), std::move(entryValue));
  }
  return {result.take(), c10::DictType::create(keyType, valueType)};
}

TypedValue Inference::inferTuple(PyObject* tuple, int depth) {
  const Py_ssize_t size = PyTuple_GET_SIZE(tuple);
  std::vector<at::IValue> values;
  std::vector<c10::TypePtr> types;
  values.reserve(static_cast<size_t>(size));
  types.reserve(static_cast<size_t>(size));
  for (Py_ssize_t i = 0; i < size; ++i) {
    TypedValue element = infer(PyTuple_GET_ITEM(tuple, i), depth + 1);
    values.push_back(std::move(element.value));
    types.push_back(std::move(element.type));
  }
  return {c10::ivalue::Tuple::create(std::move(values)), c10::TupleType::create(std::move(types))};
}

std::string reasonForOther(PyObject* object) {
  static PyObject* const moduleClass = [] {
    const PyRef nn = PyRef::steal(PyImport_ImportModule("torch.nn"));
    PyObject* found = nn ? PyObject_GetAttrString(nn.get(), "Module") : nullptr;
    PyErr_Clear();
    return found;
  }();
  if (moduleClass != nullptr && PyObject_IsInstance(object, moduleClass) == 1) {
    return "Cannot infer concrete type of torch.nn.Module";
  }
  PyErr_Clear();
  const PyRef name = PyRef::steal(
      PyObject_GetAttrString(reinterpret_cast<PyObject*>(Py_TYPE(object)), "__name__"));
  return "Only tensors and (possibly nested) tuples of tensors, lists, or dicts are supported as "
         "inputs or outputs of traced functions, but instead got value of type " +
         (name ? textOf(name.get()) : std::string(Py_TYPE(object)->tp_name)) + "." +
         (PyIter_Check(object) != 0
              ? " Take its items one by one by ReplicatedObj::stream(), or return list() of it"
              : " The permissive conversion takes more (CallOptions::permissive, "
                "Obj::toIValuePermissive)");
}

TypedValue Inference::infer(PyObject* object, int depth) {
  if (const auto why = check_.refusalBefore(object); !why.empty()) throw ipc::ValueError(why);
  // Without the place: the text of one so deep would be cut before the reason.
  if (depth > kMaxNesting) {
    throw ipc::ValueError(
        "a result that is nested too deeply (more than 64 deep) or contains itself can't cross "
        "between processes: return its parts one by one");
  }
  if (auto simple = simpleValue(object)) return std::move(*simple);
  if (PyTuple_Check(object)) return inferTuple(object, depth);
  if (PyDict_Check(object)) return inferDict(object, depth);
  if (PyList_Check(object)) return inferList(object, depth);
  throw NotInferable(reasonForOther(object));
}

}  // namespace

PyRef toPython(at::IValue value) {
  PyObject* object = nullptr;
  if (value.isTensor()) {
    object = THPVariable_Wrap(std::move(value).toTensor());
  } else if (value.isNone()) {
    return PyRef::share(Py_None);
  } else if (value.isBool()) {
    object = PyBool_FromLong(value.toBool() ? 1 : 0);
  } else if (value.isInt()) {
    object = PyLong_FromLongLong(value.toInt());
  } else if (value.isDouble()) {
    object = PyFloat_FromDouble(value.toDouble());
  } else {
    try {
      object = torch::jit::toPyObject(std::move(value)).release().ptr();
    } catch (py::error_already_set& error) {
      if (error.matches(PyExc_UnicodeDecodeError)) {
        throw ipc::ValueError(
            "a string that is not UTF-8 can't become a Python str: pass a tensor of dtype uint8 "
            "with "
            "these bytes (" +
            std::string(error.what()) + ")");
      }
      throw ipc::ValueError(error.what());
    } catch (const c10::Error& error) {
      throw ipc::ValueError(error.what_without_backtrace());
    }
  }
  if (object == nullptr) {
    PyErr_Clear();
    throw ipc::ValueError("a value can't be made into a Python object");
  }
  return PyRef::steal(object);
}

at::IValue fromPython(PyObject* object) {
  if (THPVariable_CheckExact(object)) return detached(object);
  try {
    return Inference(object).infer(object, 0).value;
  } catch (const NotInferable& error) {
    refuse(object, error.reason());
  } catch (const c10::Error& error) {
    refuse(object, error.what_without_backtrace());
  } catch (python_error&) {
    PyErr_Clear();
    refuse(object, "its class raises an exception when its type is checked");
  }
}

PyRef tensorOver(c10::Storage storage, PyObject* dtype, int64_t elements) {
  if (!THPDtype_Check(dtype)) {
    PyErr_SetString(PyExc_TypeError, "a torch.dtype is needed");
    return {};
  }
  const auto type = c10::scalarTypeToTypeMeta(reinterpret_cast<THPDtype*>(dtype)->scalar_type);
  auto impl = c10::make_intrusive<c10::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(c10::DispatchKey::CPU), type);
  impl->set_sizes_contiguous(elements);
  return PyRef::steal(THPVariable_Wrap(at::Tensor(std::move(impl))));
}

c10::Storage storageOf(PyObject* object) {
  if (!torch::isStorage(object)) {
    PyErr_SetString(PyExc_TypeError, "a torch.UntypedStorage is needed");
    return {};
  }
  return torch::createStorage(object);
}

size_t elementBytes(PyObject* dtype) {
  if (!THPDtype_Check(dtype)) return 0;
  return c10::elementSize(reinterpret_cast<THPDtype*>(dtype)->scalar_type);
}

}  // namespace isopool::worker
