// SPDX-License-Identifier: BSD-3-Clause
// The ways of docs/adding-libraries.md to give workers a library, without the network.
#include <filesystem>

#include "tests/client/harness.h"

namespace isopool::tests {
namespace {

const std::filesystem::path& environments() {
  static const std::filesystem::path folder = [] {
    const std::filesystem::path made = testFolder() / "environments";
    Program maker({PYTHON, TEST_SOURCE_DIR "/make_python_environments.py", made});
    EXPECT_EQ(maker.waitForEnd(milliseconds(60'000)), 0);
    return made;
  }();
  return folder;
}

std::string answerIn(InterpreterManager& manager) {
  InterpreterSession session = manager.acquireOne();
  return session.global("added_library", "answer").toIValue().toStringRef();
}

class PythonWithALibrary : public ::testing::TestWithParam<const char*> {};

TEST_P(PythonWithALibrary, IsThatOfTheWorkersIfTheSettingNamesIt) {
  const std::filesystem::path prefix = environments() / GetParam();
  OwnPool pool(1, {"ISOPOOL_PYTHON_EXECUTABLE=" + (prefix / "bin/python").string()});
  EXPECT_EQ(answerIn(pool.manager()), GetParam());
  EXPECT_EQ(pool.manager().acquireOne().global("sys", "prefix").toIValue().toStringRef(),
            prefix.string());
}

INSTANTIATE_TEST_SUITE_P(Layouts, PythonWithALibrary, ::testing::Values("venv", "prefix"));

TEST(FolderWithALibrary, IsUsedIfPythonpathNamesIt) {
  OwnPool pool(1, {"PYTHONPATH=" + (environments() / "target").string()});
  EXPECT_EQ(answerIn(pool.manager()), "target");
}

TEST(FolderWithALibrary, IsUsedIfAPathEnvironmentNamesIt) {
  InterpreterManager manager(1, std::make_shared<PathEnvironment>(environments() / "target"));
  EXPECT_EQ(answerIn(manager), "target");
}

TEST(MissingLibrary, IsReportedWithTheInterpreterAndThePage) {
  try {
    sharedSubject().ask("run", {"import added_library"});
    FAIL() << "no error";
  } catch (const RemoteError& error) {
    EXPECT_EQ(error.pythonType(), "ModuleNotFoundError");
    for (const std::string& text : {error.message(), std::string(error.what())}) {
      EXPECT_NE(text.find(PYTHON), std::string::npos) << text;
      EXPECT_NE(text.find("docs/adding-libraries.md"), std::string::npos) << text;
    }
  }
}

TEST(MissingLibrary, OfAPackageIsReportedWithThePage) {
  try {
    sharedManager().loadPackage(packagePath("extern.pt"));
    FAIL() << "no error";
  } catch (const c10::Error& error) {
    const std::string text = error.what_without_backtrace();
    EXPECT_NE(text.find("isopool_no_such_module"), std::string::npos) << text;
    EXPECT_NE(text.find("docs/adding-libraries.md"), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace isopool::tests
