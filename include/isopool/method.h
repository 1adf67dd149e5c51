// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include "isopool/export.h"
#include "isopool/replicated_obj.h"

namespace isopool {

/// A method of a ReplicatedObj, by name (ReplicatedObj::method()). Every member does what the
/// member of ReplicatedObj with the same name does, for `object.name` in place of `object`: the
/// same threads, workers, values, deaths and errors. It shares ownership of the object.
///
/// The name is looked up in the worker at each call, so it may be any callable attribute; if the
/// object has no such attribute, a call throws RemoteError (AttributeError). A plain value: copies
/// are cheap, and calls are thread-safe.
class ISOPOOL_EXPORT Method {
 public:
  const std::string& name() const { return name_; }

  at::IValue operator()(at::ArrayRef<at::IValue> args) const;
  [[nodiscard]] at::IValue call(std::vector<at::IValue> args,
                                std::unordered_map<std::string, c10::IValue> kwargs = {},
                                const CallOptions& options = {}) const;
  std::vector<at::IValue> callOnAll(std::vector<at::IValue> args,
                                    std::unordered_map<std::string, c10::IValue> kwargs = {},
                                    const CallOptions& options = {}) const;

  void warmUp(std::vector<at::IValue> args,
              std::unordered_map<std::string, c10::IValue> kwargs = {},
              const CallOptions& options = {}) const;

  PendingCall callAsync(std::vector<at::IValue> args,
                        std::unordered_map<std::string, c10::IValue> kwargs = {},
                        const CallOptions& options = {}) const;
  template <typename Callback,
            typename = std::enable_if_t<std::is_invocable_v<Callback&, const Outcome&>>>
  PendingCall callAsync(std::vector<at::IValue> args, Callback callback,
                        std::unordered_map<std::string, c10::IValue> kwargs = {},
                        const CallOptions& options = {}) const {
    return object_.callMethodAsync(name_, ReplicatedObj::shared(std::move(callback)),
                                   std::move(args), std::move(kwargs), options);
  }
  PendingCall callAsync(std::vector<at::IValue> args, CompletionQueue& queue, uint64_t tag,
                        std::unordered_map<std::string, c10::IValue> kwargs = {},
                        const CallOptions& options = {}) const;

  [[nodiscard]] ResultStream stream(std::vector<at::IValue> args,
                                    std::unordered_map<std::string, c10::IValue> kwargs = {},
                                    const CallOptions& options = {}) const;

 private:
  friend class ReplicatedObj;
  Method(ReplicatedObj object, std::string name)
      : object_(std::move(object)), name_(std::move(name)) {}

  ReplicatedObj object_;
  std::string name_;
};

}  // namespace isopool
