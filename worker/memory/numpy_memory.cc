// SPDX-License-Identifier: BSD-3-Clause
#include "worker/memory/numpy_memory.h"

#include <Python.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>

#include "ipc/tensor/routing_allocator.h"
#include "worker/python/py_ref.h"
#include "worker/python/python_errors.h"

namespace isopool::worker {

namespace {

// A call's answer contains shorter arrays itself.
constexpr size_t kLeastBytes = 4096;

// numpy's C interface, which is the same in its versions 1.22 to 2.x: the places of functions in
// its table, and the structure of a memory handler (PyDataMem_Handler of numpy/ndarraytypes.h).
constexpr size_t kFeatureVersion = 211;  // PyArray_GetNDArrayCFeatureVersion
constexpr size_t kSetHandler = 304;      // PyDataMem_SetHandler
constexpr unsigned int kVersion122 = 0xf;
constexpr const char* kHandlerCapsule = "mem_handler";

struct NumpyHandler {
  char name[127];
  uint8_t version;
  void* context;
  void* (*allocate)(void* context, size_t bytes);
  void* (*allocateZeroed)(void* context, size_t count, size_t bytesEach);
  void* (*resize)(void* context, void* data, size_t bytes);
  void (*release)(void* context, void* data, size_t bytes);
};

// numpy calls these on any thread, some without the GIL.

void* allocate(void*, size_t bytes) {
  void* block = bytes < kLeastBytes ? nullptr : ipc::allocateRouted(bytes);
  return block != nullptr ? block : std::malloc(bytes);
}

void* allocateZeroed(void*, size_t count, size_t bytesEach) {
  size_t bytes = 0;
  if (__builtin_mul_overflow(count, bytesEach, &bytes)) return nullptr;
  void* block = bytes < kLeastBytes ? nullptr : ipc::allocateRouted(bytes);
  return block != nullptr ? std::memset(block, 0, bytes) : std::calloc(count, bytesEach);
}

void release(void* context, void* data, size_t) {
  auto* blocks = static_cast<RoutedBlocks*>(context);
  if (data == nullptr) return;
  if (blocks->ownsBlock(data)) {
    blocks->freeBlock(data);
  } else {
    std::free(data);
  }
}

void* resize(void* context, void* data, size_t bytes) {
  const size_t former = data == nullptr ? 0 : static_cast<RoutedBlocks*>(context)->bytesOf(data);
  if (former == 0) return std::realloc(data, bytes);
  void* const resized = allocate(context, bytes);
  if (resized == nullptr) return nullptr;
  std::memcpy(resized, data, std::min(former, bytes));
  release(context, data, former);
  return resized;
}

PyRef importedNumpyModule() {
  PyObject* modules = PyImport_GetModuleDict();
  // The second name is that of numpy 1.
  for (const char* name : {"numpy._core._multiarray_umath", "numpy.core._multiarray_umath"}) {
    if (PyObject* module = PyDict_GetItemString(modules, name)) return PyRef::share(module);
  }
  return {};
}

template <typename Function>
Function functionOf(void** table, size_t place) {
  return reinterpret_cast<Function>(table[place]);
}

}  // namespace

void routeNumpyMemory(RoutedBlocks& blocks) {
  const PyRef numpy = importedNumpyModule();
  if (!numpy) return;
  const PyRef capsule = PyRef::steal(PyObject_GetAttrString(numpy.get(), "_ARRAY_API"));
  auto** table =
      static_cast<void**>(capsule ? PyCapsule_GetPointer(capsule.get(), nullptr) : nullptr);
  if (table == nullptr) throw std::runtime_error("numpy: " + takePythonError().message);
  if (functionOf<unsigned int (*)()>(table, kFeatureVersion)() < kVersion122) return;
  // Never destroyed: arrays refer to it.
  static NumpyHandler handler{"isopool", 1, nullptr, &allocate, &allocateZeroed, &resize, &release};
  handler.context = &blocks;
  const PyRef own = PyRef::steal(PyCapsule_New(&handler, kHandlerCapsule, nullptr));
  const PyRef former = PyRef::steal(
      own ? functionOf<PyObject* (*)(PyObject*)>(table, kSetHandler)(own.get()) : nullptr);
  if (!former) throw std::runtime_error("numpy: " + takePythonError().message);
}

}  // namespace isopool::worker
