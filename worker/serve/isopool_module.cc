// SPDX-License-Identifier: BSD-3-Clause
#include "worker/serve/isopool_module.h"

#include <array>
#include <cstring>

#include "ipc/crash_point.h"
#include "worker/backends/model_functions.h"
#include "worker/memory/moved_storages.h"
#include "worker/memory/package_capsule.h"
#include "worker/memory/package_store.h"
#include "worker/process/crash_log.h"
#include "worker/process/user_forks.h"
#include "worker/python/embedded_modules.h"
#include "worker/python/output_streams.h"
#include "worker/python/python_errors.h"
#include "worker/values/python_values.h"

namespace isopool::worker {

namespace {

using MappingOwner = std::shared_ptr<const ipc::Mapping>;

base::Epoch workerEpoch;
const CopyCounts* workerCopies = nullptr;
ShownModels* workerModels = nullptr;
Sandbox* workerSandbox = nullptr;
bool toLeave = false;

constexpr std::array<const char*, CopyCounts::kReasons> kReasonNames = [] {
  std::array<const char*, CopyCounts::kReasons> names{};
  const auto name = [&](ipc::CopyReason reason, const char* text) {
    names[static_cast<size_t>(reason)] = text;
  };
  name(ipc::CopyReason::kInputOutsideSharedMemory, "input_outside_shared_memory");
  name(ipc::CopyReason::kInputInline, "input_inline");
  name(ipc::CopyReason::kInputOfOtherWorker, "input_of_other_worker");
  name(ipc::CopyReason::kResultOutsideSharedMemory, "result_outside_shared_memory");
  name(ipc::CopyReason::kResultInline, "result_inline");
  name(ipc::CopyReason::kKeptByModel, "kept_by_model");
  name(ipc::CopyReason::kNoLease, "no_lease");
  name(ipc::CopyReason::kPackageWritten, "package_written");
  return names;
}();

// False, with an error set, in a child that user code forked.
bool alive() {
  if (!isForkedChild()) return true;
  PyErr_SetString(PyExc_RuntimeError,
                  "this process was forked from an isopool worker: the pool can't be used in it");
  return false;
}

PyObject* embeddedSources(PyObject*, PyObject*) {
  PyRef list = PyRef::steal(PyList_New(0));
  for (const EmbeddedModule& module : embeddedModules()) {
    const PyRef pair = PyRef::steal(Py_BuildValue("(ss)", module.name, module.text));
    if (!pair || PyList_Append(list.get(), pair.get()) != 0) return nullptr;
  }
  return list.release();
}

PyObject* appendToCrashLogFromPython(PyObject*, PyObject* data) {
  Py_buffer view;
  if (PyObject_GetBuffer(data, &view, PyBUF_SIMPLE) != 0) return nullptr;
  // A forked child's words are not this worker's, but nobody else would tell them.
  appendToCrashLog({static_cast<const char*>(view.buf), static_cast<size_t>(view.len)});
  PyBuffer_Release(&view);
  Py_RETURN_NONE;
}

PyObject* adoptOutput(PyObject*, PyObject* arguments) {
  PyObject* out = nullptr;
  PyObject* err = nullptr;
  if (PyArg_ParseTuple(arguments, "OO", &out, &err) == 0) return nullptr;
  adoptOutputStreams(out, err);
  Py_RETURN_NONE;
}

PyObject* noteOutputFromPython(PyObject*, PyObject*) {
  noteOutput();
  Py_RETURN_NONE;
}

PyObject* epoch(PyObject*, PyObject*) {
  if (!alive()) return nullptr;
  return PyLong_FromUnsignedLongLong(workerEpoch.value);
}

PyObject* copyCounters(PyObject*, PyObject*) {
  if (!alive()) return nullptr;
  PyRef counters = PyRef::steal(PyDict_New());
  for (size_t i = 0; i < kReasonNames.size(); ++i) {
    const uint64_t bytes = workerCopies == nullptr ? 0 : workerCopies->of(i);
    const PyRef number = PyRef::steal(PyLong_FromUnsignedLongLong(bytes));
    if (!number || kReasonNames[i] == nullptr ||
        PyDict_SetItemString(counters.get(), kReasonNames[i], number.get()) != 0) {
      return nullptr;
    }
  }
  return counters.release();
}

PyObject* armCrashPointFromPython(PyObject*, PyObject* arguments) {
  if (!alive()) return nullptr;
  const char* name = nullptr;
  unsigned nth = 1;
  if (PyArg_ParseTuple(arguments, "s|I", &name, &nth) == 0) return nullptr;
  const auto point = ipc::crashPointFromName(name);
  if (!point) return PyErr_Format(PyExc_ValueError, "no crash point is called %s", name);
  ipc::armCrashPoint(*point, nth);
  Py_RETURN_NONE;
}

PyObject* makeModelFromPython(PyObject*, PyObject* name) {
  if (!alive()) return nullptr;
  const char* text = PyUnicode_AsUTF8(name);
  if (text == nullptr) return nullptr;
  if (workerModels != nullptr) workerModels->runMade(text);
  Py_RETURN_NONE;
}

// As RunningCall does it for an exception that user code does not catch.
PyObject* explainFromPython(PyObject*, PyObject* raised) {
  if (!alive()) return nullptr;
  if (PyExceptionInstance_Check(raised) == 0) {
    return PyErr_Format(PyExc_TypeError, "explain() takes an exception");
  }
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(raised)), raised);
  PythonError error = takePythonError();
  const size_t message = error.message.size();
  error.explainMissingModule();
  if (workerSandbox != nullptr) workerSandbox->explain(error);
  std::string lines = error.message.substr(message);
  if (!lines.empty() && lines.front() == '\n') lines.erase(0, 1);
  return PyUnicode_DecodeUTF8(lines.data(), static_cast<Py_ssize_t>(lines.size()), "replace");
}

bool within(const ipc::Mapping& mapping, uint64_t offset, uint64_t bytes) {
  return offset <= mapping.bytes() && bytes <= mapping.bytes() - offset;
}

// The mapping of a moved object's memory with room for `bytes`, else null with an error set.
MappingOwner writableMapping(PyObject* capsule, uint64_t offset, uint64_t bytes) {
  MappingOwner mapping = movedObjectMapping(capsule);
  if (mapping == nullptr || within(*mapping, offset, bytes)) return mapping;
  PyErr_SetString(PyExc_ValueError, "what is moved reaches beyond its memory");
  return nullptr;
}

PyObject* writePackage(PyObject*, PyObject* arguments) {
  PyObject* capsule = nullptr;
  unsigned long long offset = 0;
  PyObject* bytes = nullptr;
  if (PyArg_ParseTuple(arguments, "OKS", &capsule, &offset, &bytes) == 0) return nullptr;
  const auto count = static_cast<size_t>(PyBytes_GET_SIZE(bytes));
  const MappingOwner mapping = writableMapping(capsule, offset, count);
  if (mapping == nullptr) return nullptr;
  std::memcpy(mapping->data() + offset, PyBytes_AS_STRING(bytes), count);
  Py_RETURN_NONE;
}

PyObject* moveStorageFromPython(PyObject*, PyObject* arguments) {
  PyObject* object = nullptr;
  PyObject* capsule = nullptr;
  unsigned long long offset = 0;
  int adopt = 0;
  if (PyArg_ParseTuple(arguments, "OOKp", &object, &capsule, &offset, &adopt) == 0) return nullptr;
  const c10::Storage storage = storageOf(object);
  if (!storage) return nullptr;
  const MappingOwner mapping = writableMapping(capsule, offset, storage.nbytes());
  if (mapping == nullptr) return nullptr;
  moveStorage(storage, mapping, offset, adopt != 0);
  Py_RETURN_NONE;
}

PyObject* packageTensor(PyObject*, PyObject* arguments) {
  PyObject* capsule = nullptr;
  unsigned long long offset = 0;
  long long elements = 0;
  PyObject* dtype = nullptr;
  if (PyArg_ParseTuple(arguments, "OKLO", &capsule, &offset, &elements, &dtype) == 0) {
    return nullptr;
  }
  const MappingOwner mapping = packageMapping(capsule);
  if (mapping == nullptr) return nullptr;
  const size_t itemBytes = elementBytes(dtype);
  uint64_t bytes = 0;
  if (itemBytes == 0 || elements <= 0 ||
      __builtin_mul_overflow(static_cast<uint64_t>(elements), itemBytes, &bytes) ||
      !within(*mapping, offset, bytes)) {
    return PyErr_Format(PyExc_ValueError, "a stored tensor reaches beyond its package");
  }
  return tensorOver(packageStorage(mapping, offset, bytes), dtype, elements).release();
}

PyObject* leaveAfterCall(PyObject*, PyObject*) {
  if (!alive()) return nullptr;
  toLeave = true;
  Py_RETURN_NONE;
}

// The package's local header of a record at `offset`: [signature, compression method].
PyObject* packageHeader(PyObject*, PyObject* arguments) {
  PyObject* capsule = nullptr;
  unsigned long long offset = 0;
  if (PyArg_ParseTuple(arguments, "OK", &capsule, &offset) == 0) return nullptr;
  const MappingOwner mapping = packageMapping(capsule);
  if (mapping == nullptr) return nullptr;
  constexpr size_t kHeaderBytes = 30;
  if (!within(*mapping, offset, kHeaderBytes)) {
    return PyErr_Format(PyExc_ValueError, "a record lies beyond its package");
  }
  return PyBytes_FromStringAndSize(reinterpret_cast<const char*>(mapping->data() + offset),
                                   kHeaderBytes);
}

std::array<PyMethodDef, 15> methods = {{
    {"embedded_sources", &embeddedSources, METH_NOARGS, "The Python files inside this program."},
    {"append_to_crash_log", &appendToCrashLogFromPython, METH_O,
     "Keeps bytes for this worker's crash log."},
    {"adopt_output", &adoptOutput, METH_VARARGS,
     "adopt_output(stdout, stderr): streams that note what is written to them."},
    {"note_output", &noteOutputFromPython, METH_NOARGS,
     "Something was written to an adopted stream."},
    {"epoch", &epoch, METH_NOARGS, "The number of this worker's life; no other life has it."},
    {"copy_counters", &copyCounters, METH_NOARGS,
     "Bytes of tensors that this worker copied, by reason."},
    {"arm_crash_point", &armCrashPointFromPython, METH_VARARGS,
     "arm_crash_point(name, nth=1): dies there, the nth time. For tests."},
    {"make_model", &makeModelFromPython, METH_O,
     "make_model(name): the running call makes a model of this name; the report of a death says "
     "so."},
    {"explain", &explainFromPython, METH_O,
     "explain(exception): lines about what the sandbox forbade, the limit of memory or a missing "
     "module; or ''."},
    {"leave_after_call", &leaveAfterCall, METH_NOARGS,
     "The worker exits after the running call has been answered, and another one replaces it."},
    {"package_tensor", &packageTensor, METH_VARARGS,
     "package_tensor(package, offset, numel, dtype): a tensor over a package's private mapping."},
    {"package_header", &packageHeader, METH_VARARGS,
     "package_header(package, offset): 30 bytes, the local header of a record."},
    {"write_package", &writePackage, METH_VARARGS,
     "write_package(memory, offset, bytes): into the memory of a moved object."},
    {"move_storage", &moveStorageFromPython, METH_VARARGS,
     "move_storage(storage, memory, offset, adopt): copies an UntypedStorage there; if adopt, it "
     "lies "
     "there from now on."},
    {nullptr, nullptr, 0, nullptr},
}};

PyModuleDef definition = {PyModuleDef_HEAD_INIT,
                          "_isopool",
                          "The isopool worker that this Python runs in.",
                          -1,
                          methods.data(),
                          nullptr,
                          nullptr,
                          nullptr,
                          nullptr};

}  // namespace

PyObject* createIsopoolModule() {
  PyRef module = PyRef::steal(PyModule_Create(&definition));
  return module && addModelFunctions(module.get()) ? module.release() : nullptr;
}

bool isToLeave() { return toLeave; }

void setIsopoolModuleWorker(base::Epoch epochOfWorker, const CopyCounts& copies,
                            ShownModels& models, Sandbox& sandbox) {
  workerEpoch = epochOfWorker;
  workerCopies = &copies;
  workerModels = &models;
  workerSandbox = &sandbox;
}

}  // namespace isopool::worker
