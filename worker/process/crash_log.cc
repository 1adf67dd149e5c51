// SPDX-License-Identifier: BSD-3-Clause
#include "worker/process/crash_log.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cxxabi.h>
#include <cstdlib>
#include <exception>
#include <new>
#include <string>
#include <typeinfo>

#include "ipc/memory/memory_object.h"
#include "worker/process/memory_limit.h"

namespace isopool::worker {

namespace {

int wordsFd = -1;

void writeAll(int fd, std::string_view text) noexcept {
  while (!text.empty()) {
    const ssize_t written = ::write(fd, text.data(), text.size());
    if (written <= 0) return;
    text.remove_prefix(static_cast<size_t>(written));
  }
}

std::string describeCurrentException() {
  const std::type_info* type = abi::__cxa_current_exception_type();
  if (type == nullptr) return "terminate called without an exception";
  std::string text = std::string("terminate called after an exception of type ") + type->name();
  try {
    throw;
  } catch (const std::bad_alloc& error) {
    text.append(": ").append(error.what());
    if (const std::string limit = memoryLimitInWords(); !limit.empty()) text += "\n" + limit;
  } catch (const std::exception& error) {
    text.append(": ").append(error.what());
  } catch (...) {
  }
  return text;
}

[[noreturn]] void tellAndAbort() {
  logError(describeCurrentException() + "\n");
  std::abort();
}

}  // namespace

void keepCrashLog(int fd) {
  wordsFd = fd;
  // O_APPEND, because readers in other processes share this descriptor's file offset.
  ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_APPEND);
  std::set_terminate(tellAndAbort);
}

int crashLogFd() { return wordsFd; }

void appendToCrashLog(std::string_view text) noexcept {
  if (wordsFd < 0) return;
  if (text.size() > kCrashLogBytes) text.remove_prefix(text.size() - kCrashLogBytes);
  writeAll(wordsFd, text);
  struct stat status {};
  if (::fstat(wordsFd, &status) != 0) return;
  const auto size = static_cast<size_t>(status.st_size);
  if (size <= 2 * kCrashLogBytes) return;
  const size_t hole = (size - kCrashLogBytes) / ipc::kPageBytes * ipc::kPageBytes;
  ::fallocate(wordsFd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, static_cast<off_t>(hole));
}

void logError(std::string_view text) noexcept {
  writeAll(STDERR_FILENO, text);
  appendToCrashLog(text);
}

}  // namespace isopool::worker
