// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>
#include <Python.h>

#include <optional>
#include <string>
#include <utility>

/// What both conversions of Python objects have in common. With the GIL held.
namespace isopool::worker {

inline constexpr int kMaxNesting = 64;

/// Why the type of a value can't be told; the caller adds of which.
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

/// Tensors (detached), None, numbers, texts, devices; dtypes, layouts and quantisation schemes as
/// their numbers; nothing for any other object. Throws NotInferable.
std::optional<TypedValue> simpleValue(PyObject* object);

at::Tensor detached(PyObject* object);

/// The type that both fit into, by the tracer's rules; null if there is none. `known` may be null.
c10::TypePtr unified(const c10::TypePtr& known, const c10::TypePtr& next);

}  // namespace isopool::worker
