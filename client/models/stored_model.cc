// SPDX-License-Identifier: BSD-3-Clause
#include "client/models/stored_model.h"

#include <c10/util/Exception.h>

#include <utility>

#include "client/models/model_formats.h"

namespace isopool::client {

namespace {

StoredModel prepared(std::shared_ptr<ArchiveFile> file, const std::string& name) {
  ModelFile contents(file->name(), file->contents());
  const ModelFormat* format = formatOf(contents);
  TORCH_CHECK(format != nullptr, "it is ", describe(contents),
              ". A model is what torch.jit.save, torch._inductor.aoti_compile_and_package, "
              "torch.export.save or torch.onnx.export writes");
  PreparedModel model = format->prepare(contents, name);
  auto sent = model.part
                  ? ArchiveFile::copyOf(file->name(), model.part->data.get(), model.part->bytes)
                  : std::move(file);
  return {std::move(sent), format->name, std::move(model.options)};
}

}  // namespace

StoredModel readModel(std::shared_ptr<ArchiveFile> file, const std::string& name) {
  const std::string fileName = file->name();
  try {
    return prepared(std::move(file), name);
  } catch (const c10::Error& error) {
    TORCH_CHECK(false, fileName, " can't be opened as a model: ", error.what_without_backtrace());
  }
}

}  // namespace isopool::client
