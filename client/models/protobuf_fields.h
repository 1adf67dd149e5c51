// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace isopool::client {

/// Reads the fields of one protobuf message in their order, from any bytes, without the message's
/// schema. Does not copy: the bytes must outlive it and its fields. Throws nothing; allocates
/// nothing. Not thread-safe.
/// https://protobuf.dev/programming-guides/encoding has the encoding.
class ProtobufFields {
 public:
  enum class Kind : uint8_t {
    kNumber,  ///< a varint, or a fixed number of 4 or 8 bytes
    kBytes    ///< a text, bytes, a message, or a packed list
  };
  struct Field {
    uint64_t id = 0;
    Kind kind = Kind::kNumber;
    uint64_t number = 0;               ///< of a kNumber
    std::span<const std::byte> bytes;  ///< of a kBytes

    bool isNumber(uint64_t wanted) const { return id == wanted && kind == Kind::kNumber; }
    bool isBytes(uint64_t wanted) const { return id == wanted && kind == Kind::kBytes; }
    /// The bytes as text; not checked for UTF-8.
    std::string_view text() const {
      return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
    }
  };

  explicit ProtobufFields(std::span<const std::byte> message) : rest_(message) {}

  /// The next field; nothing at the end, and behind damage. Of a field that claims to be longer
  /// than the message, the bytes that exist; damaged() is true then.
  std::optional<Field> next();
  /// True if next() met bytes that are not a field.
  bool damaged() const { return damaged_; }

 private:
  std::optional<uint64_t> varint();
  std::optional<uint64_t> fixed(size_t bytes);
  std::optional<Field> damage();

  std::span<const std::byte> rest_;
  bool damaged_ = false;
};

}  // namespace isopool::client
