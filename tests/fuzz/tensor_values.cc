// SPDX-License-Identifier: BSD-3-Clause
#include "tests/fuzz/tensor_values.h"

#include <ATen/core/Dict.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue_inl.h>
#include <ATen/core/jit_type.h>
#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>

#include <cstring>

#include "ipc/tensor/value_codec.h"
#include "tests/fuzz/fuzz_target.h"

namespace isopool::fuzz {

namespace {

volatile unsigned char seen;  // so that the compiler keeps every read

void touch(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.numel() == 0) return;
  require(tensor.storage_offset() >= 0, "a tensor begins in its storage");
  uint64_t last = static_cast<uint64_t>(tensor.storage_offset());
  for (int64_t i = 0; i < tensor.dim(); ++i) {
    last += static_cast<uint64_t>((tensor.size(i) - 1) * tensor.stride(i));
  }
  const uint64_t end = (last + 1) * tensor.element_size();
  require(end <= tensor.storage().nbytes(), "a tensor ends in its storage");
  const auto* bytes = static_cast<const unsigned char*>(tensor.storage().data());
  seen = bytes[static_cast<uint64_t>(tensor.storage_offset()) * tensor.element_size()];
  seen = bytes[end - 1];
  constexpr int64_t kFew = 4096;
  if (tensor.numel() > kFew) return;
  try {
    // What user code usually does first.
    const at::Tensor copy = tensor.resolve_conj().resolve_neg().contiguous();
    for (size_t i = 0; i < copy.nbytes(); ++i) {
      seen = static_cast<const unsigned char*>(copy.const_data_ptr())[i];
    }
  } catch (const c10::Error&) {
    // Torch supports few operations for some element types.
  }
}

}  // namespace

void touchTensors(const at::IValue& value) {
  if (value.isTensor()) {
    touch(value.toTensor());
  } else if (value.isTuple()) {
    for (const auto& element : value.toTupleRef().elements()) touchTensors(element);
  } else if (value.isList()) {
    const auto list = value.toList();
    for (size_t i = 0; i < list.size(); ++i) touchTensors(list.get(i));
  } else if (value.isGenericDict()) {
    for (const auto& entry : value.toGenericDict()) {
      touchTensors(entry.key());
      touchTensors(entry.value());
    }
  }
}

std::vector<std::byte> payloadOf(const std::vector<at::IValue>& elements) {
  ipc::PayloadWriter writer;
  writer.packer().pack_array(static_cast<uint32_t>(elements.size()));
  for (const at::IValue& element : elements) writer.addValue(element);
  std::vector<ipc::StorageRecord> records;
  for (size_t i = 0; i < writer.storages().size(); ++i) {
    const ipc::StorageExtent extent = writer.extentOfStorage(i);
    const auto* data = static_cast<const std::byte*>(writer.storages()[i].data());
    ipc::StorageRecord record;
    record.rebase = extent.begin;
    record.inlineBytes = {data + extent.begin, extent.end - extent.begin};
    records.push_back(record);
  }
  const auto written = writer.finish(records);
  return {written.begin(), written.end()};
}

std::vector<at::IValue> elementsOf(const std::vector<std::byte>& payload) {
  ipc::PayloadReader reader(payload);
  std::vector<c10::Storage> storages;
  c10::Allocator* allocator = c10::GetCPUAllocator();
  for (const ipc::StorageRecord& record : reader.storages()) {
    c10::DataPtr data = allocator->allocate(record.inlineBytes.size());
    if (!record.inlineBytes.empty()) {
      std::memcpy(data.get(), record.inlineBytes.data(), record.inlineBytes.size());
    }
    storages.emplace_back(c10::Storage::use_byte_size_t(), record.inlineBytes.size(),
                          std::move(data), allocator);
  }
  reader.setStorages(std::move(storages));
  std::vector<at::IValue> elements;
  for (size_t i = 0; i < reader.elements(); ++i) {
    elements.push_back(reader.value(reader.element(i)));
  }
  return elements;
}

}  // namespace isopool::fuzz
