// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <memory>
#include <string>

#include "client/models/archive_file.h"
#include "ipc/channel/operation.h"

namespace isopool::client {

/// What workers need of a model that was saved without Python source, see Operation::kDefineModel.
struct StoredModel {
  /// The archive itself, or the library in it, so that workers map that and nothing is unpacked.
  std::shared_ptr<ArchiveFile> file;
  ipc::ModelKind kind = ipc::ModelKind::kTorchScript;
  std::string operators;
};

/// `name` says which model of a .pt2, if it holds several. Throws c10::Error with the file's name
/// if it is no model, or one that workers can't run.
StoredModel readModel(std::shared_ptr<ArchiveFile> file, const std::string& name);

}  // namespace isopool::client
