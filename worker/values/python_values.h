// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include "worker/python/py_ref.h"

/// IValues and Python objects, each as the other. The kinds that cross are TorchScript's structural
/// ones, inferred as torch's tracer infers them; a class of the user's is refused, never compiled.
/// All with the GIL held.
namespace isopool::worker {

/// Throws ipc::ValueError.
PyRef toPython(at::IValue value);

/// Tensors come out detached. Throws ipc::ValueError with the tracer's text.
at::IValue fromPython(PyObject* object);

/// `elements` of the given torch.dtype over `storage` from its begin, as a Python tensor; null with
/// a Python error set if `dtype` is no dtype.
PyRef tensorOver(c10::Storage storage, PyObject* dtype, int64_t elements);

/// The storage of a torch.UntypedStorage; null with a Python error set if it is none.
c10::Storage storageOf(PyObject* object);

/// Bytes of one element of a torch.dtype; 0 if it is none.
size_t elementBytes(PyObject* dtype);

}  // namespace isopool::worker
