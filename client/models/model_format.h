// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

#include "client/models/model_file.h"
#include "client/models/prepared_model.h"

namespace isopool::client {

/// A format of model files. One constant for each, in a file of its own; model_formats.h has the
/// table. Its functions may be called by any thread, for different files at the same time, and must
/// accept any bytes.
struct ModelFormat {
  /// Its name in requests: the worker's backend that loads it has the same name
  /// (worker/backends/model_backends.py). At most ipc::kMostFormatNameBytes.
  const char* name;
  /// For messages: "a TorchScript file".
  const char* description;
  /// Decides from the file's contents alone. Throws c10::Error if they are damaged so that this
  /// can't be decided.
  bool (*matches)(ModelFile& file);
  /// Checks that workers can run the model, as far as this shows without loading it. `model` names
  /// one of several models of the file; empty for the only one. Call it only if matches() is true.
  /// Throws c10::Error with the reason and what to do, without the file's name.
  PreparedModel (*prepare)(ModelFile& file, const std::string& model);
};

}  // namespace isopool::client
