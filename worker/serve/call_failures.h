// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <msgpack.hpp>
#include <string>

#include "worker/serve/refusal.h"

/// Exceptions that end an operation early. CallRunner::run() catches them and answers.
namespace isopool::worker {

/// A Python error is set; it becomes the answer of the call.
struct PythonRaised {};

/// Returns `reference`; throws PythonRaised if it is null, so a Python error must be set then.
template <typename Reference>
Reference orRaised(Reference reference) {
  if (!reference) throw PythonRaised{};
  return reference;
}

/// Refuses a call that violates the protocol.
[[noreturn]] inline void badRequest(const std::string& text) {
  throw Refusal(ipc::RefusalKind::kBadRequest, text);
}

/// Returns `object`; throws Refusal if it is not an array.
inline const msgpack::object& arrayOf(const msgpack::object& object) {
  if (object.type != msgpack::type::ARRAY)
    badRequest("the call does not have an array where the operation needs one");
  return object;
}

}  // namespace isopool::worker
