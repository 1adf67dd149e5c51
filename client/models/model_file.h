// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

namespace caffe2::serialize {
class PyTorchStreamReader;
}

namespace isopool::client {

/// The bytes of a file that may hold a model, as the formats examine them. They may be any bytes.
/// Does not copy them: they must outlive it. Not thread-safe.
class ModelFile {
 public:
  using Records = caffe2::serialize::PyTorchStreamReader;

  /// `name`: the file's, for messages.
  ModelFile(std::string name, std::span<const std::byte> bytes);
  ~ModelFile();
  ModelFile(const ModelFile&) = delete;
  ModelFile& operator=(const ModelFile&) = delete;

  std::span<const std::byte> bytes() const { return bytes_; }
  /// True if it begins as every ZIP archive of PyTorch does. Does not open the archive.
  bool beginsAsArchive() const;
  /// Its records, opened at the first use. Throws c10::Error, with the file's name, if it is not an
  /// archive of PyTorch's; the next use then tries again.
  Records& records();
  /// A record as text. Throws c10::Error if there is none of that name, or if it claims to be
  /// longer than ipc::kMostModelOptionsBytes.
  std::string text(const std::string& record);

 private:
  const std::string name_;
  const std::span<const std::byte> bytes_;
  std::unique_ptr<Records> records_;
};

}  // namespace isopool::client
