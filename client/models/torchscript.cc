// SPDX-License-Identifier: BSD-3-Clause
#include <caffe2/serialize/inline_container.h>

#include "client/models/model_formats.h"

namespace isopool::client {

namespace {

bool matches(ModelFile& file) { return file.records().hasRecord("constants.pkl"); }

PreparedModel prepare(ModelFile&, const std::string& model) {
  checkOnlyModel(kTorchScript, model);
  return {};
}

}  // namespace

const ModelFormat kTorchScript = {
    .name = "torchscript",
    .description = "a TorchScript file",
    .matches = &matches,
    .prepare = &prepare,
};

}  // namespace isopool::client
