// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string>

#include "base/ids.h"
#include "client/transport/worker_link.h"
#include "ipc/channel/operation.h"

namespace isopool::client {

/// How any worker makes a replicated object: the request that makes it there, see ipc::Operation.
/// A plain value: it does not own the package or the memory that the request refers to, which must
/// exist in the workers as long as the definition is used.
struct ObjectDefinition {
  uint64_t object = 0;  ///< see newObjectNumber()
  ipc::Operation operation = ipc::Operation::kDefineObject;
  std::string request;  ///< its body, a msgpack array that begins with `object`; no tensors in it
  std::string name;     ///< for reports, see ReplicatedObj::name()
};

/// The number of a new object: no other object of this process gets it. Any thread.
uint64_t newObjectNumber();

/// A new object, with a number of its own: what the workers' backend for `format` makes of a file
/// that they have as a package, and of `options`. Any thread. `format` and `options` are checked by
/// the worker only.
ObjectDefinition loadedObject(base::PackageId file, const std::string& format,
                              const std::string& options, const std::string& name);

/// The same with a number of its own. Throws std::logic_error for a definition that no function of
/// this library has made.
ObjectDefinition anotherOf(const ObjectDefinition& definition);

/// Fills an empty draft with the definition's request. The caller sends it as
/// `definition.operation`.
void draftDefinition(RequestDraft& draft, const ObjectDefinition& definition);

}  // namespace isopool::client
