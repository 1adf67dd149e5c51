// SPDX-License-Identifier: BSD-3-Clause
#include "isopool/interpreter_manager.h"
#include "base/mutex.h"

#include <deque>
#include <new>
#include <optional>

#include "client/api/manager_impl.h"
#include "client/models/package_contents.h"
#include "client/models/stored_model.h"
#include "client/pool/broadcast.h"
#include "client/pool/interpreter_access.h"
#include "client/pool/movable.h"
#include "client/pool/replicated_object.h"
#include "client/pool/worker_steps.h"
#include "client/program/environment_setting.h"
#include "client/program/process_fork.h"

namespace isopool {

namespace {

constexpr size_t kMostWorkers = 1024;

// The Interpreters of destroyed managers.
struct KeptInterpreters {
  base::Mutex mutex;
  std::deque<std::vector<Interpreter>> ofManagers ISOPOOL_GUARDED_BY(mutex);
};

std::shared_ptr<client::ModuleSources> firstModules() {
  auto modules = std::make_shared<client::ModuleSources>();
  client::ModuleSources::Source ours = client::argumentNamesModule();
  modules->add(std::move(ours.name), std::move(ours.text));
  return modules;
}

std::string majorMinor(const std::string& version) {
  return version.substr(0, version.find('.', version.find('.') + 1));
}

std::shared_ptr<ManagerImpl> makeManager(size_t workers, std::shared_ptr<Environment> environment,
                                         const std::string& address) {
  if (workers == 0 || workers > kMostWorkers) {
    throw Error("an InterpreterManager needs between 1 and " + std::to_string(kMostWorkers) +
                " interpreters, not " + std::to_string(workers));
  }
  return std::make_shared<ManagerImpl>(static_cast<uint32_t>(workers), std::move(environment),
                                       address);
}

// An empty address would select a private supervisor.
const std::string& checkedAddress(const SharedSupervisor& supervisor) {
  if (supervisor.address.empty()) throw Error("the address of the shared supervisor is empty");
  return supervisor.address;
}

// Checks what a worker would find only when it runs the package.
void checkRequirements(const std::shared_ptr<client::Pool>& pool, const client::ArchiveFile& file) {
  const auto connection = pool->connection();
  if (!connection) throw Error("the InterpreterManager that this belongs to is gone");
  const client::PackageContents contents = client::readPackage(file);
  const std::string& made = contents.pythonVersion;
  const std::string& ours = connection->pythonVersion();
  TORCH_CHECK(made.empty() || majorMinor(made) == majorMinor(ours) ||
                  client::switchSetting("ISOPOOL_ALLOW_OTHER_PYTHON"),
              file.name(), " was made by Python ", made, ", the workers run Python ", ours,
              ": make it again with Python ", majorMinor(ours),
              ", or set ISOPOOL_ALLOW_OTHER_PYTHON=1 to try it anyway");
  if (contents.externModules.empty()) return;
  const auto session = client::openSession(pool);
  client::RequestDraft& draft = client::requestDraft();
  auto& packer = draft.writer.packer();
  packer.pack_array(static_cast<uint32_t>(contents.externModules.size()));
  for (const std::string& module : contents.externModules) packer.pack(module);
  const at::IValue missing =
      client::step(*pool, *session->channel, ipc::Operation::kFindModules, draft);
  std::string names;
  for (const at::IValue& name : missing.toListRef()) {
    names += (names.empty() ? "" : ", ") + name.toStringRef();
  }
  TORCH_CHECK(names.empty(), file.name(),
              " needs modules that the workers' Python does not have: ", names,
              ". Install them there, or give their folder to a PathEnvironment");
}

std::shared_ptr<ReplicatedObjImpl> makeModel(const std::shared_ptr<client::Pool>& pool,
                                             std::shared_ptr<client::ArchiveFile> archive,
                                             const std::string& name) {
  client::StoredModel model = client::readModel(std::move(archive), name);
  const client::ObjectDefinition definition =
      client::loadedObject(model.file->id(), model.format, model.options);
  // The only user of the file: so another program's memory with the same bytes may replace it.
  auto file = std::make_shared<PackageImpl>(pool, std::move(model.file));
  return replicate(pool, definition, std::move(file));
}

}  // namespace

ManagerImpl::ManagerImpl(uint32_t workers, std::shared_ptr<Environment> environment,
                         const std::string& address)
    : modules(firstModules()),
      owner(workers, std::move(environment), modules, "InterpreterManager", address),
      pool(owner.pool()) {
  interpreters.reserve(pool->slots().size());
  for (const auto& slot : pool->slots()) interpreters.push_back(InterpreterAccess::make(slot));
}

ManagerImpl::~ManagerImpl() {
  // Programs keep pointers to Interpreters: those of the last 64 managers stay valid objects, whose
  // use throws Error.
  constexpr size_t kMostKept = 64;
  try {
    static client::PerProcess<KeptInterpreters> perProcess;
    KeptInterpreters& kept = perProcess.get();
    base::MutexLock lock(kept.mutex);
    kept.ofManagers.push_back(std::move(interpreters));
    if (kept.ofManagers.size() > kMostKept) kept.ofManagers.pop_front();
  } catch (const std::bad_alloc&) {
    // Best effort: without memory the Interpreters are destroyed now.
  }
}

InterpreterManager::InterpreterManager(size_t nInterp, std::shared_ptr<Environment> env)
    : impl_(makeManager(nInterp, std::move(env), {})) {}

InterpreterManager::InterpreterManager(const SharedSupervisor& supervisor, size_t nInterp,
                                       std::shared_ptr<Environment> env)
    : impl_(makeManager(nInterp, std::move(env), checkedAddress(supervisor))) {}

InterpreterManager::~InterpreterManager() = default;

InterpreterSession InterpreterManager::acquireOne() {
  return InterpreterSession(client::openSession(impl_->pool));
}

at::ArrayRef<Interpreter> InterpreterManager::allInstances() { return impl_->interpreters; }

std::vector<at::IValue> InterpreterManager::callOnAll(
    const std::string& module, const std::string& name, std::vector<at::IValue> args,
    std::unordered_map<std::string, c10::IValue> kwargs) {
  return client::onEverySlot(*impl_->pool, [&](const std::shared_ptr<WorkerSlot>& slot) {
    for (int lost = 0;;) {
      InterpreterSession session(client::openSession(impl_->pool, slot));
      std::optional<Obj> result;
      try {
        const Obj callee = session.global(module.c_str(), name.c_str());
        result = callee.callKwargs(args, kwargs);
      } catch (const WorkerLost& death) {
        // The call has not started: the worker's replacement runs it.
        if (death.started() || ++lost == client::kMostLostInPreparation) throw;
        continue;
      }
      try {
        return result->toIValue();
      } catch (const client::UnsupportedValue&) {
        return at::IValue();
      }
    }
  });
}

Package InterpreterManager::loadPackage(const std::string& uri) {
  impl_->pool->check();
  auto file = client::ArchiveFile::open(uri);
  checkRequirements(impl_->pool, *file);
  return Package(std::make_shared<PackageImpl>(impl_->pool, std::move(file)));
}

Package InterpreterManager::loadPackage(
    std::shared_ptr<caffe2::serialize::ReadAdapterInterface> reader) {
  impl_->pool->check();
  TORCH_CHECK(reader != nullptr, "loadPackage: the reader is null");
  auto file = client::ArchiveFile::read(*reader);
  checkRequirements(impl_->pool, *file);
  return Package(std::make_shared<PackageImpl>(impl_->pool, std::move(file)));
}

ReplicatedObj InterpreterManager::loadModel(const std::string& path, const std::string& name) {
  impl_->pool->check();
  return ReplicatedObj(makeModel(impl_->pool, client::ArchiveFile::open(path), name));
}

ReplicatedObj InterpreterManager::loadModel(
    std::shared_ptr<caffe2::serialize::ReadAdapterInterface> reader, const std::string& name) {
  impl_->pool->check();
  TORCH_CHECK(reader != nullptr, "loadModel: the reader is null");
  return ReplicatedObj(makeModel(impl_->pool, client::ArchiveFile::read(*reader), name));
}

void InterpreterManager::debugLimitInterpreters(size_t N) {
  TORCH_CHECK(N > 0 && N <= impl_->interpreters.size(), "debugLimitInterpreters(", N,
              "): the limit must be between 1 and ", impl_->interpreters.size(),
              ", the number of the manager's interpreters");
  impl_->pool->limitSlots(N);
}

ReplicatedObj InterpreterManager::createMovable(Obj obj, InterpreterSession* I) {
  client::checkSession(I == nullptr ? nullptr : I->impl_.get(), *impl_->pool);
  return I->createMovable(std::move(obj));
}

void InterpreterManager::registerModuleSource(std::string name, std::string src) {
  impl_->pool->check();
  impl_->modules->add(std::move(name), std::move(src));
}

size_t InterpreterManager::countRegisteredModuleSources() { return impl_->modules->names(); }

uint64_t InterpreterManager::workersReplaced() const { return impl_->pool->workersReplaced(); }

uint64_t InterpreterManager::callsRerun() const { return impl_->pool->callsRerun(); }

PoolStatistics InterpreterManager::statistics() const { return impl_->pool->statistics(); }

}  // namespace isopool
