// SPDX-License-Identifier: BSD-3-Clause
#include "client/models/protobuf_fields.h"

#include <algorithm>

namespace isopool::client {

namespace {

enum WireType : uint8_t { kVarint = 0, kFixed64 = 1, kLength = 2, kFixed32 = 5 };

constexpr uint64_t kLargestId = (uint64_t{1} << 29) - 1;

}  // namespace

std::optional<ProtobufFields::Field> ProtobufFields::next() {
  if (damaged_ || rest_.empty()) return std::nullopt;
  const auto tag = varint();
  if (!tag) return damage();
  Field field;
  field.id = *tag >> 3;
  if (field.id == 0 || field.id > kLargestId) return damage();
  std::optional<uint64_t> value;
  switch (*tag & 7) {
    case kVarint:
    case kLength:
      value = varint();
      break;
    case kFixed64:
      value = fixed(8);
      break;
    case kFixed32:
      value = fixed(4);
      break;
    default:
      break;
  }
  if (!value) return damage();
  if ((*tag & 7) != kLength) {
    field.number = *value;
    return field;
  }
  field.kind = Kind::kBytes;
  damaged_ = *value > rest_.size();
  field.bytes = rest_.first(static_cast<size_t>(std::min<uint64_t>(*value, rest_.size())));
  rest_ = rest_.subspan(field.bytes.size());
  return field;
}

// Seven bits a byte, the lowest first; the eighth says that another byte follows.
std::optional<uint64_t> ProtobufFields::varint() {
  uint64_t value = 0;
  for (size_t i = 0; i < rest_.size() && i < 10; ++i) {
    const auto byte = std::to_integer<uint64_t>(rest_[i]);
    value |= (byte & 0x7f) << (7 * i);
    if (byte < 0x80) {
      rest_ = rest_.subspan(i + 1);
      return value;
    }
  }
  return std::nullopt;
}

std::optional<uint64_t> ProtobufFields::fixed(size_t bytes) {
  if (rest_.size() < bytes) return std::nullopt;
  uint64_t value = 0;
  for (size_t i = 0; i < bytes; ++i) value |= std::to_integer<uint64_t>(rest_[i]) << (8 * i);
  rest_ = rest_.subspan(bytes);
  return value;
}

std::optional<ProtobufFields::Field> ProtobufFields::damage() {
  damaged_ = true;
  return std::nullopt;
}

}  // namespace isopool::client
