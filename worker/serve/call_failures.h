// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <msgpack.hpp>
#include <string>

#include "worker/serve/refusal.h"

/// How an operation ends early: what is thrown between it and the place that answers.
namespace isopool::worker {

/// A Python error is set and is the call's answer.
struct PythonRaised {};

template <typename Reference>
Reference orRaised(Reference reference) {
  if (!reference) throw PythonRaised{};
  return reference;
}

[[noreturn]] inline void badRequest(const std::string& text) {
  throw Refusal(ipc::RefusalKind::kBadRequest, text);
}

inline const msgpack::object& arrayOf(const msgpack::object& object) {
  if (object.type != msgpack::type::ARRAY) badRequest("a call lacks an array");
  return object;
}

}  // namespace isopool::worker
