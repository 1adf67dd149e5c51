// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <msgpack.hpp>
#include <string>

#include "ipc/tensor/value_codec.h"

/// The constants, structures and checks that the writer and the reader of payloads share.
namespace isopool::ipc {

/// The first element of an array that encodes a value.
enum class ValueTag : uint32_t { kTuple = 0, kList = 1, kDict = 2, kDevice = 3 };

/// Bits of TensorHead::flags.
enum TensorFlag : uint8_t { kRequiresGrad = 1, kConjugate = 2, kNegative = 4 };

/// The beginning of a tensor's extension value. `rank` sizes and `rank` strides follow.
struct TensorHead {
  uint32_t storage;    ///< index in the payload's storage table
  uint8_t scalarType;  ///< c10::ScalarType
  uint8_t flags;       ///< TensorFlag bits
  uint8_t rank;
  uint8_t unused;
  int64_t storageOffset;  ///< in elements, from the begin of the storage in its record
  uint32_t version;       ///< number of its version counter, or kNoVersion
  uint32_t unusedToo;
};
static_assert(sizeof(TensorHead) == 24);

/// The tensor has no version counter: an inference tensor.
inline constexpr uint32_t kNoVersion = std::numeric_limits<uint32_t>::max();

/// The deepest nesting of values, and of types, in a payload.
inline constexpr int kMaxNesting = 64;
/// So many values are written, or read, between two looks at the clock. A power of two.
inline constexpr size_t kBetweenLooks = 4096;
/// The most parts of one container's types.
inline constexpr size_t kMaxTypeParts = 65536;

/// Throws ValueError.
[[noreturn]] inline void refuse(const std::string& what) { throw ValueError(what); }

/// The element of an array. Throws ValueError if `array` is not an array or is too short.
inline const msgpack::object& itemOf(const msgpack::object& array, size_t index) {
  if (array.type != msgpack::type::ARRAY || index >= array.via.array.size) {
    refuse("a payload lacks an element");
  }
  return array.via.array.ptr[index];
}

/// The number that an object encodes. Throws ValueError if it is not a non-negative integer.
inline uint64_t unsignedOf(const msgpack::object& object) {
  if (object.type != msgpack::type::POSITIVE_INTEGER) refuse("a payload lacks an integer");
  return object.via.u64;
}

/// As unsignedOf(), and throws ValueError if the number exceeds 32 bits.
inline uint32_t unsigned32Of(const msgpack::object& object) {
  const uint64_t value = unsignedOf(object);
  if (value > std::numeric_limits<uint32_t>::max()) refuse("a payload has a too large integer");
  return static_cast<uint32_t>(value);
}

}  // namespace isopool::ipc
