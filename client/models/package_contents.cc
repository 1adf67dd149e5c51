// SPDX-License-Identifier: BSD-3-Clause
#include "client/models/package_contents.h"

#include <c10/util/Exception.h>
#include <caffe2/serialize/inline_container.h>

#include <cctype>
#include <sstream>

#include "client/models/model_formats.h"

namespace isopool::client {

namespace {

PackageContents readRecords(ModelFile& file) {
  const ModelFormat* format = formatOf(file);
  TORCH_CHECK(format == nullptr || format == &kTorchPackage, "it is not a torch.package but ",
              describe(file), ". Give it to InterpreterManager::loadModel");
  TORCH_CHECK(format != nullptr, "it is not a torch.package but ", describe(file),
              ", for it has no record .data/extern_modules. Make it with "
              "torch.package.PackageExporter");
  PackageContents contents;
  std::istringstream lines(file.text(".data/extern_modules"));
  for (std::string line; std::getline(lines, line);) {
    if (!line.empty()) contents.externModules.push_back(line);
  }
  if (file.records().hasRecord(".data/python_version")) {
    std::string& version = contents.pythonVersion;
    version = file.text(".data/python_version");
    while (!version.empty() && std::isspace(static_cast<unsigned char>(version.back())) != 0) {
      version.pop_back();
    }
  }
  return contents;
}

}  // namespace

PackageContents readPackage(const ArchiveFile& file) {
  try {
    ModelFile contents(file.name(), file.contents());
    return readRecords(contents);
  } catch (const c10::Error& error) {
    TORCH_CHECK(false, file.name(),
                " can't be opened as a torch.package: ", error.what_without_backtrace());
  }
}

}  // namespace isopool::client
