// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <memory>
#include <string>

#include "client/models/archive_file.h"

namespace isopool::client {

/// A model that was saved without Python source, as workers load it.
struct StoredModel {
  /// What workers get: the file itself, or the part of it that its format takes out.
  std::shared_ptr<ArchiveFile> file;
  std::string format;   ///< ModelFormat::name
  std::string options;  ///< PreparedModel::options
};

/// Prepares the model in `file` for workers, without loading it. `name`: which model of a .pt2, if
/// it holds several; else empty. Any thread. Throws c10::Error with the file's name, the reason and
/// the remedy if it is not a model, or one that workers can't run.
StoredModel readModel(std::shared_ptr<ArchiveFile> file, const std::string& name);

}  // namespace isopool::client
