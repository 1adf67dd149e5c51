// SPDX-License-Identifier: BSD-3-Clause
#include "client/models/model_formats.h"
#include "client/models/pt2_archive.h"

namespace isopool::client {

namespace {

bool matches(ModelFile& file) { return isPt2ArchiveWith(file, "models/"); }

PreparedModel prepare(ModelFile&, const std::string& model) {
  // torch.export.save gives the only model this name.
  if (model != "model") checkOnlyModel(kExportedProgram, model);
  return {};
}

}  // namespace

const ModelFormat kExportedProgram = {
    .name = "torch.export",
    .description = "a program of torch.export",
    .matches = &matches,
    .prepare = &prepare,
};

}  // namespace isopool::client
