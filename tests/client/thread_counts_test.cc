// SPDX-License-Identifier: BSD-3-Clause
// How many threads the libraries of a worker use within one operation (ISOPOOL_WORKER_THREADS).
#include "tests/client/harness.h"

namespace isopool::tests {
namespace {

using NoArguments = at::ArrayRef<at::IValue>;

// Returns the threads of the process, besides those before, while `operation` uses them.
std::string threadsOf(const std::string& operation) {
  return "import os, torch, numpy\n"
         "def threads(): return len(os.listdir('/proc/self/task'))\n"
         "before = threads()\n" +
         operation + "\nresult = threads() - before\n";
}

constexpr const char* kTorchProduct = "x = torch.ones(1000, 1000); x.mm(x); x.exp()";
constexpr const char* kNumpyProduct = "x = numpy.ones((1000, 1000)); x @ x";
constexpr const char* kNumpyCount =
    "import ctypes, glob, os, numpy\n"
    "files = glob.glob(os.path.join(os.path.dirname(numpy.__file__) + '.libs', '*openblas*'))\n"
    "library = ctypes.CDLL(files[0])\n"
    "result = library.scipy_openblas_get_num_threads64_()\n";

class ThreadCounts : public ::testing::TestWithParam<int64_t> {
 protected:
  static std::vector<std::string> variables() {
    // Those of the program have no effect.
    std::vector<std::string> all{"OMP_NUM_THREADS=16", "OPENBLAS_NUM_THREADS=16"};
    if (GetParam() != 1) all.push_back("ISOPOOL_WORKER_THREADS=" + std::to_string(GetParam()));
    return all;
  }
  int64_t run(const std::string& source) { return pool_.subject().number("run", {source}); }

  OwnPool pool_{1, variables()};
};

TEST_P(ThreadCounts, HoldsForTorchAndItsOperations) {
  EXPECT_EQ(run("import torch; result = torch.get_num_threads()"), GetParam());
  EXPECT_EQ(run("import torch; result = torch.get_num_interop_threads()"), 1);
  // Those of torch exist when user code begins.
  EXPECT_EQ(run(threadsOf(kTorchProduct)), 0);
}

TEST_P(ThreadCounts, HoldsForNumpy) {
  EXPECT_EQ(run(kNumpyCount), GetParam());
  // And those of OpenBLAS.
  EXPECT_EQ(run(threadsOf(kNumpyProduct)), 0);
}

TEST_P(ThreadCounts, HoldsForLibrariesThatReadVariables) {
  for (const char* name : {"OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS",
                           "NUMEXPR_NUM_THREADS", "RAYON_NUM_THREADS"}) {
    EXPECT_EQ(run("import os; result = int(os.environ['" + std::string(name) + "'])"), GetParam())
        << name;
  }
}

TEST_P(ThreadCounts, HoldsForSessionsOfOnnxRuntimeThatAPackageMakes) {
  Program python({PYTHON, "-c", "import onnxruntime"});
  if (python.waitForEnd() != 0) {
    GTEST_SKIP() << PYTHON " has no onnxruntime; requirements/test.txt names it";
  }
  Package package = pool_.manager().loadPackage(packagePath("onnx_user.pt"));
  InterpreterSession session = package.acquireSession();
  const Obj entry = session.self.attr("import_module")({"entry"});
  const auto made = [&](const char* function) {
    return entry.attr(function)(NoArguments()).toIValue().toIntVector();
  };
  const std::vector<int64_t> limited{GetParam(), 1, GetParam() - 1};
  EXPECT_EQ(made("default_session"), limited);
  EXPECT_EQ(made("session_with_options"), limited);
  EXPECT_EQ(made("session_with_own_threads"), (std::vector<int64_t>{3, 1, 2}));
}

INSTANTIATE_TEST_SUITE_P(OneAndThree, ThreadCounts, ::testing::Values(1, 3));

TEST(PreloadedOnnxRuntime, HasTheThreadsOfTheWorker) {
  Program python({PYTHON, "-c", "import onnxruntime"});
  if (python.waitForEnd() != 0) {
    GTEST_SKIP() << PYTHON " has no onnxruntime; requirements/test.txt names it";
  }
  // Since 1.29 it starts a thread for telemetry when it is imported.
  OwnPool pool(1, {"ISOPOOL_PRELOAD_MODULES=onnxruntime", "ISOPOOL_WORKER_THREADS=2",
                   "ORT_DISABLE_TELEMETRY=1"});
  Package package = pool.manager().loadPackage(packagePath("onnx_user.pt"));
  InterpreterSession session = package.acquireSession();
  const Obj entry = session.self.attr("import_module")({"entry"});
  EXPECT_EQ(entry.attr("default_session")(NoArguments()).toIValue().toIntVector(),
            (std::vector<int64_t>{2, 1, 1}));
}

}  // namespace
}  // namespace isopool::tests
