// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/ivalue.h>

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

namespace isopool {

class InterpreterObj;

/// A handle to a Python object that lives in one worker. Copies share it; the object is let go when
/// the last copy dies (in batches, without a round trip). Any thread may use it; calls to one
/// worker run one after the other.
///
/// Every member throws Error on a default-constructed Obj, RemoteError for a Python exception, and
/// WorkerLost once its worker is dead: an object does not survive its worker.
class Obj {
 public:
  Obj() = default;
  explicit Obj(std::shared_ptr<InterpreterObj> baseObj) : baseObj_(std::move(baseObj)) {}

  /// The object as a C++ value: None, numbers, strings, tensors, and lists, tuples and dicts of
  /// them as TorchScript's type inference accepts them. Refuses the rest with Error, in the
  /// tracer's words.
  at::IValue toIValue() const;
  /// The same, and also what TorchScript has no one type for: empty containers, lists and dicts of
  /// mixed values (as List[Any] and Dict[K, Any]), the outputs of Hugging Face models, numpy arrays
  /// and scalars, dataclasses and enums, sets, and bytes as a tensor of dtype uint8. docs/values.md
  /// has the table. What it refuses is named by its path, as in `result["past"][3]`. May run Python
  /// code of the object's classes.
  at::IValue toIValuePermissive() const;

  /// Calls the object. Arguments that are Objs must live in the same worker.
  Obj operator()(at::ArrayRef<Obj> args) const;
  Obj operator()(at::ArrayRef<at::IValue> args) const;
  Obj callKwargs(std::vector<at::IValue> args,
                 std::unordered_map<std::string, c10::IValue> kwargs) const;
  Obj callKwargs(std::unordered_map<std::string, c10::IValue> kwargs) const;

  /// True if the attribute exists; every Python exception counts as no, as in torch::deploy.
  bool hasattr(const char* attr) const;
  Obj attr(const char* attr) const;

 private:
  friend class InterpreterSession;
  friend class ResultStream;
  std::shared_ptr<InterpreterObj> baseObj_;
};

}  // namespace isopool
