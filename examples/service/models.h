// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/ivalue.h>

#include <chrono>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "isopool/isopool.h"

namespace service {

using Clock = std::chrono::steady_clock;

/// What one connection keeps between its requests. One thread uses it.
struct Conversation {
  /// Has a replica of the voice model of its own: its state is that of this connection's sound.
  std::optional<isopool::InterpreterSession> voice;
};

/// One request: the arguments of a call, and how to serve it.
struct Request {
  std::vector<at::IValue> arguments;
  Clock::time_point deadline;
  Conversation& conversation;
  std::function<void(const nlohmann::json&)> sendItem;  ///< one item of a streamed answer
};

/// The models of a folder that package_models.py made, loaded in all workers of a pool, with its
/// example inputs. Thread-safe.
class Models {
 public:
  /// Loads the models that the folder has. Throws what loadPackage() and loadModel() throw.
  Models(isopool::InterpreterManager& pool, const std::string& folder);

  /// "resnet, text_reader", for a person.
  std::string names() const;
  /// Calls a model with one of its example inputs. Throws the exceptions of isopool, and
  /// std::out_of_range if there is no such model or no such input.
  nlohmann::json answer(const std::string& model, size_t input, Conversation& conversation,
                        const std::function<void(const nlohmann::json&)>& sendItem) const;

 private:
  struct Model {
    isopool::ReplicatedObj object;
    std::chrono::milliseconds time{0};  // that a request may take
    nlohmann::json (*serve)(const isopool::ReplicatedObj&, Request&) = nullptr;
    std::vector<std::vector<at::IValue>> inputs;
  };
  std::map<std::string, Model> models_;
};

}  // namespace service
