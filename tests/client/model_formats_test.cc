// SPDX-License-Identifier: BSD-3-Clause
#include <c10/util/Exception.h>
#include <caffe2/serialize/file_adapter.h>
#include <signal.h>

#include <fstream>
#include <future>
#include <iterator>
#include <optional>
#include <set>
#include <sstream>
#include <thread>

#include "testing/sanitizers.h"
#include "tests/client/harness.h"
#include "tests/client/model_files.h"

namespace isopool::tests {
namespace {

namespace fs = std::filesystem;

struct Values {
  at::Tensor x;
  at::Tensor y;
  at::Tensor expected;  ///< what the eager model gave in the process that stored it
};

const Values& values() {
  static const Values values = [] {
    const at::IValue all = sharedManager().loadModel(modelPath("values.pt"))({});
    const auto& elements = all.toTupleRef().elements();
    return Values{elements[0].toTensor().clone(), elements[1].toTensor().clone(),
                  elements[2].toTensor().clone()};
  }();
  return values;
}

bool isExpected(const at::IValue& result) {
  return result.isTensor() && at::allclose(result.toTensor(), values().expected, 1e-4, 1e-4);
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// Why a test of ONNX models can't run here; nothing if it can.
const std::optional<std::string>& onnxRuntimeMissing() {
  static const std::optional<std::string> missing = []() -> std::optional<std::string> {
    Program python({PYTHON, "-c", "import onnxruntime"});
    if (python.waitForEnd(milliseconds(60'000)) == 0) return std::nullopt;
    return PYTHON " has no onnxruntime; requirements/test.txt names it";
  }();
  return missing;
}

pid_t processOf(InterpreterManager& manager, size_t slot) {
  return manager.allInstances()[slot].processId().value_or(-1);
}

/// Kills the worker and waits until another one serves its slot.
void replaceWorker(InterpreterManager& manager, size_t slot) {
  const pid_t before = processOf(manager, slot);
  ::kill(before, SIGKILL);
  EXPECT_TRUE(waitUntil([&] {
    const pid_t now = processOf(manager, slot);
    return now != -1 && now != before;
  }));
}

// ---- every format ----------------------------------------------------------------------------

class ModelFormat : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (fs::path(GetParam()).extension() == ".onnx" && onnxRuntimeMissing()) {
      GTEST_SKIP() << *onnxRuntimeMissing();
    }
  }
  ReplicatedObj load(InterpreterManager& manager = sharedManager()) {
    const std::string name = GetParam();
    if (name == "package.pt") {
      return manager.loadPackage(modelPath(name)).loadPickle("model", "model.pkl");
    }
    return manager.loadModel(modelPath(name));
  }
  static at::IValue call(const ReplicatedObj& model) { return model({values().x, values().y}); }
};

TEST_P(ModelFormat, GivesWhatTheEagerModelGives) { EXPECT_TRUE(isExpected(call(load()))); }

TEST_P(ModelFormat, IsLoadedAgainWhereItsWorkerDied) {
  InterpreterManager manager(1);
  const ReplicatedObj model = load(manager);
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(isExpected(call(model)));
    replaceWorker(manager, 0);
  }
  EXPECT_TRUE(isExpected(call(model)));
  EXPECT_EQ(manager.workersReplaced(), 3u);
}

TEST_P(ModelFormat, IsLoadedAnewAfterItWasUnloaded) {
  ReplicatedObj model = load();
  const Interpreter& worker = sharedManager().allInstances()[0];
  InterpreterSession session = model.acquireSession(&worker);
  model.unload();
  const Obj anew = model.toObj(&session);
  EXPECT_FALSE(session.global("operator", "is_")({session.self, anew}).toIValue().toBool());
  EXPECT_TRUE(isExpected(session.self({values().x, values().y}).toIValue())) << "the old one lives";
  EXPECT_TRUE(isExpected(call(model)));
}

TEST_P(ModelFormat, IsCalledByFourThreadsAtOnce) {
  const ReplicatedObj model = load();
  std::vector<std::thread> threads;
  std::atomic<int> right{0};
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int j = 0; j < 10; ++j) right += isExpected(call(model)) ? 1 : 0;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, 40);
}

TEST_P(ModelFormat, IsReachedStepByStepInASession) {
  const ReplicatedObj model = load();
  EXPECT_TRUE(model.hasattr("forward"));
  EXPECT_FALSE(model.hasattr("no_such_attribute"));
  InterpreterSession session = model.acquireSession();
  EXPECT_TRUE(isExpected(session.self.attr("forward")({values().x, values().y}).toIValue()));
}

TEST_P(ModelFormat, CrossesWithoutACopyFromAndToSharedMemory) {
  const ReplicatedObj model = load();
  const at::Tensor x = empty(values().x.sizes()).copy_(values().x);
  const at::Tensor y = empty(values().y.sizes()).copy_(values().y);
  at::Tensor result;
  // Room for results is asked for when it is needed first; meanwhile they are copied.
  EXPECT_TRUE(waitUntil([&] {
    const CopyCounters before = copyCounters();
    result = model({x, y}).toTensor();
    return (copyCounters() - before).total() == 0;
  }));
  EXPECT_TRUE(isShared(result));
  EXPECT_TRUE(isExpected(result));
}

TEST_P(ModelFormat, RaisesWhatItsCallRaises) {
  const ReplicatedObj model = load();
  EXPECT_THROW(model({values().x}), RemoteError);
  EXPECT_THROW(model({values().x, values().y, "text", values().y}), RemoteError);
  EXPECT_TRUE(isExpected(call(model)));
}

INSTANTIATE_TEST_SUITE_P(Models, ModelFormat,
                         ::testing::Values("package.pt", "script.pt", "traced.pt", "frozen.pt",
                                           "compiled.pt2", "exported.pt2", "model.onnx"));

// ---- what a file is --------------------------------------------------------------------------

/// What loadModel says about a file.
std::string refusalOf(const std::string& path, const std::string& name = {}) {
  try {
    sharedManager().loadModel(path, name);
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
  ADD_FAILURE() << path << " was accepted";
  return "";
}

TEST(ModelFile, IsToldByItsContentsAndNotByItsName) {
  const ReplicatedObj model =
      sharedManager().loadModel(modelPath("script_under_another_name.onnx"));
  EXPECT_TRUE(isExpected(model({values().x, values().y})));
}

TEST(ModelFile, OfOnnxIsToldByItsContentsToo) {
  if (onnxRuntimeMissing()) GTEST_SKIP() << *onnxRuntimeMissing();
  const ReplicatedObj model = sharedManager().loadModel(modelPath("onnx_under_another_name.pt"));
  EXPECT_TRUE(isExpected(model({values().x, values().y})));
}

TEST(ModelFile, ThatIsNotThereOrNoArchiveIsRefusedByNameAtOnce) {
  EXPECT_TRUE(contains(refusalOf("/no/such/model.pt"), "No such file"));
  EXPECT_TRUE(contains(refusalOf("/no/such/model.pt"), "/no/such/model.pt"));
  EXPECT_TRUE(contains(refusalOf(testFolder()), "directory"));
  for (const char* name : {"empty.pt", "text.pt", "plain.zip"}) {
    EXPECT_TRUE(contains(refusalOf(packagePath(name)), name));
  }
  EXPECT_TRUE(contains(refusalOf(modelPath("truncated.pt")), "truncated.pt"));
}

TEST(ModelFile, ThatIsForAnotherCallIsRefusedWithTheRightOne) {
  EXPECT_TRUE(contains(refusalOf(packagePath("subject.pt")), "loadPackage"));
  EXPECT_TRUE(contains(refusalOf(packagePath("saved.pt")), "torch.jit.save"));
  for (const char* name : {"script.pt", "compiled.pt2", "exported.pt2", "model.onnx"}) {
    try {
      sharedManager().loadPackage(modelPath(name));
      ADD_FAILURE() << name << " was accepted as a package";
    } catch (const c10::Error& error) {
      EXPECT_TRUE(contains(error.what(), "loadModel")) << error.what();
    }
  }
}

TEST(ModelFile, OfAnotherDeviceOrWithoutALibraryIsRefusedWithTheReason) {
  EXPECT_TRUE(contains(refusalOf(modelPath("for_cuda.pt2")), "compiled for cuda"));
  EXPECT_TRUE(contains(refusalOf(modelPath("without_library.pt2")), "0 libraries"));
}

TEST(ModelFile, WhoseLibraryCannotBeLoadedRaisesTheLoadersReason) {
  try {
    sharedManager().loadModel(modelPath("no_library.pt2"));
    FAIL() << "it was accepted";
  } catch (const RemoteError& error) {
    EXPECT_TRUE(contains(error.message(), "invalid ELF header")) << error.message();
  }
}

TEST(ModelFile, HasTheModelsThatItSays) {
  const ReplicatedObj model = sharedManager().loadModel(modelPath("compiled.pt2"), "model");
  EXPECT_TRUE(isExpected(model({values().x, values().y})));
  const std::string text = refusalOf(modelPath("compiled.pt2"), "other");
  EXPECT_TRUE(contains(text, "no model called other")) << text;
  EXPECT_TRUE(contains(text, ": model")) << text;
  EXPECT_TRUE(contains(refusalOf(modelPath("script.pt"), "other"), "holds one model"));
}

TEST(ModelFile, ComesFromAReaderAsWellAsFromAPath) {
  auto reader = std::make_shared<caffe2::serialize::FileAdapter>(modelPath("script.pt"));
  const ReplicatedObj model = sharedManager().loadModel(reader);
  EXPECT_EQ(reader.use_count(), 1);
  EXPECT_TRUE(isExpected(model({values().x, values().y})));
  EXPECT_THROW(
      sharedManager().loadModel(std::shared_ptr<caffe2::serialize::ReadAdapterInterface>()),
      c10::Error);
}

TEST(ModelFile, DoesNotChangeWhenItsFileIsOverwritten) {
  const fs::path copy = testFolder() / "copy-of-script.pt";
  fs::copy_file(modelPath("script.pt"), copy, fs::copy_options::overwrite_existing);
  // No other model may have these bytes: loadModel would use that model's.
  appendToArchive(copy);
  ASSERT_GT(fs::file_size(copy), fs::file_size(modelPath("script.pt")));
  const ReplicatedObj model = sharedManager().loadModel(copy);
  std::ofstream(copy, std::ios::trunc) << "something else";
  for (const Interpreter& worker : sharedManager().allInstances()) {
    InterpreterSession session = model.acquireSession(&worker);
    EXPECT_TRUE(isExpected(session.self({values().x, values().y}).toIValue()));
  }
}

// ---- what is special about some --------------------------------------------------------------

TEST(ScriptModel, TakesKeywordArgumentsAndDefaults) {
  const ReplicatedObj model = sharedManager().loadModel(modelPath("script.pt"));
  EXPECT_TRUE(isExpected(model.callKwargs(Named{{"y", values().y}, {"x", values().x}})));
  const at::IValue more = model.callKwargs({values().x, values().y}, Named{{"rounds", 3}});
  EXPECT_TRUE(isExpected(more.toTensor() - 3));
}

TEST(ScriptModel, HasItsMethodsInASession) {
  const ReplicatedObj model = sharedManager().loadModel(modelPath("script.pt"));
  InterpreterSession session = model.acquireSession();
  const at::IValue result = session.self.attr("scaled")
                                .callKwargs(Named{{"x", at::ones({3})}, {"factor", 2.0}})
                                .toIValue();
  EXPECT_TRUE(result.toGenericDict().at("scaled").toTensor().equal(at::full({3}, 2.0f)));
  EXPECT_EQ(result.toGenericDict().at("sum").toTensor().item<float>(), 3);
}

TEST(ScriptModel, WorksInPlaceOnAnArgumentInSharedMemory) {
  const ReplicatedObj model = sharedManager().loadModel(modelPath("in_place.pt"));
  const at::Tensor x = empty({1000}).fill_(1);
  const at::Tensor result = model({x}).toTensor();
  EXPECT_EQ(x.sum().item<float>(), 2000);
  EXPECT_TRUE(result.is_alias_of(x));
}

/// The time that a process has run in user mode, in ticks of the clock: field 14 of proc(5)'s stat.
uint64_t userTime(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  const std::string stat{std::istreambuf_iterator<char>(file), {}};
  std::istringstream fields(stat.substr(std::min(stat.size(), stat.rfind(')') + 1)));
  std::string field;
  for (int i = 3; i <= 14; ++i) fields >> field;
  return field.empty() ? 0 : std::stoull(field);
}

constexpr int64_t kForEver = int64_t{1} << 60;

TEST(ScriptModel, KilledInTheMiddleOfACallCostsThatCallAlone) {
  InterpreterManager manager(1);
  const ReplicatedObj model = manager.loadModel(modelPath("script.pt"));
  EXPECT_TRUE(isExpected(model({values().x, values().y})));
  const pid_t worker = processOf(manager, 0);
  const uint64_t before = userTime(worker);
  auto running = std::async(std::launch::async, [&] {
    return model({values().x, values().y, kForEver});
  });
  EXPECT_TRUE(waitUntil([&] { return userTime(worker) > before + 10; }));
  ::kill(worker, SIGKILL);
  try {
    running.get();
    FAIL() << "no error";
  } catch (const WorkerLost& error) {
    EXPECT_TRUE(error.started());
    EXPECT_EQ(error.signal(), SIGKILL);
  }
  EXPECT_TRUE(isExpected(model({values().x, values().y})));
}

TEST(ScriptModel, ThatTakesTooLongMeetsItsDeadline) {
  InterpreterManager manager(1);
  const ReplicatedObj model = manager.loadModel(modelPath("script.pt"));
  CallOptions options;
  options.deadline = milliseconds(200);
  EXPECT_THROW((void)model.call({values().x, values().y, kForEver}, {}, options), DeadlineExceeded);
  EXPECT_TRUE(isExpected(model({values().x, values().y})));
}

TEST(CompiledModel, TakesAndGivesWhatIsNested) {
  const ReplicatedObj model = sharedManager().loadModel(modelPath("several.pt2"));
  const at::Tensor one = at::full({4}, 1.0f);
  const at::Tensor two = at::full({4}, 2.0f);
  const auto pair = c10::ivalue::Tuple::create({one, two});
  InterpreterSession session = model.acquireSession();
  const Obj object = session.self.callKwargs({pair}, Named{{"scale", at::full({4}, 3.0f)}});
  const at::Tensor sum = object.attr("get")({"sum"}).toIValue().toTensor();
  EXPECT_TRUE(sum.equal(at::full({4}, 9.0f)));
  EXPECT_THROW((void)model.callKwargs({pair}, Named{{"size", one}}), RemoteError);
  EXPECT_THROW((void)model.callKwargs({one}, Named{{"scale", one}}), RemoteError);
}

/// What a worker says about an ONNX file.
std::string onnxErrorOf(InterpreterManager& manager, const std::string& name) {
  try {
    manager.loadModel(modelPath(name));
  } catch (const RemoteError& error) {
    return error.message();
  }
  ADD_FAILURE() << name << " was accepted";
  return "";
}

TEST(OnnxFile, ThatIsCutShortIsRefusedByName) {
  const std::string text = refusalOf(modelPath("cut.onnx"));
  EXPECT_TRUE(contains(text, "cut.onnx")) << text;
  EXPECT_TRUE(contains(text, "an ONNX model, and damaged or cut short")) << text;
}

TEST(OnnxFile, WithWeightsInAnotherFileIsRefusedWithWhatToDo) {
  const std::string text = refusalOf(modelPath("external.onnx"));
  EXPECT_TRUE(contains(text, "external.onnx")) << text;
  EXPECT_TRUE(contains(text, R"(its weight "shift" lies in another file, "weights.bin")")) << text;
  EXPECT_TRUE(contains(text, "external_data=False")) << text;
}

TEST(OnnxFile, HasOneModelWithoutAName) {
  const std::string text = refusalOf(modelPath("model.onnx"), "other");
  EXPECT_TRUE(contains(text, "holds one model, none of the name other")) << text;
}

class OnnxModel : public ::testing::Test {
 protected:
  void SetUp() override {
    if (onnxRuntimeMissing()) GTEST_SKIP() << *onnxRuntimeMissing();
  }
};

TEST_F(OnnxModel, TakesItsInputsByName) {
  const ReplicatedObj model = sharedManager().loadModel(modelPath("model.onnx"));
  EXPECT_TRUE(isExpected(model.callKwargs(Named{{"y", values().y}, {"x", values().x}})));
  EXPECT_TRUE(isExpected(model.callKwargs({values().x}, Named{{"y", values().y}})));
}

TEST_F(OnnxModel, NamesTheInputThatIsWrong) {
  const ReplicatedObj model = sharedManager().loadModel(modelPath("model.onnx"));
  const auto errorOf = [&](const Named& arguments) -> std::string {
    try {
      (void)model.callKwargs({values().x}, arguments);
    } catch (const RemoteError& error) {
      return error.message();
    }
    return "no error";
  };
  EXPECT_TRUE(contains(errorOf({}), "needs the inputs ['y']")) << errorOf({});
  const std::string unknown = errorOf({{"y", values().y}, {"z", values().y}});
  EXPECT_TRUE(contains(unknown, "'z' does not exist")) << unknown;
  const std::string kind = errorOf({{"y", values().y.to(at::kLong)}});
  EXPECT_TRUE(contains(kind, "'y' is a tensor(float), and torch.int64 was given")) << kind;
  EXPECT_TRUE(contains(errorOf({{"y", values().y.narrow(1, 0, 5)}}), "Got: 5 Expected: 2048"));
}

TEST_F(OnnxModel, TakesAnyNumberOfRowsAndNone) {
  const ReplicatedObj model = sharedManager().loadModel(modelPath("model.onnx"));
  for (const int64_t rows : {int64_t{1}, int64_t{0}, int64_t{2}}) {
    const at::IValue result = model({values().x.narrow(0, 0, rows), values().y.narrow(0, 0, rows)});
    EXPECT_TRUE(at::allclose(result.toTensor(), values().expected.narrow(0, 0, rows), 1e-4, 1e-4));
  }
}

TEST_F(OnnxModel, GivesATupleOfSeveralOutputsAlsoIfTheirShapesAreNotAsDeclared) {
  const ReplicatedObj model = sharedManager().loadModel(modelPath("several.onnx"));
  const at::Tensor x = at::arange(6, at::kFloat).view({2, 3});
  for (int i = 0; i < 3; ++i) {
    const at::IValue result = model({x});
    const auto& elements = result.toTupleRef().elements();
    ASSERT_EQ(elements.size(), 4u);
    EXPECT_TRUE(elements[0].toTensor().equal(-x));
    EXPECT_TRUE(elements[1].toTensor().equal(x.nonzero().t()));
    EXPECT_TRUE(elements[2].toTensor().equal(x.t()));
    EXPECT_TRUE(elements[3].toTensor().equal(x));
  }
}

TEST_F(OnnxModel, RunsOnTheThreadsOfItsWorkerAndAddsNone) {
  OwnPool pool(1);
  const fs::path tasks = "/proc/" + std::to_string(pool.processOf(0)) + "/task";
  const auto threads = [&] {
    return std::distance(fs::directory_iterator(tasks), fs::directory_iterator());
  };
  const auto before = threads();
  const ReplicatedObj model = pool.manager().loadModel(modelPath("model.onnx"));
  EXPECT_TRUE(isExpected(model({values().x, values().y})));
  InterpreterSession session = model.acquireSession();
  const Obj options =
      session.self.attr("session").attr("get_session_options")(at::ArrayRef<at::IValue>());
  EXPECT_EQ(options.attr("intra_op_num_threads").toIValue().toInt(), 1);
  EXPECT_EQ(threads(), before);
}

TEST_F(OnnxModel, ThatOnnxRuntimeRefusesIsAnErrorWithItsFilesName) {
  const std::string text = onnxErrorOf(sharedManager(), "unknown_operator.onnx");
  EXPECT_TRUE(contains(text, modelPath("unknown_operator.onnx") + " can't be loaded by")) << text;
  EXPECT_TRUE(contains(text, "NoSuchOperator")) << text;
  EXPECT_FALSE(contains(text, "/proc/self/fd")) << text;
}

TEST(OnnxRuntime, ThatIsMissingIsAnErrorThatSaysHowToInstallIt) {
  OwnPool pool(1);
  // As if it were not installed: Python raises ImportError where None is in its place.
  pool.manager()
      .acquireOne()
      .global("sys", "modules")
      .attr("__setitem__")({"onnxruntime", at::IValue()});
  const std::string text = onnxErrorOf(pool.manager(), "model.onnx");
  EXPECT_TRUE(contains(text, "model.onnx is an ONNX model")) << text;
  EXPECT_TRUE(contains(text, "-m pip install onnxruntime")) << text;
}

// ---- weights, and what is left behind --------------------------------------------------------

TEST(ModelWeight, ComesWithoutACopyFromEveryWorker) {
  const ReplicatedObj model = sharedManager().loadModel(modelPath("script.pt"));
  const auto weightIn = [&](size_t slot) {
    InterpreterSession session = model.acquireSession(&sharedManager().allInstances()[slot]);
    return session.self.attr("weight")(at::ArrayRef<at::IValue>()).toIValue().toTensor();
  };
  const CopyCounters before = copyCounters();
  const at::Tensor one = weightIn(0);
  const at::Tensor two = weightIn(1);
  EXPECT_EQ((copyCounters() - before).total(), 0u);
  EXPECT_TRUE(one.equal(two));
  EXPECT_NE(one.sum().item<float>(), 0);
}

TEST(ModelWeight, WrittenInOneWorkerIsUnchangedInTheOthers) {
  InterpreterManager manager(2);
  const ReplicatedObj model = manager.loadModel(modelPath("script.pt"));
  InterpreterSession one = model.acquireSession(&manager.allInstances()[0]);
  InterpreterSession two = model.acquireSession(&manager.allInstances()[1]);
  one.self.attr("write_weight")(at::ArrayRef<at::IValue>());
  EXPECT_FALSE(isExpected(one.self({values().x, values().y}).toIValue()));
  EXPECT_TRUE(isExpected(two.self({values().x, values().y}).toIValue()));
}

/// Bytes of memory that a process shares with nobody.
uint64_t privateBytes(pid_t process) {
  return memoryOf(process, "Private_Dirty") + memoryOf(process, "Private_Clean");
}

class ModelWeights : public ::testing::TestWithParam<const char*> {};

TEST_P(ModelWeights, AreInMemoryOnceForAllWorkers) {
  if (kUnderAddressSanitizer) GTEST_SKIP() << "the sanitizer holds freed memory back";
  constexpr uint64_t kWeightBytes = 2048 * 2048 * 4;
  OwnPool pool(2, {"ISOPOOL_SPARES=0"});
  const auto use = [&](const std::string& name) {
    const ReplicatedObj model = pool.manager().loadModel(modelPath(name));
    for (const Interpreter& worker : pool.manager().allInstances()) {
      InterpreterSession session = model.acquireSession(&worker);
      EXPECT_TRUE(isExpected(session.self({values().x, values().y}).toIValue()));
    }
    return model;
  };
  // TorchScript's first call takes memory for its compiler: 10 MB with torch 2.11.
  const ReplicatedObj earlier =
      use(std::string(GetParam()) == "script.pt" ? "traced.pt" : "script.pt");
  const uint64_t before = privateBytes(pool.processOf(1));
  const ReplicatedObj model = use(GetParam());
  const uint64_t after = privateBytes(pool.processOf(1));
  EXPECT_LT(after, before + kWeightBytes / 2) << GetParam();
}

INSTANTIATE_TEST_SUITE_P(Models, ModelWeights,
                         ::testing::Values("script.pt", "traced.pt", "frozen.pt", "compiled.pt2"));

/// Files below a folder that a loader may have unpacked a model to.
std::set<fs::path> unpackedBelow(const fs::path& folder) {
  std::set<fs::path> found;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (fs::exists(entry.path() / "data" / "aotinductor", error)) found.insert(entry.path());
  }
  return found;
}

TEST(CompiledModel, LeavesNoFileBehindWhoeverIsKilled) {
  const fs::path temporary = testFolder() / "temporary";
  fs::create_directory(temporary);
  const std::string checkout = fs::path(TEST_SOURCE_DIR).parent_path().parent_path() / "";
  const std::set<fs::path> before = unpackedBelow("/tmp");
  {
    OwnPool pool(2, {"TMPDIR=" + temporary.string()});
    const ReplicatedObj model = pool.manager().loadModel(modelPath("compiled.pt2"));
    EXPECT_TRUE(isExpected(model({values().x, values().y})));
    // Its code lies in no file system. The checkout itself, with its Python, may lie below /tmp.
    bool found = false;
    for (const pid_t pid : pool.tree().all()) {
      std::ifstream maps("/proc/" + std::to_string(pid) + "/maps");
      for (std::string line; std::getline(maps, line);) {
        EXPECT_FALSE(contains(line, temporary.string())) << line;
        EXPECT_FALSE(contains(line, "/tmp/") && !contains(line, checkout)) << line;
        found = found || (contains(line, "r-xp") && contains(line, "/memfd:isopool:archive"));
      }
    }
    EXPECT_TRUE(found);
    replaceWorker(pool.manager(), 0);
    EXPECT_TRUE(isExpected(model({values().x, values().y})));
    for (const pid_t pid : pool.tree().all()) ::kill(pid, SIGKILL);
    EXPECT_TRUE(pool.tree().goneWithin(kPatience));
  }
  EXPECT_TRUE(fs::is_empty(temporary));
  EXPECT_EQ(unpackedBelow("/tmp"), before);
}

}  // namespace
}  // namespace isopool::tests
