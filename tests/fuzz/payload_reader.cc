// SPDX-License-Identifier: BSD-3-Clause
// The reader of payloads: arbitrary bytes as a payload, with its storages in memory between
// protected pages. What the reader accepts is read byte by byte, written again and read again.
#include <c10/core/CPUAllocator.h>

#include <vector>

#include "ipc/tensor/value_codec.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/guarded_memory.h"
#include "tests/fuzz/tensor_values.h"

namespace isopool::fuzz {
namespace {

constexpr size_t kArenaBytes = 8192;

c10::Storage storageAt(const std::byte* data, size_t bytes) {
  return c10::Storage(c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), static_cast<int64_t>(bytes),
      c10::DataPtr(const_cast<std::byte*>(data), c10::Device(c10::DeviceType::CPU)),
      /*allocator=*/nullptr, /*resizable=*/false));
}

// Like both sides of a channel: looks up a place in the mapped memory, and refuses it if it
// is outside.
std::vector<c10::Storage> storagesFor(const ipc::PayloadReader& reader,
                                      const GuardedMemory& arena) {
  std::vector<c10::Storage> storages;
  for (const ipc::StorageRecord& record : reader.storages()) {
    switch (record.kind) {
      case ipc::StorageKind::kInline: {
        c10::Allocator* allocator = c10::GetCPUAllocator();
        c10::DataPtr copy = allocator->allocate(record.inlineBytes.size());
        if (!record.inlineBytes.empty()) {
          std::memcpy(copy.get(), record.inlineBytes.data(), record.inlineBytes.size());
        }
        storages.emplace_back(c10::Storage::use_byte_size_t(), record.inlineBytes.size(),
                              std::move(copy), allocator);
        break;
      }
      case ipc::StorageKind::kLent:
      case ipc::StorageKind::kHome:
      case ipc::StorageKind::kPackage:
        if (record.offset > arena.bytes() || record.bytes > arena.bytes() - record.offset) {
          throw ipc::ValueError("it is outside the arena");
        }
        storages.push_back(storageAt(arena.data() + record.offset, record.bytes));
        break;
      case ipc::StorageKind::kEcho:
        // Shorter than the sender may expect.
        storages.push_back(storageAt(arena.data() + arena.bytes() - 64, 64));
        break;
    }
  }
  return storages;
}

void read(std::span<const std::byte> bytes) {
  static const GuardedMemory arena(kArenaBytes);
  ipc::PayloadReader reader(bytes);
  reader.setStorages(storagesFor(reader, arena));
  reader.inputReport();
  std::vector<at::IValue> values;
  for (size_t i = 0; i < reader.elements(); ++i) {
    const msgpack::object& element = reader.element(i);
    if (element.type == msgpack::type::POSITIVE_INTEGER) reader.integer(i);
    if (element.type == msgpack::type::STR) reader.text(i);
    if (ipc::PayloadReader::handle(element)) continue;
    values.push_back(reader.value(element));
    touchTensors(values.back());
  }
  const std::vector<std::byte> written = payloadOf(values);
  require(payloadOf(elementsOf(written)) == written, "a value that crossed once crosses unchanged");
}

}  // namespace
}  // namespace isopool::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    isopool::fuzz::read({reinterpret_cast<const std::byte*>(data), size});
  } catch (const isopool::ipc::ValueError&) {
    // The expected answer to invalid bytes.
  }
  return 0;
}
