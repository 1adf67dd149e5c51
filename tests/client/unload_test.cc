// SPDX-License-Identifier: BSD-3-Clause
// The memory and descriptors of a package or a model are freed in the worker after its last use.
#include <algorithm>
#include <filesystem>
#include <future>
#include <optional>
#include <string>
#include <vector>

#include "tests/client/harness.h"
#include "tests/client/made_files.h"

namespace isopool::tests {
namespace {

constexpr milliseconds kSoon(1000);
constexpr uint64_t kMiB = 1 << 20;

/// A process's resources: pages of files and of shared memory, private pages, open files.
struct Possessions {
  uint64_t sharedBytes = 0;
  uint64_t privateBytes = 0;
  size_t descriptors = 0;

  uint64_t bytes() const { return sharedBytes + privateBytes; }
};

Possessions possessionsOf(pid_t process) {
  const std::filesystem::path descriptors = "/proc/" + std::to_string(process) + "/fd";
  Possessions all;
  all.privateBytes = memoryOf(process, "Private_Dirty") + memoryOf(process, "Private_Clean");
  all.sharedBytes = memoryOf(process, "Rss") - all.privateBytes;
  all.descriptors = static_cast<size_t>(std::distance(
      std::filesystem::directory_iterator(descriptors), std::filesystem::directory_iterator()));
  return all;
}

/// Expects that within kSoon the process has no more than `before`, plus `slack` bytes.
void expectSoonBackAt(pid_t process, const Possessions& before, uint64_t slack) {
  Possessions now;
  EXPECT_TRUE(waitUntil(
      [&] {
        now = possessionsOf(process);
        return now.sharedBytes <= before.sharedBytes + slack &&
               now.privateBytes <= before.privateBytes + slack &&
               now.descriptors <= before.descriptors;
      },
      kSoon))
      << "shared MiB " << before.sharedBytes / kMiB << " -> " << now.sharedBytes / kMiB
      << ", private MiB " << before.privateBytes / kMiB << " -> " << now.privateBytes / kMiB
      << ", descriptors " << before.descriptors << " -> " << now.descriptors;
}

std::string exportedPath(const std::string& name) {
  static const std::filesystem::path folder = madeBy("make_exported.py");
  return folder / name;
}

void useLargePackage(InterpreterManager& manager) {
  Package package = manager.loadPackage(packagePath("large.pt"));
  EXPECT_EQ(package.loadPickle("model", "model.pkl")({}).toDouble(), 1.5);
}

TEST(Unload, OfAPackageWithACycleGivesItsWeightsBackWithinASecond) {
  OwnPool pool(1);
  const pid_t worker = pool.processOf(0);
  const Possessions before = possessionsOf(worker);
  for (int i = 0; i < 3; ++i) {
    useLargePackage(pool.manager());
    expectSoonBackAt(worker, before, 16 * kMiB);
  }
  EXPECT_EQ(pool.processOf(0), worker);
}

TEST(Unload, OfAPackageOfManyModulesGivesMemoryAndDescriptorsBackWithinASecond) {
  OwnPool pool(1);
  const pid_t worker = pool.processOf(0);
  const auto use = [&] {
    Package package = pool.manager().loadPackage(packagePath("many_modules.pt"));
    InterpreterSession session = package.acquireSession();
    const Obj entry = session.self.attr("import_module")({"entry"});
    EXPECT_EQ(entry.attr("answer")(at::ArrayRef<Obj>()).toIValue().toInt(), 0);
  };
  const Possessions before = possessionsOf(worker);
  for (int i = 0; i < 6; ++i) {
    use();
    // The first use also allocates what torch and Python never free.
    expectSoonBackAt(worker, before, 16 * kMiB);
  }
}

TEST(Unload, OfAnExportedModelGivesItsLastInstanceBackWithinASecond) {
  OwnPool pool(1);
  const pid_t worker = pool.processOf(0);
  const auto use = [&](const std::string& name, int64_t width) {
    const ReplicatedObj model = pool.manager().loadModel(exportedPath(name));
    EXPECT_EQ(model({empty({1, width}).fill_(1)}).toTensor().numel(), width);
  };
  // The first use imports torch.export, which stays in memory.
  use("small.pt2", 32);
  use("small.pt2", 32);
  const Possessions before = possessionsOf(worker);
  for (int i = 0; i < 3; ++i) {
    use("large.pt2", 4096);
    expectSoonBackAt(worker, before, 16 * kMiB);
  }
}

TEST(Unload, LeavesAnObjThatIsHeldAlive) {
  OwnPool pool(1);
  const pid_t worker = pool.processOf(0);
  const Possessions atFirst = possessionsOf(worker);
  std::optional<InterpreterSession> session;
  std::optional<Obj> held;
  {
    Package package = pool.manager().loadPackage(packagePath("large.pt"));
    session.emplace(package.acquireSession());
    held.emplace(session->self.attr("load_pickle")({"model", "model.pkl"}));
    session->self = *held;
    held->attr("weight").attr("sum")(at::ArrayRef<Obj>());
  }
  const Possessions before = possessionsOf(worker);
  // When the memory of this package is freed, everything unused has been collected.
  useLargePackage(pool.manager());
  expectSoonBackAt(worker, before, 16 * kMiB);
  // The held object still reads its weights and imports a module of its package.
  EXPECT_EQ((*held)(at::ArrayRef<Obj>()).toIValue().toDouble(), 1.5);
  EXPECT_GT(possessionsOf(worker).bytes(), atFirst.bytes() + 48 * kMiB);
  session->self = Obj();
  held.reset();
  expectSoonBackAt(worker, atFirst, 16 * kMiB);
}

// More than a worker's ring has room for.
TEST(Unload, DoesNotWaitForACallThatAWorkerRuns) {
  OwnPool pool(2);
  const Gate gate;
  auto running = std::async(std::launch::async,
                            [&] { return pool.subject().ask("wait_at", gate.arguments()); });
  const pid_t busy = gate.arrival();
  Package package = pool.manager().loadPackage(packagePath());
  for (int i = 0; i < 100; ++i) {
    ReplicatedObj object = package.loadPickle("model", "model.pkl");
    EXPECT_NE(object.method("pid")({}).toInt(), busy);
    object.unload();
  }
  EXPECT_EQ(running.wait_for(milliseconds(0)), std::future_status::timeout);
  gate.open();
  running.get();
}

// A full garbage collection delays calls that arrive meanwhile.
TEST(Unload, LetsObjsThatCameLaterGoWithoutACollection) {
  OwnPool pool(1);
  const auto collections = [&](const std::string& first = "") {
    return pool.subject().number(
        "run", {"import gc\n" + first + "\nresult = gc.get_stats()[2]['collections']"});
  };
  InterpreterSession session = pool.subject().object().acquireSession();
  const Obj held = session.fromIValue(1);
  int64_t before = collections("gc.disable()");
  useLargePackage(pool.manager());
  ASSERT_TRUE(waitUntil([&] { return collections() > before; }));
  before = collections();
  for (int i = 0; i < 3; ++i) EXPECT_EQ(session.fromIValue(i).toIValue().toInt(), i);
  EXPECT_FALSE(waitUntil([&] { return collections() > before; }, milliseconds(1500)));
  EXPECT_EQ(held.toIValue().toInt(), 1);
}

}  // namespace
}  // namespace isopool::tests
