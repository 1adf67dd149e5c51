// SPDX-License-Identifier: BSD-3-Clause
#include "client/models/archive_kind.h"

#include <caffe2/serialize/inline_container.h>

namespace isopool::client {

ArchiveKind archiveKind(caffe2::serialize::PyTorchStreamReader& records) {
  if (records.hasRecord(".data/extern_modules")) return ArchiveKind::kPackage;
  if (records.hasRecord("constants.pkl")) return ArchiveKind::kTorchScript;
  if (records.hasRecord("archive_format") && recordText(records, "archive_format") == "pt2") {
    bool exported = false;
    for (const std::string& name : records.getAllRecords()) {
      if (name.rfind("data/aotinductor/", 0) == 0) return ArchiveKind::kCompiled;
      exported = exported || name.rfind("models/", 0) == 0;
    }
    if (exported) return ArchiveKind::kExported;
  }
  return records.hasRecord("data.pkl") ? ArchiveKind::kSaved : ArchiveKind::kUnknown;
}

const char* nameOf(ArchiveKind kind) {
  switch (kind) {
    case ArchiveKind::kPackage:
      return "a torch.package";
    case ArchiveKind::kTorchScript:
      return "a TorchScript file";
    case ArchiveKind::kCompiled:
      return "a model compiled by AOTInductor";
    case ArchiveKind::kExported:
      return "a program of torch.export";
    case ArchiveKind::kSaved:
      return "a file of torch.save";
    case ArchiveKind::kUnknown:
      break;
  }
  return "an archive of an unknown kind";
}

std::string recordText(caffe2::serialize::PyTorchStreamReader& records, const std::string& name) {
  // A damaged archive may claim gigabytes, and they would be allocated before anything is read.
  constexpr size_t kMostText = size_t{64} << 20;
  const size_t claimed = records.getRecordSize(name);
  TORCH_CHECK(claimed <= kMostText, "its record ", name, " claims ", claimed,
              " bytes, and a text has at most ", kMostText, ": the file is damaged");
  const auto [data, size] = records.getRecord(name);
  return {static_cast<const char*>(data.get()), size};
}

}  // namespace isopool::client
