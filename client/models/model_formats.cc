// SPDX-License-Identifier: BSD-3-Clause
#include "client/models/model_formats.h"

#include <c10/util/Exception.h>
#include <caffe2/serialize/inline_container.h>

#include <array>

namespace isopool::client {

namespace {

// The last four open the file as an archive, and throw if it is not one.
constexpr std::array<const ModelFormat*, 5> kFormats = {&kOnnx, &kTorchPackage, &kTorchScript,
                                                        &kAotInductor, &kExportedProgram};

}  // namespace

std::span<const ModelFormat* const> modelFormats() { return kFormats; }

const ModelFormat* formatOf(ModelFile& file) {
  for (const ModelFormat* format : kFormats) {
    if (format->matches(file)) return format;
  }
  return nullptr;
}

void checkOnlyModel(const ModelFormat& format, const std::string& model) {
  TORCH_CHECK(model.empty(), "it is ", format.description,
              " and holds one model, none of the name ", model);
}

std::string describe(ModelFile& file) {
  if (const ModelFormat* format = formatOf(file)) return format->description;
  return file.records().hasRecord("data.pkl") ? "a file of torch.save"
                                              : "an archive of an unknown kind";
}

}  // namespace isopool::client
