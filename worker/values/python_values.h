// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <c10/core/Storage.h>

#include <cstddef>
#include <cstdint>

#include "ipc/tensor/value_types.h"
#include "worker/python/py_ref.h"

/// Conversion between IValues and Python objects. Supports TorchScript's structural types, inferred
/// as torch's tracer infers them; a class of the user is refused and not compiled. All functions
/// with the GIL held.
namespace isopool::worker {

/// Makes a Python object; tensors share their storages with the value. Never null: throws
/// ipc::ValueError if the value has no counterpart, such as a string that is not UTF-8.
PyRef toPython(at::IValue value);

/// Makes an IValue; tensors are detached. May run user code. Throws ipc::ValueError with
/// the tracer's text; no Python error is set then.
at::IValue fromPython(PyObject* object);

/// A one-dimensional Python tensor with `elements` of the given torch.dtype, from the begin of
/// `storage`; null with a Python error set if `dtype` is not a torch.dtype.
PyRef tensorOver(c10::Storage storage, PyObject* dtype, int64_t elements);

/// The storage of a torch.UntypedStorage; null with a Python error set for any other object.
c10::Storage storageOf(PyObject* object);

/// Bytes of one element of a torch.dtype; 0 for any other object.
size_t elementBytes(PyObject* dtype);

}  // namespace isopool::worker
