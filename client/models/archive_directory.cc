// SPDX-License-Identifier: BSD-3-Clause
// Structures, names and numbers: PKWARE's APPNOTE.TXT, sections 4.3.12 to 4.3.16 and 4.5.3.
#include "client/models/archive_directory.h"

#include <c10/util/Exception.h>

#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>

namespace isopool::client {

namespace {

using Bytes = std::span<const std::byte>;

constexpr uint32_t kEndSignature = 0x06054b50;
constexpr size_t kEndBytes = 22;
constexpr size_t kLongestComment = 0xffff;
constexpr uint32_t kLocatorSignature = 0x07064b50;
constexpr size_t kLocatorBytes = 20;
constexpr uint32_t kEnd64Signature = 0x06064b50;
constexpr size_t kEnd64Bytes = 56;
constexpr uint32_t kEntrySignature = 0x02014b50;
constexpr size_t kEntryBytes = 46;
constexpr uint16_t kZip64Extra = 1;
constexpr uint32_t kInZip64Extra = 0xffffffff;
// Deflate's best: 258 bytes in two bits.
constexpr uint64_t kBestRatio = 1032;

template <typename Number>
Number numberAt(Bytes bytes, size_t offset) {
  Number number;
  std::memcpy(&number, bytes.data() + offset, sizeof number);
  return number;
}

bool within(uint64_t offset, uint64_t bytes, uint64_t all) {
  return offset <= all && bytes <= all - offset;
}

struct Directory {
  uint64_t offset = 0;
  uint64_t entries = 0;
};

// The last end record, as readers look for it.
std::optional<size_t> endOf(Bytes file) {
  if (file.size() < kEndBytes) return std::nullopt;
  const size_t last = file.size() - kEndBytes;
  const size_t first = last > kLongestComment ? last - kLongestComment : 0;
  for (size_t offset = last + 1; offset-- > first;) {
    if (numberAt<uint32_t>(file, offset) == kEndSignature) return offset;
  }
  return std::nullopt;
}

std::optional<Directory> directoryOf(Bytes file) {
  const auto end = endOf(file);
  if (!end) return std::nullopt;
  if (*end >= kLocatorBytes &&
      numberAt<uint32_t>(file, *end - kLocatorBytes) == kLocatorSignature) {
    const auto end64 = numberAt<uint64_t>(file, *end - kLocatorBytes + 8);
    if (within(end64, kEnd64Bytes, file.size()) &&
        numberAt<uint32_t>(file, end64) == kEnd64Signature) {
      return Directory{numberAt<uint64_t>(file, end64 + 48), numberAt<uint64_t>(file, end64 + 32)};
    }
  }
  return Directory{numberAt<uint32_t>(file, *end + 16), numberAt<uint16_t>(file, *end + 10)};
}

struct Sizes {
  uint64_t compressed;
  uint64_t uncompressed;
};

// `extra`: the entry's further fields, of which one holds sizes that are too long for the entry.
Sizes sizesOf(Bytes entry, Bytes extra) {
  Sizes sizes{numberAt<uint32_t>(entry, 20), numberAt<uint32_t>(entry, 24)};
  for (size_t offset = 0; within(offset, 4, extra.size());) {
    const auto id = numberAt<uint16_t>(extra, offset);
    const auto bytes = numberAt<uint16_t>(extra, offset + 2);
    offset += 4;
    if (!within(offset, bytes, extra.size())) break;
    if (id == kZip64Extra) {
      size_t next = offset;
      const auto take = [&](uint64_t& size) {
        if (size != kInZip64Extra || next + 8 > offset + bytes) return;
        size = numberAt<uint64_t>(extra, next);
        next += 8;
      };
      take(sizes.uncompressed);
      take(sizes.compressed);
      break;
    }
    offset += bytes;
  }
  return sizes;
}

}  // namespace

void checkArchiveDirectory(Bytes file, const std::string& name) {
  const auto directory = directoryOf(file);
  TORCH_CHECK(directory, name, " is no zip archive: it has no directory");
  uint64_t offset = directory->offset;
  for (uint64_t i = 0; i < directory->entries; ++i) {
    TORCH_CHECK(within(offset, kEntryBytes, file.size()) &&
                    numberAt<uint32_t>(file, offset) == kEntrySignature,
                name, " is no zip archive: its directory is damaged");
    const Bytes entry = file.subspan(offset, kEntryBytes);
    const auto nameBytes = numberAt<uint16_t>(entry, 28);
    const auto extraBytes = numberAt<uint16_t>(entry, 30);
    const auto commentBytes = numberAt<uint16_t>(entry, 32);
    const uint64_t behind = uint64_t{nameBytes} + extraBytes + commentBytes;
    TORCH_CHECK(within(offset + kEntryBytes, behind, file.size()), name,
                " is no zip archive: its directory is cut short");
    const Sizes sizes = sizesOf(entry, file.subspan(offset + kEntryBytes + nameBytes, extraBytes));
    const std::string_view entryName(
        reinterpret_cast<const char*>(file.data() + offset + kEntryBytes), nameBytes);
    TORCH_CHECK(sizes.compressed <= file.size(), name, " is no zip archive: ", entryName,
                " claims to be longer than the file");
    TORCH_CHECK(sizes.uncompressed / kBestRatio <= sizes.compressed, name,
                " is no zip archive: ", entryName, " claims to hold ", sizes.uncompressed,
                " bytes in ", sizes.compressed);
    offset += kEntryBytes + behind;
  }
}

}  // namespace isopool::client
