// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

#include "worker/refusal.h"

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

}  // namespace isopool::worker
