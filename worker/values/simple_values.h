// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>
#include <Python.h>

#include <optional>
#include <string>
#include <utility>

/// The common part of both conversions of Python objects. With the GIL held.
namespace isopool::worker {

/// The deepest nesting that is converted; equal to that of a payload.
inline constexpr int kMaxNesting = 64;

/// The reason why the type of a value can't be inferred; the catching function adds which value.
/// Thrown inside the conversions only, which make an ipc::ValueError of it.
class NotInferable {
 public:
  explicit NotInferable(std::string reason) : reason_(std::move(reason)) {}
  const std::string& reason() const { return reason_; }

 private:
  std::string reason_;
};

struct TypedValue {
  at::IValue value;
  c10::TypePtr type;
};

/// Converts tensors (detached), None, numbers, texts, devices; dtypes, layouts and quantisation
/// schemes become their numbers. Returns nullopt for any other object. Throws NotInferable, and
/// python_error if user code raises.
std::optional<TypedValue> simpleValue(PyObject* object);

/// True if the object's type is torch.Tensor or derives from it. Runs no code of the object. An
/// object of which only __class__ says so, such as a mock, has another layout in memory.
bool isTensor(PyObject* object);

/// The tensor in `object`, which must be a torch.Tensor, without its autograd history.
at::Tensor detached(PyObject* object);

/// The common type of both by the tracer's rules; null if there is none. If `known` is null,
/// it is `next`.
c10::TypePtr unified(const c10::TypePtr& known, const c10::TypePtr& next);

}  // namespace isopool::worker
