// SPDX-License-Identifier: BSD-3-Clause
#include "worker/sandbox/standard_streams.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/system_call.h"
#include "testing/temporary_folder.h"
#include "tests/worker/harness.h"
#include "worker/sandbox/kernel_protections.h"
#include "worker/sandbox/landlock_interface.h"

namespace isopool::tests {
namespace {

namespace fs = std::filesystem;
namespace landlock = worker::landlock;

/// During its lifetime, the standard error of this process, and of processes that it starts,
/// is `replacement`.
class StandardError {
 public:
  explicit StandardError(const base::Fd& replacement)
      : own_(::fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1)) {
    base::checkSystemCall(::dup2(replacement.get(), STDERR_FILENO), "dup2");
  }
  ~StandardError() { ::dup2(own_.get(), STDERR_FILENO); }

 private:
  const base::Fd own_;
};

/// A strict worker whose supervisor's standard streams are files.
class StrictStreams : public ::testing::Test {
 protected:
  std::string path(const char* name) const { return folder_.path() + "/" + name; }
  static void write(const std::string& path, const std::string& text) {
    std::ofstream(path) << text;
  }
  static std::string contents(const std::string& path) {
    std::ostringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  }
  /// `streams`: redirections in the syntax of the shell.
  static std::unique_ptr<ZygoteProcess> zygoteWith(const std::string& streams) {
    return std::make_unique<ZygoteProcess>(
        std::vector<std::string>{"ISOPOOL_SANDBOX=strict"},
        std::vector<std::string>{"/bin/sh", "-c", "exec \"$@\" " + streams, "sh"});
  }
  /// The value of a Python expression as text, or the name of the error's type.
  static std::string outcomeOf(WorkerProcess& worker, const std::string& expression) {
    TestClient client(worker);
    client.defineProbe();
    const std::string source = "import os\ntry:\n    result = str(" + expression +
                               ")\nexcept Exception as error:\n    result = type(error).__name__";
    return client.probeValue("run", {source}).toStringRef();
  }

 private:
  const TemporaryFolder folder_;
};

TEST_F(StrictStreams, TakeWhatIsWrittenAndCannotBeEmptied) {
  const std::string log = path("log");
  write(log, "the operator's\n");
  const auto zygote = zygoteWith("2>>" + log);
  const auto worker = zygote->fork(1);
  if (worker::probeKernelProtections().landlock < landlock::kVersionWithTruncate) {
    GTEST_SKIP() << "this kernel has no rule for emptying files";
  }
  EXPECT_EQ(outcomeOf(*worker, "os.ftruncate(2, 0)"), "PermissionError");
  EXPECT_EQ(outcomeOf(*worker, "os.write(2, b'its own\\n')"), "8");
  // torch may write lines of its own in between, as of a processor that it does not know.
  EXPECT_EQ(contents(log).rfind("the operator's\n", 0), 0u) << contents(log);
  EXPECT_NE(contents(log).find("\nits own\n"), std::string::npos) << contents(log);
}

TEST_F(StrictStreams, LetTheSupervisorsOwnLinesFollowThoseOfWorkers) {
  const std::string log = path("shared_log");
  // Not opened for appending: with offsets of its own, a later line would overwrite an earlier one.
  const base::Fd before(::open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  std::unique_ptr<ZygoteProcess> zygote;
  {
    const StandardError inherited(before);
    zygote = zygoteWith("");
  }
  ASSERT_EQ(::write(before.get(), "first\n", 6), 6);
  const auto worker = zygote->fork(1);
  EXPECT_EQ(outcomeOf(*worker, "os.write(2, b'second\\n')"), "7");
  ASSERT_EQ(::write(before.get(), "third\n", 6), 6);
  EXPECT_NE(contents(log).find("first\nsecond\nthird\n"), std::string::npos) << contents(log);
}

TEST_F(StrictStreams, GiveNothingToReadOfWhatIsTyped) {
  const base::Fd keyboard(::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC));
  ASSERT_TRUE(keyboard.valid());
  ASSERT_EQ(::grantpt(keyboard.get()), 0);
  ASSERT_EQ(::unlockpt(keyboard.get()), 0);
  const std::string terminal = ::ptsname(keyboard.get());
  const auto zygote = zygoteWith("<" + terminal + " 2<>" + terminal);
  const auto worker = zygote->fork(1);
  ASSERT_EQ(::write(keyboard.get(), "secret\n", 7), 7);
  EXPECT_EQ(outcomeOf(*worker, "os.read(0, 100).decode()"), "");
  EXPECT_EQ(outcomeOf(*worker, "os.read(2, 100).decode()"), "OSError");
  EXPECT_EQ(outcomeOf(*worker, "os.isatty(2)"), "True");
}

}  // namespace
}  // namespace isopool::tests
