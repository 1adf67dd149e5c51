// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>

namespace isopool::base {

/// A file can't be read as a whole. The text is the reason, without the file's path.
class FileError : public std::runtime_error {
 public:
  explicit FileError(const std::string& reason, int errorNumber = 0)
      : std::runtime_error(reason), errorNumber_(errorNumber) {}
  /// Of the system call that failed; 0 if none did.
  int errorNumber() const { return errorNumber_; }

 private:
  int errorNumber_;
};

/// Reads a whole file, piece by piece: `piece(data, bytes)`. Only regular files: the open of a FIFO
/// would wait for another process, a device may have no end, and a file of /proc does not have the
/// bytes that its size says. Never more than the size that the file has when it is opened. Throws
/// FileError, also if the file is changed meanwhile, and what `piece` throws. The disk decides how
/// long it takes; a network file system that hangs is waited for.
void readRegularFile(const std::string& path,
                     const std::function<void(const char* data, size_t bytes)>& piece);

/// The content of a file of at most `most` bytes. The same.
std::string contentOfRegularFile(const std::string& path, uint64_t most);

}  // namespace isopool::base
