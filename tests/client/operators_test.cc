// SPDX-License-Identifier: BSD-3-Clause
#include <signal.h>

#include "tests/client/harness.h"
#include "tests/client/made_files.h"

namespace isopool::tests {
namespace {

/// The path of a built library. Each variant is a separate library.
std::string library(const std::string& variant = "") {
  return OPERATORS_FOLDER "/libclient_test_operators" + variant + ".so";
}

/// The path of a model that uses the operators. The package uses the custom class too.
std::string user(const std::string& name) {
  static const std::filesystem::path folder = madeBy("make_operator_user.py", {library()});
  return folder / name;
}

std::string userPackage() { return user("operators.pt"); }

void expectOperators(const ReplicatedObj& model) {
  const at::IValue result = model({at::ones({3})});
  const auto& elements = result.toTupleRef().elements();
  EXPECT_TRUE(elements[0].toTensor().equal(at::full({3}, 7.0f)));
  EXPECT_EQ(elements[1].toInt(), 42);
}

/// The text of the Error of a manager's constructor under this environment variable.
std::string refusalOf(const std::string& variable) {
  const ScopedVariable scope(variable);
  try {
    const InterpreterManager manager(1);
  } catch (const SupervisorLost& error) {
    return error.what();
  }
  ADD_FAILURE() << variable << " was accepted";
  return "";
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

class Operators : public ::testing::TestWithParam<const char*> {};

TEST_P(Operators, OfAPreloadedLibraryAreThereAlsoAfterAWorkersDeath) {
  OwnPool pool(1, {std::string(GetParam()) + "= " + library() + " ,"});
  const ReplicatedObj model =
      pool.manager().loadPackage(userPackage()).loadPickle("model", "model.pkl");
  expectOperators(model);
  for (int i = 0; i < 2; ++i) {
    const pid_t before = pool.processOf(0);
    ::kill(before, SIGKILL);
    EXPECT_TRUE(waitUntil([&] { return pool.processOf(0) != before && pool.processOf(0) != -1; }));
    expectOperators(model);
  }
}

TEST_P(Operators, OfAMissingLibraryEndTheConstructorWithItsNameAndTheReason) {
  const std::string text = refusalOf(std::string(GetParam()) + "=/no/such/library.so");
  EXPECT_TRUE(contains(text, "/no/such/library.so")) << text;
  EXPECT_TRUE(contains(text, "No such file")) << text;
}

TEST_P(Operators, WhoseInitialiserThrowsEndTheConstructorWithItsWords) {
  const std::string text =
      refusalOf(std::string(GetParam()) + "=" + library() + "," + library("_throw"));
  EXPECT_TRUE(contains(text, "libclient_test_operators_throw.so")) << text;
}

TEST_P(Operators, WhoseInitialiserCrashesEndTheConstructorWithTheLibrarysName) {
  const std::string text = refusalOf(std::string(GetParam()) + "=" + library("_crash"));
  EXPECT_TRUE(contains(text, library("_crash"))) << text;
  EXPECT_TRUE(contains(text, "signal 6")) << text;
}

INSTANTIATE_TEST_SUITE_P(Libraries, Operators,
                         ::testing::Values("ISOPOOL_PRELOAD_LIBS", "ISOPOOL_WORKER_PRELOAD_LIBS"));

TEST(OperatorLibrary, WhoseInitialiserThrowsIsRefusedWithItsWords) {
  const std::string text = refusalOf("ISOPOOL_PRELOAD_LIBS=" + library("_throw"));
  EXPECT_TRUE(contains(text, "these operators do not want to exist")) << text;
}

TEST(OperatorLibrary, IsRefusedByTheZygoteIfItStartsAThread) {
  const std::string text = refusalOf("ISOPOOL_PRELOAD_LIBS=" + library("_thread"));
  EXPECT_TRUE(contains(text, "2 threads")) << text;
  EXPECT_TRUE(contains(text, "the library " + library("_thread"))) << text;
  EXPECT_TRUE(contains(text, "ISOPOOL_WORKER_PRELOAD_LIBS")) << text;
  OwnPool pool(1, {"ISOPOOL_WORKER_PRELOAD_LIBS=" + library("_thread")});
  expectOperators(pool.manager().loadPackage(userPackage()).loadPickle("model", "model.pkl"));
}

TEST(OperatorLibrary, IsFoundByItsNameWhereTheLoaderLooks) {
  OwnPool pool(
      1, {"LD_LIBRARY_PATH=" OPERATORS_FOLDER, "ISOPOOL_PRELOAD_LIBS=libclient_test_operators.so"});
  expectOperators(pool.manager().loadPackage(userPackage()).loadPickle("model", "model.pkl"));
}

TEST(OperatorLibrary, ServesModelsOfTheOtherFormatsToo) {
  OwnPool pool(1, {"ISOPOOL_PRELOAD_LIBS=" + library()});
  for (const char* name : {"operators_script.pt", "operators_compiled.pt2"}) {
    const ReplicatedObj model = pool.manager().loadModel(user(name));
    EXPECT_TRUE(model({at::ones({3})}).toTensor().equal(at::full({3}, 8.0f))) << name;
  }
}

TEST(OperatorLibrary, IfMissingMakesItsOperatorAnErrorOfTheCall) {
  const ReplicatedObj model =
      sharedManager().loadPackage(userPackage()).loadPickle("model", "model.pkl");
  EXPECT_THROW(model({at::ones({3})}), RemoteError);
}

}  // namespace
}  // namespace isopool::tests
