// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string>

#include "base/ids.h"
#include "client/transport/worker_link.h"
#include "ipc/channel/operation.h"

namespace isopool::client {

/// How any worker comes by a replicated object: the request that makes it there, see
/// ipc::Operation.
struct ObjectDefinition {
  uint64_t object = 0;
  ipc::Operation operation = ipc::Operation::kDefineObject;
  std::string request;  ///< its body, a msgpack array that begins with `object`; no tensors in it
};

/// The number of a new object: the first in this process to have it. Any thread.
uint64_t newObjectNumber();

/// What the workers' backend for `format` makes of a file that they have as a package, and of
/// `options`.
ObjectDefinition loadedObject(base::PackageId file, const std::string& format,
                              const std::string& options);

/// Fills an empty draft with the definition's request.
void draftDefinition(RequestDraft& draft, const ObjectDefinition& definition);
/// Fills an empty draft with the request that ends it, ipc::Operation::kForgetObject.
void draftForgetting(RequestDraft& draft, uint64_t object);

}  // namespace isopool::client
