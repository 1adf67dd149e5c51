// SPDX-License-Identifier: BSD-3-Clause
// The limit of a worker's memory, at each level.
#include <gtest/gtest.h>
#include <unistd.h>

#include <map>

#include "ipc/control/worker_messages.h"
#include "testing/sanitizers.h"
#include "tests/worker/sandboxed.h"

namespace isopool::tests {

namespace {

constexpr const char* kSanitizerTakesMemoryToo =
    "the sanitizer ends a process in which it gets no memory for its own use";

class MemoryLimit : public Sandboxed {
 protected:
  explicit MemoryLimit(ZygoteProcess& zygote = limited("default")) : Sandboxed(zygote) {}

  static ZygoteProcess& limited(const char* level) {
    static std::map<std::string, ZygoteProcess> zygotes;
    return zygotes
        .try_emplace(level, std::vector<std::string>{std::string("ISOPOOL_SANDBOX=") + level,
                                                     "ISOPOOL_WORKER_MEMORY=256MiB"})
        .first->second;
  }
  uint64_t limit() {
    return static_cast<uint64_t>(
        resultOf("import resource; result = resource.getrlimit(resource.RLIMIT_DATA)[0]").toInt());
  }
  void expectBreach(const std::string& source, const std::string& type) {
    const std::string message = errorOf(source, type);
    EXPECT_TRUE(
        has(message, "isopool: the worker's memory is limited to 256 MiB (ISOPOOL_WORKER_MEMORY)"))
        << message;
    EXPECT_EQ(toldActs(1), (Acts{{"memory beyond ISOPOOL_WORKER_MEMORY", 1}}));
    expectServes();
    EXPECT_EQ(resultOf("result = len(bytearray(100 << 20))").toInt(), 100 << 20);
  }
};

class StrictMemoryLimit : public MemoryLimit {
 protected:
  StrictMemoryLimit() : MemoryLimit(limited("strict")) {}
};

}  // namespace

TEST_F(MemoryLimit, IsNamedInTheErrorForATooLargeTensor) {
  expectBreach("import torch; torch.empty(1 << 30, dtype=torch.uint8)", "RuntimeError");
}

TEST_F(MemoryLimit, IsNamedInTheErrorForTooManyTensors) {
  if (kUnderAddressSanitizer) GTEST_SKIP() << kSanitizerTakesMemoryToo;
  expectBreach("import torch\nkept = []\nwhile True: kept.append(torch.ones(1 << 22))",
               "RuntimeError");
}

TEST_F(MemoryLimit, IsNamedInTheErrorForATooLargeObject) {
  expectBreach("bytearray(1 << 30)", "MemoryError");
  expectBreach("[None] * (1 << 28)", "MemoryError");
}

TEST_F(MemoryLimit, IsNamedInTheErrorForNativeAllocations) {
  if (kUnderAddressSanitizer) GTEST_SKIP() << kSanitizerTakesMemoryToo;
  expectBreach(
      "import numpy\ntry: numpy.zeros(1 << 27)\nexcept MemoryError as e: raise OSError from e",
      "OSError");
  expectBreach("import zlib; zlib.decompress(zlib.compress(bytes(1 << 26)), bufsize=1 << 30)",
               "MemoryError");
}

TEST_F(MemoryLimit, IsNamedIfItCausedAnotherError) {
  expectBreach("try:\n  bytearray(1 << 30)\nexcept MemoryError as e: raise KeyError('x') from e",
               "KeyError");
}

TEST_F(MemoryLimit, IsInTheCrashLogOfAWorkerThatDiesOfIt) {
  // operator new throws on a thread that does not catch the exception.
  client.publishProbe("run", {R"(
import ctypes, threading
new = ctypes.CDLL('libstdc++.so.6')._Znwm
threading.Thread(target=new, args=(ctypes.c_size_t(1 << 30),)).start()
threading.Event().wait()
)"});
  EXPECT_EQ(worker->waitForEnd().signal, SIGABRT);
  const std::string words = worker->readCrashLog();
  EXPECT_TRUE(has(words, "std::bad_alloc")) << words;
  EXPECT_TRUE(has(words, "isopool: the worker's memory is limited to 256 MiB")) << words;
}

TEST_F(MemoryLimit, IsNotMentionedByOtherErrors) {
  EXPECT_EQ(errorOf("raise ValueError('no')", "ValueError"), "no");
}

TEST_F(StrictMemoryLimit, HoldsUnderStrictToo) {
  expectBreach("import torch; torch.empty(1 << 30, dtype=torch.uint8)", "RuntimeError");
}

TEST_F(StrictMemoryLimit, CanNotBeRaisedByUserCode) {
  const uint64_t before = limit();
  errorOf("import resource; resource.setrlimit(resource.RLIMIT_DATA, (-1, -1))", "ValueError");
  errorOf("import resource, os; resource.prlimit(os.getpid(), resource.RLIMIT_DATA, (-1, -1))",
          "PermissionError");
  EXPECT_EQ(limit(), before);
}

class PackageUnderLimit : public MemoryLimit, public ::testing::WithParamInterface<const char*> {
 protected:
  PackageUnderLimit() : MemoryLimit(limited(GetParam())) {}
};

TEST_P(PackageUnderLimit, DoesNotCountAndItsEndRestoresTheLimit) {
  const uint64_t before = limit();
  constexpr uint64_t kBytes = uint64_t{1} << 30;
  const base::Fd package = ipc::createGrowingMemoryObject("package");
  ASSERT_EQ(::ftruncate(package.get(), kBytes), 0);
  ipc::sealMemoryObject(package, ipc::Seal::kReadOnly);
  worker->send(ipc::MapPackage{1, 77, kBytes, "large.pt", false}, {package.get()});
  ASSERT_TRUE([&] {
    for (int i = 0; i < 1000; ++i) {
      if (limit() == before + kBytes) return true;
    }
    return false;
  }()) << "four times the limit was not mapped";
  expectBreach("bytearray(1 << 30)", "MemoryError");
  worker->send(ipc::UnmapPackage{1, {77}});
  ASSERT_TRUE([&] {
    for (int i = 0; i < 1000; ++i) {
      if (limit() == before) return true;
    }
    return false;
  }());
}

INSTANTIATE_TEST_SUITE_P(AtEachLevel, PackageUnderLimit, ::testing::Values("default", "strict"),
                         [](const auto& each) { return std::string(each.param); });

}  // namespace isopool::tests
