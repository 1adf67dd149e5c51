// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <type_traits>

/// The entry point that every fuzzer of this folder defines. libFuzzer or replay_driver.cc calls
/// it. It accepts any bytes, and ends the process if a claim does not hold.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace isopool::fuzz {

/// If the claim does not hold, prints it and ends the process with SIGABRT.
inline void require(bool holds, const char* claim) {
  if (holds) return;
  std::cerr << "does not hold: " << claim << std::endl;
  std::abort();
}

/// Reads the bytes of an input as a sequence of values. Returns zeroes when the bytes are used up.
class InputReader {
 public:
  InputReader(const uint8_t* data, size_t size) : data_(data), size_(size) {}

  bool empty() const { return size_ == 0; }
  size_t left() const { return size_; }

  template <typename T>
  T take() {
    static_assert(std::is_trivially_copyable_v<T>);
    T value{};
    takeInto(&value, sizeof value);
    return value;
  }
  /// Returns the number of bytes copied; the rest of `target` keeps its content.
  size_t takeInto(void* target, size_t bytes) {
    const size_t count = bytes < size_ ? bytes : size_;
    if (count > 0) std::memcpy(target, data_, count);
    data_ += count;
    size_ -= count;
    return count;
  }

 private:
  const uint8_t* data_;
  size_t size_;
};

}  // namespace isopool::fuzz
