// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <c10/core/Allocator.h>

#include <cstddef>
#include <optional>
#include <string>

namespace isopool::client {

/// What workers need of a model's file.
struct PreparedModel {
  /// Bytes that were taken out of the file.
  struct Part {
    c10::DataPtr data;
    size_t bytes = 0;
  };

  /// What the worker's backend of this format takes beside the file; only the format and the
  /// backend interpret it. At most ipc::kMostModelOptionsBytes. May be empty.
  std::string options;
  /// What workers load in place of the file, for example the shared library of an AOTInductor
  /// model; nothing if they load the file as it is.
  std::optional<Part> part;
};

}  // namespace isopool::client
