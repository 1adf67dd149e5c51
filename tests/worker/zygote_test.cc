// SPDX-License-Identifier: BSD-3-Clause
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>

#include "ipc/channel/liveness_word.h"
#include "ipc/control/worker_messages.h"
#include "ipc/control/zygote_messages.h"
#include "testing/one_processor.h"
#include "tests/worker/harness.h"

namespace isopool::tests {

namespace {

size_t threadsOf(pid_t pid) {
  size_t count = 0;
  for ([[maybe_unused]] const auto& task :
       std::filesystem::directory_iterator("/proc/" + std::to_string(pid) + "/task")) {
    ++count;
  }
  return count;
}

bool exists(pid_t pid) { return ::kill(pid, 0) == 0; }

std::filesystem::path moduleFolder(const std::string& name, const std::string& text) {
  const auto folder = std::filesystem::path(probePackage()).parent_path() / name;
  std::filesystem::create_directories(folder);
  std::ofstream(folder / (name + ".py")) << text;
  return folder;
}

}  // namespace

TEST(Zygote, GreetsWithItsVersionsAndHasOneThread) {
  ZygoteProcess& zygote = sharedZygote();
  const auto ready = ipc::decodeMessage<ipc::ZygoteReady>(zygote.greeting());
  EXPECT_FALSE(ready.pythonVersion.empty());
  EXPECT_FALSE(ready.torchVersion.empty());
  EXPECT_TRUE(ready.livenessWordWorks);
  EXPECT_EQ(threadsOf(zygote.pid()), 1u);
}

TEST(Zygote, RefusesToServeWithAModuleThatStartsThreads) {
  const auto folder =
      moduleFolder("starts_a_thread",
                   "import threading, time\n"
                   "threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()\n");
  ZygoteProcess zygote(
      {"ISOPOOL_PRELOAD_MODULES=starts_a_thread", "PYTHONPATH=" + folder.string()});
  const auto failed = ipc::decodeMessage<ipc::ZygoteFailed>(zygote.greeting());
  EXPECT_NE(failed.text.find("2 threads"), std::string::npos) << failed.text;
  EXPECT_NE(failed.text.find("the module starts_a_thread of ISOPOOL_PRELOAD_MODULES"),
            std::string::npos)
      << failed.text;
}

TEST(Zygote, NamesTheFirstOfSeveralModulesThatStartsThreads) {
  const auto folder =
      moduleFolder("imports_threads",
                   "import threading, time\n"
                   "threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()\n");
  ZygoteProcess zygote(
      {"ISOPOOL_PRELOAD_MODULES=json,imports_threads,csv", "PYTHONPATH=" + folder.string()});
  const auto failed = ipc::decodeMessage<ipc::ZygoteFailed>(zygote.greeting());
  EXPECT_NE(failed.text.find("the module imports_threads of"), std::string::npos) << failed.text;
}

TEST(Zygote, NamesSitecustomizeIfItStartsThreads) {
  const auto folder =
      moduleFolder("sitecustomize",
                   "import threading, time\n"
                   "threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()\n");
  ZygoteProcess zygote({"PYTHONPATH=" + folder.string()});
  const auto failed = ipc::decodeMessage<ipc::ZygoteFailed>(zygote.greeting());
  EXPECT_NE(failed.text.find("sitecustomize"), std::string::npos) << failed.text;
}

TEST(Zygote, TellsThePythonErrorOfAPreloadedModule) {
  ZygoteProcess zygote({"ISOPOOL_PRELOAD_MODULES=no_such_module_at_all"});
  const auto failed = ipc::decodeMessage<ipc::ZygoteFailed>(zygote.greeting());
  EXPECT_NE(failed.text.find("No module named 'no_such_module_at_all'"), std::string::npos)
      << failed.text;
}

TEST(Zygote, ThatFindsNoTorchNamesTheInterpreterAndItsSetting) {
  // An interpreter that is not installed: Python finds neither its own packages nor torch
  // beside it.
  const auto folder = std::filesystem::path(probePackage()).parent_path() / "other-python";
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "python") << "no program";
  const std::string python = folder / "python";
  ZygoteProcess zygote({"ISOPOOL_PYTHON_EXECUTABLE=" + python});
  const auto failed = ipc::decodeMessage<ipc::ZygoteFailed>(zygote.greeting());
  EXPECT_NE(failed.text.find(python + " (python, ISOPOOL_PYTHON_EXECUTABLE): "), std::string::npos)
      << failed.text;
  EXPECT_NE(failed.text.find("No module named 'torch'"), std::string::npos) << failed.text;
}

TEST(Zygote, LeavesWhenItsSupervisorClosesTheSocket) {
  ZygoteProcess zygote;
  zygote.control().close();
  int status = 0;
  waitUntil([&] { return ::waitpid(zygote.pid(), &status, WNOHANG) == zygote.pid(); },
            "the zygote's end");
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

TEST(Zygote, LifelineKillsAStoppedZygote) {
  ZygoteProcess zygote;
  ::kill(zygote.pid(), SIGSTOP);
  zygote.lifeline().close();
  int status = 0;
  waitUntil([&] { return ::waitpid(zygote.pid(), &status, WNOHANG) == zygote.pid(); },
            "the zygote's end");
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

TEST(Worker, IsTheSupervisorsChildInAGroupOfItsOwn) {
  auto worker = sharedZygote().fork(1);
  EXPECT_EQ(::getpgid(worker->pid), worker->pid);
  worker->kill();
  EXPECT_EQ(worker->waitForEnd().signal, SIGKILL);  // waitpid: it is our child
}

TEST(Worker, HasOnlyItsOwnDescriptors) {
  auto worker = sharedZygote().fork(1);
  // 0, 1, 2 and a duplicate of each, control, lifeline, doorbell, crash log
  size_t count = 0;
  for ([[maybe_unused]] const auto& fd :
       std::filesystem::directory_iterator("/proc/" + std::to_string(worker->pid) + "/fd")) {
    ++count;
  }
  // and /proc/self/pagemap
  EXPECT_EQ(count, 11u);
}

TEST(Worker, KnowsTheProcessorThatItRunsOn) {
  auto worker = sharedZygote().fork(1);
  TestClient client(*worker);
  client.defineProbe();
  const std::vector<int> processors = usableProcessors();
  if (processors.size() < 2) GTEST_SKIP() << "this process may use one processor only";
  for (const int processor : processors) {
    confineTo(processor, worker->pid);
    EXPECT_EQ(client.probeValue("processor").toInt(), processor);
  }
}

TEST(Worker, LeavesWhenTheControlSocketIsClosed) {
  auto worker = sharedZygote().fork(1);
  worker->control.close();
  worker->ring();
  const ProcessEnd end = worker->waitForEnd();
  EXPECT_EQ(end.signal, 0);
  EXPECT_EQ(end.exitCode, 0);
}

TEST(Worker, LifelineKillsTheWholeGroupEvenStopped) {
  auto worker = sharedZygote().fork(1);
  TestClient client(*worker);
  client.defineProbe();
  const auto sleeper = static_cast<pid_t>(client.probeValue("fork_sleeper").toInt());
  ASSERT_TRUE(exists(sleeper));
  ::kill(worker->pid, SIGSTOP);
  ::kill(sleeper, SIGSTOP);
  worker->lifeline.close();
  EXPECT_EQ(worker->waitForEnd().signal, SIGKILL);
  // An orphan of the worker is re-parented to us.
  waitUntil([&] { return ::waitpid(sleeper, nullptr, WNOHANG) == sleeper; }, "the sleeper's end");
}

TEST(Worker, KillLeavesTheLivenessWordOrphanedAtOnce) {
  auto worker = sharedZygote().fork(1);
  TestClient client(*worker);
  EXPECT_FALSE(ipc::livenessWordOwnerDied(client.end().peer()));
  worker->kill();
  waitUntil([&] { return ipc::livenessWordOwnerDied(client.end().peer()); }, "the liveness word");
  EXPECT_EQ(worker->waitForEnd().signal, SIGKILL);
}

TEST(Worker, TwoWorkersDrawDifferentNumbers) {
  auto one = sharedZygote().fork(11);
  auto two = sharedZygote().fork(12);
  auto again = sharedZygote().fork(11);
  const auto draw = [](WorkerProcess& worker) {
    TestClient client(worker);
    client.defineProbe();
    const auto elements = client.probeValue("draw").toTupleRef().elements().vec();
    return std::array<double, 3>{elements[0].toDouble(), elements[1].toDouble(),
                                 elements[2].toDouble()};
  };
  const auto first = draw(*one);
  const auto second = draw(*two);
  const auto third = draw(*again);
  for (size_t i = 0; i < 3; ++i) EXPECT_NE(first[i], second[i]) << i;
  EXPECT_EQ(first[0], third[0]);  // torch and numpy follow the seed
  EXPECT_EQ(first[1], third[1]);
}

TEST(Worker, CrashLeavesThePythonStackInItsCrashLog) {
  auto worker = sharedZygote().fork(1);
  TestClient client(*worker);
  client.defineProbe();
  ASSERT_TRUE(client.probe("complain", {std::string("I feel unwell")}).value.isNone());
  client.publishProbe("crash");
  EXPECT_EQ(worker->waitForEnd().signal, SIGSEGV);
  const std::string words = worker->readCrashLog();
  EXPECT_NE(words.find("I feel unwell"), std::string::npos) << words;
  EXPECT_NE(words.find("Segmentation fault"), std::string::npos) << words;
  EXPECT_NE(words.find("in crash"), std::string::npos) << words;
}

TEST(Worker, CrashLogKeepsTheNewestAndStaysSmall) {
  auto worker = sharedZygote().fork(1);
  TestClient client(*worker);
  client.defineProbe();
  for (int i = 0; i < 3000; ++i) client.probeValue("complain_quietly", {std::string(100, 'a')});
  client.probeValue("complain", {std::string("the end")});
  const std::string words = worker->readCrashLog();
  EXPECT_EQ(words.substr(words.size() - 8), "the end\n");
  struct stat status {};
  ::fstat(worker->crashLog.get(), &status);
  EXPECT_LE(status.st_blocks * 512, 160 * 1024);
}

TEST(Worker, RefusesAClientWithInvalidMemoryAndServesTheOthers) {
  auto worker = sharedZygote().fork(1);
  TestClient client(*worker);
  client.defineProbe();
  // The memory is zero: it has no valid layout and no epoch.
  const base::Fd own = ipc::createMemoryObject("client control", ipc::kClientControlBytes);
  const base::Fd peer = ipc::createMemoryObject("worker control", ipc::kWorkerControlBytes);
  const base::Fd output = ipc::createMemoryObject("output", 1 << 20);
  constexpr uint64_t kStranger = 77;
  worker->send(ipc::AttachChannel{worker->epoch, kStranger, 1 << 20},
               {own.get(), peer.get(), output.get()});
  EXPECT_EQ(ipc::decodeMessage<ipc::ChannelDetached>(worker->receive()).client, kStranger);
  ipc::sealMemoryObject(own, ipc::Seal::kSingleWriter);
  worker->send(ipc::AttachChannel{worker->epoch, kStranger, 1 << 20},
               {own.get(), peer.get(), output.get()});
  EXPECT_EQ(ipc::decodeMessage<ipc::ChannelDetached>(worker->receive()).client, kStranger);
  EXPECT_TRUE(client.probe("complain", {std::string("well")}).value.isNone());
}

// A client has the descriptors of its memory, and a seal can forbid further writable mappings.
TEST(Worker, RefusesAClientWhoseMemoryTheKernelDoesNotMapAndServesTheOthers) {
  auto worker = sharedZygote().fork(1);
  TestClient client(*worker);
  client.defineProbe();
  const base::Fd own = ipc::createMemoryObject("client control", ipc::kClientControlBytes);
  ipc::sealMemoryObject(own, ipc::Seal::kSingleWriter);
  constexpr uint64_t kStranger = 77;
  for (const bool ofOutput : {false, true}) {
    const base::Fd peer = ipc::createMemoryObject("worker control", ipc::kWorkerControlBytes);
    const base::Fd output = ipc::createMemoryObject("output", 1 << 20);
    ipc::sealMemoryObject(ofOutput ? output : peer, ipc::Seal::kSingleWriter);
    worker->send(ipc::AttachChannel{worker->epoch, kStranger, 1 << 20},
                 {own.get(), peer.get(), output.get()});
    EXPECT_EQ(ipc::decodeMessage<ipc::ChannelDetached>(worker->receive()).client, kStranger);
  }
  EXPECT_TRUE(client.probe("complain", {std::string("well")}).value.isNone());
}

TEST(Worker, DiesAtAnArmedCrashPoint) {
  auto worker = sharedZygote().fork(1);
  TestClient client(*worker);
  client.defineProbe();
  client.probeValue("arm", {std::string("resultExported"), 3});
  client.probeValue("nothing");
  client.publishProbe("nothing");
  EXPECT_EQ(worker->waitForEnd().signal, SIGKILL);
  EXPECT_FALSE(client.answered());
}

}  // namespace isopool::tests
