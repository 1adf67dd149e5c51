// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

#include "base/system_call.h"

namespace isopool::ipc {

/// Why shared memory can't be made or mapped: the failed call with its error, which resource is
/// used up or refused, and what to do about it. For messages to users. `process`: whose resources
/// are meant, for example "this process".
std::string creationFailureInWords(const base::SystemCallError& error, const char* process);

}  // namespace isopool::ipc
