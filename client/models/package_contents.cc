// SPDX-License-Identifier: BSD-3-Clause
#include "client/models/package_contents.h"

#include <c10/util/Exception.h>
#include <caffe2/serialize/inline_container.h>

#include <cctype>
#include <sstream>

#include "client/models/archive_kind.h"

namespace isopool::client {

namespace {

PackageContents readRecords(caffe2::serialize::PyTorchStreamReader& records) {
  const ArchiveKind kind = archiveKind(records);
  const bool isModel = kind == ArchiveKind::kTorchScript || kind == ArchiveKind::kCompiled ||
                       kind == ArchiveKind::kExported;
  TORCH_CHECK(!isModel, "it is not a torch.package but ", nameOf(kind),
              ". Give it to InterpreterManager::loadModel");
  TORCH_CHECK(kind == ArchiveKind::kPackage, "it is not a torch.package but ", nameOf(kind),
              ", for it has no record .data/extern_modules. Make it with "
              "torch.package.PackageExporter");
  PackageContents contents;
  std::istringstream lines(recordText(records, ".data/extern_modules"));
  for (std::string line; std::getline(lines, line);) {
    if (!line.empty()) contents.externModules.push_back(line);
  }
  if (records.hasRecord(".data/python_version")) {
    std::string& version = contents.pythonVersion;
    version = recordText(records, ".data/python_version");
    while (!version.empty() && std::isspace(static_cast<unsigned char>(version.back())) != 0) {
      version.pop_back();
    }
  }
  return contents;
}

}  // namespace

PackageContents readPackage(const ArchiveFile& file) {
  try {
    return readRecords(*file.records());
  } catch (const c10::Error& error) {
    TORCH_CHECK(false, file.name(),
                " can't be opened as a torch.package: ", error.what_without_backtrace());
  }
}

}  // namespace isopool::client
