// SPDX-License-Identifier: BSD-3-Clause
// Managers of processes with an unusual environment: each in a fork of this process, which itself
// never uses the library.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "tests/client/harness.h"

namespace isopool::tests {
namespace {

/// What `inChild` returns in a fork with a manager's first use; how it ended if it did not return.
std::string inFork(const std::function<std::string()>& inChild) {
  packagePath();
  int ends[2];
  if (::pipe(ends) != 0) return "no pipe";
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(120);
    std::string text;
    try {
      text = inChild();
    } catch (const std::exception& error) {
      text = error.what();
    }
    (void)!::write(ends[1], text.data(), text.size());
    ::_exit(0);
  }
  ::close(ends[1]);
  std::string text;
  char part[4096];
  for (ssize_t got = 0; (got = ::read(ends[0], part, sizeof part)) > 0;) {
    text.append(part, static_cast<size_t>(got));
  }
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFSIGNALED(status) ? "signal " + std::to_string(WTERMSIG(status)) : text;
}

/// The value of a variable in a worker of a new manager.
std::string inWorker(const char* variable) {
  InterpreterManager manager(1);
  return Subject(manager).text("environment", {variable});
}

TEST(ProcessEnvironment, MayBeCleared) {
  EXPECT_EQ(inFork([] {
              ::clearenv();
              return inWorker("HOME") + "works";
            }),
            "works");
}

TEST(ProcessEnvironment, MayHaveEntriesThatAreNoVariablesAndAnyBytes) {
  EXPECT_EQ(inFork([] {
              static char withoutValue[] = "GLIBC_TUNABLES";
              static char withoutName[] = "=value";
              static char empty[] = "";
              static char other[] = "\xff\xfe=\xff";
              static char ours[] = "ISOPOOL_TEST_TEXT=\xc3\xa4=\xc3\xb6";
              static char* variables[] = {withoutValue, withoutName, empty, other, ours, nullptr};
              ::environ = variables;
              return inWorker("ISOPOOL_TEST_TEXT");
            }),
            "\xc3\xa4=\xc3\xb6");
}

TEST(ProcessEnvironment, ThatIsTooLargeForANewProcessIsReportedWithItsLargestVariable) {
  const std::string text = inFork([] {
    ::setenv("ISOPOOL_TEST_LARGE", std::string(1 << 20, 'x').c_str(), 1);
    return inWorker("HOME");
  });
  EXPECT_NE(text.find("its largest variable, ISOPOOL_TEST_LARGE, has 1048595 bytes"),
            std::string::npos)
      << text;
}

}  // namespace
}  // namespace isopool::tests
