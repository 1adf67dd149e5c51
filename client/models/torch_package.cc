// SPDX-License-Identifier: BSD-3-Clause
#include <c10/util/Exception.h>
#include <caffe2/serialize/inline_container.h>

#include "client/models/model_formats.h"

namespace isopool::client {

namespace {

bool matches(ModelFile& file) { return file.records().hasRecord(".data/extern_modules"); }

// A package holds any number of objects, so that its own call says which of them is meant.
PreparedModel prepare(ModelFile&, const std::string&) {
  TORCH_CHECK(false, "it is ", kTorchPackage.description,
              ". Give it to InterpreterManager::loadPackage, and its model to loadPickle");
}

}  // namespace

const ModelFormat kTorchPackage = {
    .name = "torch.package",
    .description = "a torch.package",
    .matches = &matches,
    .prepare = &prepare,
};

}  // namespace isopool::client
