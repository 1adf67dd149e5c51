// SPDX-License-Identifier: BSD-3-Clause
#include "client/models/package_contents.h"

#include <c10/util/Exception.h>
#include <caffe2/serialize/inline_container.h>

#include <algorithm>
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

// The result of `read` with the opened file; names the file in errors.
template <typename Read>
auto readFrom(const ArchiveFile& file, Read&& read) {
  try {
    ModelFile contents(file.name(), file.contents());
    return read(contents);
  } catch (const c10::Error& error) {
    TORCH_CHECK(false, file.name(),
                " can't be opened as a torch.package: ", error.what_without_backtrace());
  }
}

}  // namespace

PackageContents readPackage(const ArchiveFile& file) { return readFrom(file, readRecords); }

std::optional<std::string> readResource(const ArchiveFile& file, const std::string& module,
                                        const std::string& name) {
  return readFrom(file, [&](ModelFile& contents) -> std::optional<std::string> {
    std::string record = module + "/" + name;
    std::replace(record.begin(), record.begin() + static_cast<ptrdiff_t>(module.size()), '.', '/');
    if (!contents.records().hasRecord(record)) return std::nullopt;
    return contents.text(record);
  });
}

}  // namespace isopool::client
