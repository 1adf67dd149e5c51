// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/ivalue.h>

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "isopool/call_options.h"
#include "isopool/export.h"

namespace isopool {

class InterpreterObj;

/// A handle to a Python object in one worker. Copies refer to the same object. When the last copy
/// is destroyed the worker releases the object; releases travel in batches and without a round
/// trip, so the destructor does not wait.
///
/// Thread-safe. The worker runs calls one after the other, in the calling thread's grad, inference
/// and autocast modes. Calls wait as long as CallOptions::deadline allows, by default without
/// limit.
///
/// An object does not survive its worker: after the worker's death every member throws WorkerLost.
/// Every member throws RemoteError for a Python exception, DeadlineExceeded, SupervisorLost,
/// LimitExceeded, ArenaFull, and Error on a default-constructed Obj, after the manager's end, and
/// for values that can't cross. An Obj may outlive its session.
class ISOPOOL_EXPORT Obj {
 public:
  /// Refers to no object.
  Obj() = default;
  /// For the library.
  explicit Obj(std::shared_ptr<InterpreterObj> baseObj) : baseObj_(std::move(baseObj)) {}

  /// The object as a C++ value: None, numbers, strings, tensors, and lists, tuples and dicts of
  /// these, as TorchScript's type inference accepts them. Tensors arrive detached; they must be
  /// strided and on the CPU. Throws Error, with the text of torch's tracer, for other objects.
  at::IValue toIValue(const CallOptions& options = {}) const;
  /// As toIValue(), and also converts objects for which TorchScript has no single type: empty
  /// containers, lists and dicts of mixed values (to List[Any] and Dict[K, Any]), outputs of
  /// Hugging Face models, numpy arrays and scalars, dataclasses, enums, sets, and bytes (to a
  /// tensor of dtype uint8). docs/values.md has the table. If a part can't be converted, the Error
  /// names its path, as in `result["past"][3]`. May run Python code of the object's classes.
  at::IValue toIValuePermissive(const CallOptions& options = {}) const;

  /// Calls the object and returns a handle to the result, which stays in the worker. Arguments that
  /// are Objs must live in the same worker.
  Obj operator()(at::ArrayRef<Obj> args) const;
  Obj operator()(at::ArrayRef<at::IValue> args) const;
  Obj callKwargs(std::vector<at::IValue> args,
                 std::unordered_map<std::string, c10::IValue> kwargs) const;
  Obj callKwargs(std::unordered_map<std::string, c10::IValue> kwargs) const;
  /// The same with per-call options: a deadline. See CallOptions for what a passed deadline does to
  /// the worker.
  [[nodiscard]] Obj call(std::vector<at::IValue> args,
                         std::unordered_map<std::string, c10::IValue> kwargs,
                         const CallOptions& options) const;
  [[nodiscard]] Obj call(at::ArrayRef<Obj> args, const CallOptions& options) const;

  /// True if the attribute exists. False if Python raises any exception, as in torch::deploy.
  bool hasattr(const char* attr, const CallOptions& options = {}) const;
  /// A handle to the attribute. Throws RemoteError if it does not exist.
  Obj attr(const char* attr, const CallOptions& options = {}) const;

 private:
  friend class InterpreterSession;
  friend class ResultStream;
  std::shared_ptr<InterpreterObj> baseObj_;
};

}  // namespace isopool
