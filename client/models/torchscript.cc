// SPDX-License-Identifier: BSD-3-Clause
#include <c10/util/Exception.h>
#include <caffe2/serialize/inline_container.h>

#include "client/models/model_formats.h"

namespace isopool::client {

namespace {

bool matches(ModelFile& file) { return file.records().hasRecord("constants.pkl"); }

PreparedModel prepare(ModelFile&, const std::string& model) {
  TORCH_CHECK(model.empty(), "it is ", kTorchScript.description,
              " and holds one model, none of the name ", model);
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
