// SPDX-License-Identifier: BSD-3-Clause
#include <c10/util/Exception.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <future>

#include "tests/client/harness.h"

namespace isopool::tests {
namespace {

namespace fs = std::filesystem;

/// The text of the Error that loadPackage throws for a file.
std::string refusalOf(const std::string& path) {
  try {
    sharedManager().loadPackage(path);
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
  ADD_FAILURE() << path << " was accepted";
  return "";
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(Package, IfMissingIsRefusedAtOnce) {
  const std::string text = refusalOf("/no/such/package.pt");
  EXPECT_TRUE(contains(text, "/no/such/package.pt")) << text;
  EXPECT_TRUE(contains(text, "No such file")) << text;
}

TEST(Package, ThatIsADirectoryIsRefused) {
  const std::string text = refusalOf(testFolder());
  EXPECT_TRUE(contains(text, testFolder())) << text;
  EXPECT_TRUE(contains(text, "directory")) << text;
}

// The open of a FIFO waits for a writer, and a device has no end: with the call, the thread.
TEST(Package, ThatIsNoRegularFileIsRefusedAtOnce) {
  const std::string fifo = testFolder() / "fifo.pt";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  for (const std::string& path : {fifo, std::string("/dev/zero"), std::string("/dev/full")}) {
    auto refused = std::async(std::launch::async, [&] { return refusalOf(path); });
    ASSERT_EQ(refused.wait_for(kPatience), std::future_status::ready) << path;
    const std::string text = refused.get();
    EXPECT_TRUE(contains(text, path)) << text;
    EXPECT_TRUE(contains(text, "not a regular file")) << text;
    EXPECT_THROW(sharedManager().loadModel(path), c10::Error);
  }
}

TEST(Package, ThatIsLargerThanTheMachinesMemoryIsRefusedAtOnce) {
  const std::string path = testFolder() / "sparse.pt";
  std::ofstream(path).flush();
  ASSERT_EQ(::truncate(path.c_str(), off_t{1} << 42), 0);
  EXPECT_TRUE(contains(refusalOf(path), "memory"));
}

TEST(Package, IsReadUntilTheDeadlineOnly) {
  EXPECT_THROW(sharedManager().loadPackage(packagePath(), {.deadline = milliseconds(0)}),
               DeadlineExceeded);
}

class NotAPackage : public ::testing::TestWithParam<const char*> {};

TEST_P(NotAPackage, IsRefusedByName) {
  const std::string text = refusalOf(packagePath(GetParam()));
  EXPECT_TRUE(contains(text, GetParam())) << text;
}

INSTANTIATE_TEST_SUITE_P(Package, NotAPackage,
                         ::testing::Values("empty.pt", "text.pt", "truncated.pt", "plain.zip",
                                           "saved.pt"));

TEST(Package, MadeByTorchSaveIsRefusedAsSuch) {
  const std::string text = refusalOf(packagePath("saved.pt"));
  EXPECT_TRUE(contains(text, "not a torch.package")) << text;
  EXPECT_TRUE(contains(text, "PackageExporter")) << text;
}

TEST(Package, ThatNeedsAMissingModuleIsRefusedWithItsName) {
  const std::string text = refusalOf(packagePath("extern.pt"));
  EXPECT_TRUE(contains(text, "isopool_no_such_module")) << text;
}

TEST(Package, OfAnotherPythonIsRefusedWithBothVersions) {
  const std::string text = refusalOf(packagePath("other_python.pt"));
  EXPECT_TRUE(contains(text, "3.3.7")) << text;
  EXPECT_TRUE(contains(text, "ISOPOOL_ALLOW_OTHER_PYTHON")) << text;
  const ScopedVariable allowed("ISOPOOL_ALLOW_OTHER_PYTHON=1");
  Package package = sharedManager().loadPackage(packagePath("other_python.pt"));
  package.loadPickle("model", "model.pkl");
}

// other_pythons/ has packages of real Pythons; at most one is that of the workers.
std::string madeBy(const std::string& name) {
  return std::string(TEST_SOURCE_DIR) + "/other_pythons/" + name + ".pt";
}

int minorVersionOfWorkers() {
  InterpreterSession session = sharedManager().acquireOne();
  const at::IValue version =
      session.global("platform", "python_version_tuple")(std::vector<at::IValue>{}).toIValue();
  return std::stoi(version.toTupleRef().elements()[1].toStringRef());
}

class PackageOfPython : public ::testing::TestWithParam<int> {};

TEST_P(PackageOfPython, IsOpenedByTheSameAndTriedByAnotherIfThatIsAllowed) {
  const std::string path = madeBy("python3." + std::to_string(GetParam()));
  const bool isSame = GetParam() == minorVersionOfWorkers();
  if (!isSame) {
    EXPECT_TRUE(contains(refusalOf(path), "was made by Python 3." + std::to_string(GetParam())));
  }
  const ScopedVariable allowed("ISOPOOL_ALLOW_OTHER_PYTHON=1");
  Package package = sharedManager().loadPackage(path);
  const at::Tensor scores = package.loadPickle("model", "model.pkl")({at::ones({4})}).toTensor();
  EXPECT_TRUE(scores.equal(at::arange(4) * 3.0F)) << scores;
}

INSTANTIATE_TEST_SUITE_P(Package, PackageOfPython, ::testing::Values(11, 13),
                         [](const auto& made) { return "3_" + std::to_string(made.param); });

TEST(Package, WhoseSourcesNeedANewerPythonIsRefusedWithTheErrorOfPython) {
  const ScopedVariable allowed("ISOPOOL_ALLOW_OTHER_PYTHON=1");
  Package package = sharedManager().loadPackage(madeBy("syntax_of_python3.13"));
  const auto call = [&] { package.loadPickle("model", "model.pkl")({at::ones({4})}); };
  if (minorVersionOfWorkers() >= 12) {
    call();
    return;
  }
  try {
    call();
    FAIL() << "it was loaded";
  } catch (const RemoteError& error) {
    EXPECT_EQ(error.pythonType(), "SyntaxError") << error.what();
  }
}

TEST(Package, WithoutThePickleOfThatNameSaysSoWithNamesLikeIt) {
  Package package = sharedManager().loadPackage(packagePath());
  const auto textOf = [&](const std::string& module, const std::string& file) {
    try {
      package.loadPickle(module, file)({"pid"});
    } catch (const std::exception& error) {
      return std::string(error.what());
    }
    return std::string("it was loaded");
  };
  const std::string text = textOf("model", "modle.pkl");
  EXPECT_TRUE(contains(text, packagePath() + " has no pickle model/modle.pkl")) << text;
  EXPECT_TRUE(contains(text, "Names like it: model/model.pkl")) << text;
  EXPECT_FALSE(contains(text, "corrupted")) << text;
  const std::string other = textOf("zzz.yyy", "x");
  EXPECT_TRUE(contains(other, "has no pickle zzz/yyy/x. Pickles in it: ")) << other;
  EXPECT_TRUE(contains(other, "model/model.pkl")) << other;
}

TEST(Package, IsFoundByARelativePath) {
  const fs::path before = fs::current_path();
  fs::current_path(fs::path(packagePath()).parent_path());
  std::optional<Package> package;
  EXPECT_NO_THROW(package = sharedManager().loadPackage("subject.pt"));
  fs::current_path(before);
  ASSERT_TRUE(package);
  EXPECT_GT(package->loadPickle("model", "model.pkl")({"pid"}).toInt(), 0);
}

/// A copy of the package in a file that a test may damage.
fs::path copyOfPackage(const std::string& name) {
  const fs::path copy = testFolder() / ("copy-of-" + name);
  fs::copy_file(packagePath(name), copy, fs::copy_options::overwrite_existing);
  return copy;
}

// The constructor of torch's reader would allocate that much memory.
TEST(Package, WithAnImpossibleRecordSizeIsRefused) {
  const fs::path path = copyOfPackage("subject.pt");
  std::string bytes;
  {
    std::ifstream file(path, std::ios::binary);
    bytes.assign(std::istreambuf_iterator<char>(file), {});
  }
  constexpr size_t kUncompressedSize = 24;
  constexpr size_t kName = 46;
  size_t entry = bytes.find("PK\x01\x02");
  while (entry != std::string::npos && bytes.find("version", entry + kName) > entry + kName + 64) {
    entry = bytes.find("PK\x01\x02", entry + kName);
  }
  ASSERT_NE(entry, std::string::npos);
  bytes.replace(entry + kUncompressedSize, 4, "\xf0\xff\xff\xff");
  std::ofstream(path, std::ios::binary) << bytes;
  const std::string text = refusalOf(path);
  EXPECT_TRUE(contains(text, "claims to hold 4294967280 bytes")) << text;
}

/// The answer of a module of the package. Expects the same one in both workers.
int64_t answerOf(Package& package) {
  const auto ask = [](InterpreterSession& session) {
    const Obj module = session.self.attr("import_module")({"entry"});
    return module.attr("answer")(at::ArrayRef<Obj>()).toIValue().toInt();
  };
  const auto process = [](InterpreterSession& session) {
    return session.global("os", "getpid")(at::ArrayRef<Obj>()).toIValue().toInt();
  };
  // The sessions may get the same worker: a worker that is still releasing dropped objects is
  // avoided.
  InterpreterSession one = package.acquireSession();
  std::vector<InterpreterSession> others;
  EXPECT_TRUE(waitUntil([&] {
    others.push_back(package.acquireSession());
    return process(others.back()) != process(one);
  }));
  EXPECT_EQ(ask(one), ask(others.back()));
  return ask(one);
}

TEST(Package, LivesOnWhenItsFileIsDeleted) {
  const fs::path file = copyOfPackage("one.pt");
  Package package = sharedManager().loadPackage(file);
  fs::remove(file);
  EXPECT_EQ(answerOf(package), 1);
  package.loadPickle("model", "model.pkl");
}

TEST(Package, DoesNotChangeWhenItsFileIsOverwritten) {
  const fs::path file = copyOfPackage("subject.pt");
  // No other package may have these bytes: loadPackage would return that package.
  appendToArchive(file);
  ASSERT_GT(fs::file_size(file), fs::file_size(packagePath("subject.pt")));
  Package package = sharedManager().loadPackage(file);
  const Subject subject(package.loadPickle("model", "model.pkl"));
  const double sum = subject.ask("weight_sum").toDouble();
  // Overwrites the file in place: a process that has mapped the file sees the change.
  const auto size = fs::file_size(file);
  std::fstream(file, std::ios::in | std::ios::out | std::ios::binary)
      << std::string(static_cast<size_t>(size), '\xff');
  ASSERT_EQ(fs::file_size(file), size);
  ASSERT_EQ(std::ifstream(file, std::ios::binary).get(), 0xff);
  EXPECT_EQ(subject.ask("weight_sum").toDouble(), sum);
  fs::resize_file(file, 10);
  EXPECT_EQ(subject.ask("weight_sum").toDouble(), sum);
  // Workers that have not read the package yet read the old bytes too.
  for (const Interpreter& worker : sharedManager().allInstances()) {
    InterpreterSession session = subject.object().acquireSession(&worker);
    EXPECT_EQ(session.self({"weight_sum"}).toIValue().toDouble(), sum);
  }
}

TEST(Package, HasModulesOfItsOwn) {
  Package one = sharedManager().loadPackage(packagePath("one.pt"));
  Package two = sharedManager().loadPackage(packagePath("two.pt"));
  EXPECT_EQ(answerOf(one), 1);
  EXPECT_EQ(answerOf(two), 2);
  EXPECT_EQ(answerOf(one), 1);
}

TEST(Package, OpenedTwiceIsTheSameAndOutlivesTheFirst) {
  std::optional<Package> first = sharedManager().loadPackage(packagePath("one.pt"));
  Package second = sharedManager().loadPackage(packagePath("one.pt"));
  EXPECT_EQ(answerOf(second), 1);
  first.reset();
  EXPECT_EQ(answerOf(second), 1);
}

TEST(Package, CanBeLoadedAndUnloadedRepeatedly) {
  for (int i = 0; i < 50; ++i) {
    Package package = sharedManager().loadPackage(packagePath(i % 2 == 0 ? "one.pt" : "two.pt"));
    const ReplicatedObj object = package.loadPickle("model", "model.pkl");
    EXPECT_EQ(object({at::ones({1, 2})}).toTensor().numel(), 2);
  }
}

}  // namespace
}  // namespace isopool::tests
