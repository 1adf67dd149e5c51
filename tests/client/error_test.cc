// SPDX-License-Identifier: BSD-3-Clause
#include <unistd.h>

#include "tests/client/harness.h"

namespace isopool::tests {
namespace {

RemoteError errorOf(const std::string& method, std::vector<at::IValue> arguments = {},
                    const Subject& subject = sharedSubject()) {
  try {
    subject.ask(method, std::move(arguments));
  } catch (const RemoteError& error) {
    return error;
  }
  ADD_FAILURE() << method << " did not throw a RemoteError";
  return {"", "", "", "", ""};
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(Error, OfPythonCarriesTypeMessageTracebackAndWorker) {
  InterpreterManager manager(1);
  const Subject subject(manager);
  const int64_t process = subject.number("pid");
  const RemoteError error = errorOf("fail", {at::ones({1000})}, subject);
  EXPECT_EQ(error.pythonType(), "ValueError");
  EXPECT_EQ(error.message(), "no such luck: \u00e9");
  EXPECT_TRUE(contains(error.traceback(), "Traceback (most recent call last)"));
  EXPECT_TRUE(contains(error.traceback(), "raise ValueError(")) << error.traceback();
  EXPECT_TRUE(contains(error.worker(), "(pid " + std::to_string(process) + ")")) << error.worker();
}

TEST(Error, OfPythonIsARuntimeErrorWithTorchDeploysText) {
  try {
    sharedSubject().ask("fail", {1});
    FAIL() << "no error";
  } catch (const std::runtime_error& error) {
    const std::string text = error.what();
    EXPECT_TRUE(contains(text, "Exception Caught inside torch::deploy embedded library"));
    EXPECT_TRUE(contains(text, "ValueError: no such luck: \u00e9")) << text;
    EXPECT_TRUE(contains(text, "): fail\n")) << text;
  }
  EXPECT_THROW(sharedSubject().ask("fail", {1}), Error);
}

TEST(Error, OfPythonLeavesTheWorkerAlive) {
  InterpreterManager manager(1);
  const Subject subject(manager);
  const int64_t process = subject.number("pid");
  for (int i = 0; i < 100; ++i) errorOf("fail", {at::ones({1000})}, subject);
  EXPECT_EQ(subject.number("pid"), process);
  EXPECT_EQ(manager.workersReplaced(), 0u);
}

TEST(Error, OfACallReleasesItsInput) {
  at::Tensor x = empty({1000}).fill_(1);
  const void* place = x.data_ptr();
  errorOf("fail", {x});
  x.reset();
  // The worker has returned the input's lease with its answer; the next call processes the return.
  sharedSubject().ask("nothing");
  EXPECT_EQ(empty({1000}).data_ptr(), place);
}

TEST(Error, SysExitDoesNotEndTheWorker) {
  InterpreterManager manager(1);
  const Subject subject(manager);
  const int64_t process = subject.number("pid");
  const RemoteError error = errorOf("leave", {3}, subject);
  EXPECT_EQ(error.pythonType(), "SystemExit");
  EXPECT_TRUE(contains(error.message(), "exit code 3")) << error.message();
  EXPECT_EQ(subject.number("pid"), process);
}

TEST(Error, OddExceptionsArriveToo) {
  EXPECT_EQ(errorOf("recurse").pythonType(), "RecursionError");
  EXPECT_EQ(errorOf("interrupt").pythonType(), "KeyboardInterrupt");
  EXPECT_TRUE(contains(errorOf("unprintable").pythonType(), "Unprintable"));
  EXPECT_EQ(errorOf("surrogate_error").pythonType(), "ValueError");
  EXPECT_TRUE(contains(errorOf("surrogate_error").message(), "lone"));
  const RemoteError chained = errorOf("chained");
  EXPECT_EQ(chained.pythonType(), "RuntimeError");
  EXPECT_TRUE(contains(chained.traceback(), "KeyError: 'first'")) << chained.traceback();
}

TEST(Error, ALongMessageIsTruncated) {
  const RemoteError error = errorOf("long_error");
  EXPECT_EQ(error.pythonType(), "ValueError");
  EXPECT_GT(error.message().size(), 1000u);
  EXPECT_EQ(error.message().substr(0, 10), "xxxxxxxxxx");
}

TEST(Error, ManyLongOnesComeAndGo) {
  for (int i = 0; i < 200; ++i) EXPECT_GT(errorOf("long_error").message().size(), 1000u);
}

TEST(Error, OfUnpicklingIsThrownByLoadPickle) {
  Package package = sharedManager().loadPackage(packagePath());
  try {
    package.loadPickle("model", "refusing.pkl");
    FAIL() << "no error";
  } catch (const RemoteError& error) {
    EXPECT_EQ(error.pythonType(), "LookupError");
    EXPECT_EQ(error.message(), "this object does not want to exist");
  }
  EXPECT_THROW(package.loadPickle("model", "missing.pkl"), RemoteError);
  EXPECT_THROW(package.loadPickle("no_such_module", "model.pkl"), RemoteError);
  EXPECT_GT(package.loadPickle("model", "model.pkl")({"pid"}).toInt(), 0);
}

TEST(Error, AManagerWithoutWorkersIsRefused) {
  EXPECT_THROW(InterpreterManager(0), Error);
  EXPECT_THROW(InterpreterManager(100'000), Error);
}

TEST(Error, AMissingSupervisorIsNamed) {
  const ScopedVariable variable("ISOPOOL_SUPERVISOR=/no/such/isopoold");
  try {
    const InterpreterManager manager(1);
    FAIL() << "no error";
  } catch (const SupervisorLost& error) {
    EXPECT_TRUE(contains(error.what(), "/no/such/isopoold")) << error.what();
  }
}

TEST(Error, ASupervisorThatEndsAtOnceIsReported) {
  const ScopedVariable variable("ISOPOOL_SUPERVISOR=/bin/false");
  try {
    const InterpreterManager manager(1);
    FAIL() << "no error";
  } catch (const SupervisorLost& error) {
    EXPECT_TRUE(contains(error.what(), "/bin/false")) << error.what();
  }
}

TEST(Error, APreloadedModuleThatIsMissingIsNamedByTheManager) {
  const ScopedVariable variable("ISOPOOL_PRELOAD_MODULES=isopool_no_such_module");
  try {
    const InterpreterManager manager(1);
    FAIL() << "no error";
  } catch (const SupervisorLost& error) {
    EXPECT_TRUE(contains(error.what(), "isopool_no_such_module")) << error.what();
  }
}

}  // namespace
}  // namespace isopool::tests
