// SPDX-License-Identifier: BSD-3-Clause
#include <c10/util/Exception.h>

#include "client/models/model_formats.h"
#include "client/models/pt2_archive.h"

namespace isopool::client {

namespace {

bool matches(ModelFile& file) { return isPt2ArchiveWith(file, "models/"); }

PreparedModel prepare(ModelFile&, const std::string& model) {
  TORCH_CHECK(model.empty() || model == "model", "it is ", kExportedProgram.description,
              " and holds one model, none of the name ", model);
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
