// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>

#include "tests/worker/harness.h"

/// Workers in which tests try what user code may not do.
namespace isopool::tests {

bool has(const std::string& text, const std::string& part);

/// A folder beside the probe's package. The sandboxes below may read "readable" and write
/// "writable", but do not see "hidden".
const std::filesystem::path& folder(const std::string& name);

/// Of the level strict.
ZygoteProcess& strictZygote();

using Acts = std::map<std::string, uint64_t>;

/// One worker with the Probe in it.
class Sandboxed : public ::testing::Test {
 protected:
  explicit Sandboxed(ZygoteProcess& zygote);

  Answer run(const std::string& source) { return client.probe("run", {source}); }
  at::IValue resultOf(const std::string& source) { return client.probeValue("run", {source}); }
  /// The message of the error that the source raises, which must be of this type.
  std::string errorOf(const std::string& source, const std::string& type);
  /// The acts that the worker reports to its supervisor, read until `count` acts are reported.
  Acts toldActs(uint64_t count);
  void expectServes() { EXPECT_EQ(resultOf("result = 6 * 7").toInt(), 42); }

  std::unique_ptr<WorkerProcess> worker;
  TestClient client;
};

class Strict : public Sandboxed {
 protected:
  Strict() : Sandboxed(strictZygote()) {}
};

/// Calls functions of libc that Python does not offer.
inline constexpr const char* kNative = R"(
import ctypes, os, socket, struct
libc = ctypes.CDLL(None, use_errno=True)
def native(function, *arguments):
    ctypes.set_errno(0)
    if function(*arguments) == -1:
        raise OSError(ctypes.get_errno(), "it failed")
def call(*words):
    native(libc.syscall, *(ctypes.c_long(word) for word in words))
)";

}  // namespace isopool::tests
