// SPDX-License-Identifier: BSD-3-Clause
// How the levels of the sandbox differ, and what the level strict refuses to begin with.
#include <gtest/gtest.h>
#include <sys/prctl.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <utility>

#include "ipc/control/zygote_messages.h"
#include "tests/worker/sandboxed.h"

namespace isopool::tests {

namespace {

namespace fs = std::filesystem;

std::vector<std::string> printedBy(const std::string& command) {
  std::vector<std::string> lines;
  FILE* output = ::popen(command.c_str(), "re");
  if (output == nullptr) return lines;
  std::string line;
  for (int letter = std::fgetc(output); letter != EOF; letter = std::fgetc(output)) {
    if (letter != '\n') {
      line.push_back(static_cast<char>(letter));
      continue;
    }
    lines.push_back(std::exchange(line, {}));
  }
  ::pclose(output);
  return lines;
}

}  // namespace

TEST(SandboxLevel, ThatDoesNotExistIsRefusedByTheZygoteInOneLine) {
  ZygoteProcess zygote({"ISOPOOL_SANDBOX=paranoid"});
  const auto failed = ipc::decodeMessage<ipc::ZygoteFailed>(zygote.greeting());
  EXPECT_EQ(failed.text,
            "ISOPOOL_SANDBOX=paranoid: 'paranoid' is not one of none, default, strict");
}

TEST(SandboxLevel, StrictIsRefusedWithAFolderThatIsNotThere) {
  ZygoteProcess zygote({"ISOPOOL_SANDBOX=strict", "ISOPOOL_SANDBOX_READ=/no/such/folder"});
  const auto failed = ipc::decodeMessage<ipc::ZygoteFailed>(zygote.greeting());
  EXPECT_TRUE(has(failed.text, "ISOPOOL_SANDBOX_READ names /no/such/folder")) << failed.text;
}

TEST(SandboxLevel, StrictIsRefusedWithWhatAZygoteTakesCodeFrom) {
  const fs::path modules = folder("modules");
  fs::create_directories(modules / "package");
  const std::string path = "PYTHONPATH=" + modules.string();
  for (const fs::path& writable : {modules, modules / "package", modules.parent_path()}) {
    ZygoteProcess zygote(
        {path, "ISOPOOL_SANDBOX=strict", "ISOPOOL_SANDBOX_WRITE=" + writable.string()});
    const auto failed = ipc::decodeMessage<ipc::ZygoteFailed>(zygote.greeting());
    EXPECT_TRUE(has(failed.text, "ISOPOOL_SANDBOX_WRITE names " + writable.string()))
        << failed.text;
    EXPECT_TRUE(has(failed.text, "takes code from " + modules.string())) << failed.text;
  }
}

TEST(SandboxLevel, StrictIsRefusedWithALinkToWhatAZygoteTakesCodeFrom) {
  const fs::path writable = folder("writable");
  const fs::path modules = folder("modules");
  const fs::path second = folder("readable") / "second_link";
  fs::create_directories(modules);
  // sys.path names a link that models cannot write. It leads to a link in a folder that they
  // can write.
  const fs::path first = writable / "first_link";
  for (const auto& [link, target] : {std::pair{first, modules}, std::pair{second, first}}) {
    fs::remove(link);
    fs::create_symlink(target, link);
  }
  for (const fs::path& named : {first, second}) {
    ZygoteProcess zygote({"PYTHONPATH=" + named.string(), "ISOPOOL_SANDBOX=strict",
                          "ISOPOOL_SANDBOX_WRITE=" + writable.string()});
    const auto failed = ipc::decodeMessage<ipc::ZygoteFailed>(zygote.greeting());
    EXPECT_TRUE(has(failed.text, "takes code from " + first.string())) << failed.text;
  }
  fs::remove(first);
  fs::remove(second);
}

TEST(SandboxLevel, StrictIsRefusedWithAModuleThatAZygoteHasLoaded) {
  const fs::path modules = folder("modules");
  const fs::path writable = folder("writable");
  fs::create_directories(modules);
  const fs::path elsewhere = writable / "elsewhere.py";
  std::ofstream(elsewhere) << "x = 1\n";
  std::ofstream(modules / "finds_elsewhere.py")
      << "import importlib.util, sys\n"
         "spec = importlib.util.spec_from_file_location('elsewhere', '"
      << elsewhere.string()
      << "')\nsys.modules['elsewhere'] = importlib.util.module_from_spec(spec)\n"
         "spec.loader.exec_module(sys.modules['elsewhere'])\n";
  ZygoteProcess zygote({"PYTHONPATH=" + modules.string(), "ISOPOOL_PRELOAD_MODULES=finds_elsewhere",
                        "ISOPOOL_SANDBOX=strict", "ISOPOOL_SANDBOX_WRITE=" + writable.string()});
  const auto failed = ipc::decodeMessage<ipc::ZygoteFailed>(zygote.greeting());
  EXPECT_TRUE(has(failed.text, "takes code from " + elsewhere.string())) << failed.text;
  fs::remove(elsewhere);
}

// Models may be able to write the home folder. A virtual environment ignores the user's packages,
// so the test runs the Python that the environment was made from.
TEST(SandboxLevel, StrictRunsNoCodeOfTheUsersOwnPackagesBeforeItsWorkers) {
  const std::vector<std::string> python =
      printedBy(PYTHON
                " -c 'import os, sys, torch; print(sys._base_executable); "
                "print(os.path.dirname(os.path.dirname(torch.__file__))); "
                "print(\"%d.%d\" % sys.version_info[:2])'");
  ASSERT_EQ(python.size(), 3u);
  const fs::path home = folder("home");
  const fs::path site = home / ".local/lib" / ("python" + python[2]) / "site-packages";
  const fs::path trace = folder("trace") / "ran";
  fs::create_directories(site);
  std::ofstream(site / "planted.pth") << "import os; open('" << trace.string() << "', 'w')\n";
  for (const std::string level : {"strict", "default"}) {
    fs::remove(trace);
    ZygoteProcess zygote({"HOME=" + home.string(), "ISOPOOL_PYTHON_EXECUTABLE=" + python[0],
                          "PYTHONPATH=" + python[1], "ISOPOOL_SANDBOX=" + level});
    EXPECT_EQ(zygote.greeting().type, ipc::MessageType::kZygoteReady);
    EXPECT_EQ(fs::exists(trace), level == "default") << level;
  }
}

TEST(SandboxLevel, NoneAndDefaultDifferInNewPrivilegesAndLimits) {
  // A process cannot take this back, and some containers set it: none leaves it as it is.
  const std::string own = std::to_string(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0));
  for (const auto& [level, privileges] :
       {std::pair<std::string, std::string>{"none", own}, {"default", "1"}}) {
    ZygoteProcess zygote(
        {"ISOPOOL_SANDBOX=" + level, level == "none" ? "UNUSED=1" : "ISOPOOL_WORKER_FILES=100"});
    auto worker = zygote.fork(1);
    TestClient client(*worker);
    client.defineProbe();
    const auto ask = [&](const std::string& source) { return client.probeValue("run", {source}); };
    EXPECT_EQ(ask("result = [line.split()[1] for line in open('/proc/self/status')"
                  " if line.startswith('NoNewPrivs')][0]")
                  .toStringRef(),
              privileges);
    EXPECT_EQ(ask("import os; result = os.system('exit 3') >> 8").toInt(), 3);
    EXPECT_EQ(ask("import resource; result = resource.getrlimit(resource.RLIMIT_CORE)[0]").toInt(),
              0);
    const int64_t files =
        ask("import resource; result = resource.getrlimit(resource.RLIMIT_NOFILE)[1]").toInt();
    if (level == "none") {
      EXPECT_GT(files, 100);
    } else {
      EXPECT_EQ(files, 100);
    }
  }
}

TEST(SandboxLevel, DefaultLimitsProcessesOfTheUser) {
  ZygoteProcess zygote({"ISOPOOL_WORKER_PROCESSES=1000"});
  auto worker = zygote.fork(1);
  TestClient client(*worker);
  client.defineProbe();
  EXPECT_EQ(client
                .probeValue("run",
                            {"import resource; result = resource.getrlimit(resource.RLIMIT_NPROC)"})
                .toTupleRef()
                .elements()[1]
                .toInt(),
            1000);
}

}  // namespace isopool::tests
