// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string>

namespace caffe2::serialize {
class PyTorchStreamReader;
}

namespace isopool::client {

/// What an archive of PyTorch's holds, told from its records: names of files mean nothing.
enum class ArchiveKind : uint8_t {
  kPackage,      ///< torch.package
  kTorchScript,  ///< torch.jit.save
  kCompiled,     ///< a .pt2 of AOTInductor
  kExported,     ///< a .pt2 of torch.export.save
  kSaved,        ///< torch.save
  kUnknown,
};

ArchiveKind archiveKind(caffe2::serialize::PyTorchStreamReader& records);

/// "a TorchScript file", for messages.
const char* nameOf(ArchiveKind kind);

/// A record as text. Throws c10::Error if there is none, or it claims to be longer than a text is.
std::string recordText(caffe2::serialize::PyTorchStreamReader& records, const std::string& name);

}  // namespace isopool::client
