// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "ipc/tensor/value_codec.h"

namespace isopool::ipc {

/// A payload as it is sent: every storage lies outside shared memory, and the part that its tensors
/// reach is copied into the payload.
class Crossing {
 public:
  /// `values` are the elements of the body.
  explicit Crossing(const std::vector<at::IValue>& values) {
    writer_.packer().pack_array(static_cast<uint32_t>(values.size()));
    for (const at::IValue& value : values) writer_.addValue(value);
    for (size_t i = 0; i < writer_.storages().size(); ++i) {
      const c10::Storage& storage = writer_.storages()[i];
      const StorageExtent extent = writer_.extentOfStorage(i);
      EXPECT_EQ(extent.begin % 64, 0u);
      EXPECT_LE(extent.begin, extent.end);
      EXPECT_LE(extent.end, storage.nbytes()) << "the copied part must exist";
      if (extent.end > storage.nbytes()) return;
      StorageRecord record;
      record.rebase = extent.begin;
      record.inlineBytes = {static_cast<const std::byte*>(storage.data()) + extent.begin,
                            extent.end - extent.begin};
      records_.push_back(record);
    }
    const auto written = writer_.finish(records_);
    bytes_.assign(written.begin(), written.end());
  }

  const std::vector<std::byte>& bytes() const { return bytes_; }
  size_t storages() const { return records_.size(); }

  std::vector<at::IValue> read() const { return readPayload(bytes_); }

  static std::vector<at::IValue> readPayload(const std::vector<std::byte>& bytes) {
    PayloadReader reader(bytes);
    std::vector<c10::Storage> storages;
    for (const StorageRecord& record : reader.storages()) {
      at::Tensor copy = at::empty({static_cast<int64_t>(record.inlineBytes.size())}, at::kByte);
      std::copy(record.inlineBytes.begin(), record.inlineBytes.end(),
                static_cast<std::byte*>(copy.data_ptr()));
      storages.push_back(copy.storage());
    }
    reader.setStorages(std::move(storages));
    std::vector<at::IValue> values;
    for (size_t i = 0; i < reader.elements(); ++i) {
      values.push_back(reader.value(reader.element(i)));
    }
    return values;
  }

 private:
  PayloadWriter writer_;
  std::vector<StorageRecord> records_;
  std::vector<std::byte> bytes_;
};

template <typename Act>
std::string refusalOf(Act&& act) {
  try {
    act();
  } catch (const ValueError& error) {
    return error.what();
  }
  return "it was not refused";
}

}  // namespace isopool::ipc
