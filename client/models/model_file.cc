// SPDX-License-Identifier: BSD-3-Clause
#include "client/models/model_file.h"

#include <c10/util/Exception.h>
#include <caffe2/serialize/in_memory_adapter.h>
#include <caffe2/serialize/inline_container.h>

#include <algorithm>
#include <array>
#include <utility>

#include "client/models/archive_directory.h"
#include "ipc/channel/operation.h"

namespace isopool::client {

ModelFile::ModelFile(std::string name, std::span<const std::byte> bytes)
    : name_(std::move(name)), bytes_(bytes) {}

ModelFile::~ModelFile() = default;

bool ModelFile::beginsAsArchive() const {
  constexpr std::array kLocalHeader{std::byte{'P'}, std::byte{'K'}, std::byte{3}, std::byte{4}};
  return bytes_.size() >= kLocalHeader.size() &&
         std::equal(kLocalHeader.begin(), kLocalHeader.end(), bytes_.begin());
}

ModelFile::Records& ModelFile::records() {
  if (!records_) {
    checkArchiveDirectory(bytes_, name_);
    records_ = std::make_unique<Records>(std::make_shared<caffe2::serialize::MemoryReadAdapter>(
        bytes_.data(), static_cast<off_t>(bytes_.size())));
  }
  return *records_;
}

std::string ModelFile::text(const std::string& record) {
  // A damaged archive may claim gigabytes, and they would be allocated before anything is read.
  constexpr size_t kMostText = ipc::kMostModelOptionsBytes;
  const size_t claimed = records().getRecordSize(record);
  TORCH_CHECK(claimed <= kMostText, "its record ", record, " claims ", claimed,
              " bytes, and a text has at most ", kMostText, ": the file is damaged");
  const auto [data, size] = records().getRecord(record);
  return {static_cast<const char*>(data.get()), size};
}

}  // namespace isopool::client
