// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <utility>

namespace isopool::base {

/// Owns one file descriptor and closes it once. Move-only; an empty one holds -1. Not thread-safe.
class Fd {
 public:
  Fd() = default;
  /// Owns `fd` from now on; a negative number, as failed system calls return it, makes it empty.
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    if (this != &other) {
      close();
      fd_ = std::exchange(other.fd_, -1);
    }
    return *this;
  }
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;
  ~Fd() { close(); }

  /// The number, or -1. The object keeps the ownership.
  int get() const { return fd_; }
  /// False for an empty one. A descriptor whose file has an error is valid.
  bool valid() const { return fd_ >= 0; }
  /// Passes the ownership to the caller.
  int release() { return std::exchange(fd_, -1); }
  /// Closes the descriptor, if there is one. Errors of close(2) are ignored: the number is free in
  /// any case.
  void close() noexcept;

  /// A second descriptor (close-on-exec) of the same open file. Throws SystemCallError.
  Fd duplicate() const;

 private:
  int fd_ = -1;
};

}  // namespace isopool::base
