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
#include "client/pool/pool_call.h"
#include "client/pool/replicated_object.h"
#include "client/pool/worker_steps.h"
#include "client/program/process_fork.h"

namespace isopool {

namespace {

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

PoolOptions optionsOf(size_t workers, std::shared_ptr<Environment> environment) {
  if (workers == 0 || workers > client::kMostWorkers) {
    throw Error("an InterpreterManager needs between 1 and " +
                std::to_string(client::kMostWorkers) + " interpreters, not " +
                std::to_string(workers));
  }
  PoolOptions options;
  options.workers = workers;
  options.environment = std::move(environment);
  return options;
}

PoolOptions optionsOf(const SharedSupervisor& supervisor, size_t workers,
                      std::shared_ptr<Environment> environment) {
  // An empty address would select a private supervisor.
  if (supervisor.address.empty()) throw Error("the address of the shared supervisor is empty");
  PoolOptions options = optionsOf(workers, std::move(environment));
  options.sharedSupervisor = supervisor.address;
  return options;
}

// Those of the modules that the workers' Python does not have.
at::IValue missingModules(const std::shared_ptr<client::Pool>& pool,
                          const std::vector<std::string>& modules,
                          const client::Deadline& deadline) {
  for (;;) {
    const auto session = client::openSession(pool, deadline);
    client::RequestDraft& draft = client::requestDraft();
    draft.onlyForThisCaller = true;
    auto& packer = draft.writer.packer();
    packer.pack_array(static_cast<uint32_t>(modules.size()));
    for (const std::string& module : modules) packer.pack(module);
    try {
      return client::step(*pool, *session->channel, ipc::Operation::kFindModules, draft, deadline);
    } catch (const SupervisorLost&) {
      if (!pool->reconnects()) throw;
    }
  }
}

std::vector<Interpreter> interpretersOf(const client::Pool& pool) {
  std::vector<Interpreter> interpreters;
  interpreters.reserve(pool.slots().size());
  for (const auto& slot : pool.slots()) interpreters.push_back(InterpreterAccess::make(slot));
  return interpreters;
}

// Checks what a worker would find only when it runs the package.
void checkRequirements(const std::shared_ptr<client::Pool>& pool, const client::ArchiveFile& file,
                       const client::Deadline& deadline) {
  const auto connection = pool->connection();
  if (!connection) throw Error("the InterpreterManager that this belongs to is gone");
  const client::PackageContents contents = client::readPackage(file);
  const std::string& made = contents.pythonVersion;
  const std::string& ours = connection->pythonVersion();
  TORCH_CHECK(made.empty() || majorMinor(made) == majorMinor(ours) ||
                  client::allowsOtherPython(pool->settings()),
              file.name(), " was made by Python ", made, ", the workers run Python ", ours,
              ": make it again with Python ", majorMinor(ours),
              ", or set ISOPOOL_ALLOW_OTHER_PYTHON=1 to try it anyway");
  if (contents.externModules.empty()) return;
  const at::IValue missing = missingModules(pool, contents.externModules, deadline);
  std::string names;
  for (const at::IValue& name : missing.toListRef()) {
    names += (names.empty() ? "" : ", ") + name.toStringRef();
  }
  TORCH_CHECK(names.empty(), file.name(),
              " needs modules that the workers' Python does not have: ", names,
              ". Install them there, or give their folder to a PathEnvironment "
              "(docs/adding-libraries.md)");
}

std::shared_ptr<ReplicatedObjImpl> makeModel(const std::shared_ptr<client::Pool>& pool,
                                             std::shared_ptr<client::ArchiveFile> archive,
                                             const std::string& name,
                                             const client::Deadline& deadline) {
  const std::string reported = client::reportName(*archive, name);
  client::ModelOrigin origin{"", archive->name(), archive->bytes()};
  client::StoredModel model = client::readModel(std::move(archive), name);
  const client::ObjectDefinition definition =
      client::loadedObject(model.file->id(), model.format, model.options, reported);
  // The only user of the file: so another program's memory with the same bytes may replace it.
  auto file = std::make_shared<PackageImpl>(pool, std::move(model.file));
  origin.format = model.format;
  return replicate(pool, definition, std::move(file), deadline, std::move(origin));
}

}  // namespace

ManagerImpl::ManagerImpl(const PoolOptions& options)
    : modules(firstModules()),
      owner(options, modules, "InterpreterManager"),
      pool(owner.pool()),
      interpreters(interpretersOf(*pool)),
      instances(interpreters) {}

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

InterpreterManager::InterpreterManager(const PoolOptions& options)
    : impl_(std::make_shared<ManagerImpl>(options)) {}

InterpreterManager::InterpreterManager(size_t nInterp, std::shared_ptr<Environment> env)
    : InterpreterManager(optionsOf(nInterp, std::move(env))) {}

InterpreterManager::InterpreterManager(const SharedSupervisor& supervisor, size_t nInterp,
                                       std::shared_ptr<Environment> env)
    : InterpreterManager(optionsOf(supervisor, nInterp, std::move(env))) {}

InterpreterManager::~InterpreterManager() = default;

InterpreterSession InterpreterManager::acquireOne(const CallOptions& options) {
  return InterpreterSession(
      client::openSession(impl_->pool, client::deadlineOf(*impl_->pool, options)));
}

const at::ArrayRef<Interpreter>& InterpreterManager::allInstances() { return impl_->instances; }

std::vector<at::IValue> InterpreterManager::callOnAll(
    const std::string& module, const std::string& name, std::vector<at::IValue> args,
    std::unordered_map<std::string, c10::IValue> kwargs, const CallOptions& options) {
  const client::Deadline deadline = client::deadlineOf(*impl_->pool, options);
  return client::onEverySlot(*impl_->pool, deadline, [&](const std::shared_ptr<WorkerSlot>& slot) {
    for (int lost = 0;;) {
      InterpreterSession session(
          client::openSession(impl_->pool, deadline, slot, client::Admission::kGiven));
      std::optional<Obj> result;
      try {
        const Obj callee =
            session.global(module.c_str(), name.c_str(), client::optionsUntil(deadline));
        result = callee.call(args, kwargs, client::optionsUntil(deadline));
      } catch (const WorkerLost& death) {
        // The call has not started: the worker's replacement runs it.
        if (death.started() || client::isLastLoss(death, lost)) throw;
        continue;
      } catch (const SupervisorLost& loss) {
        if (loss.started() || !impl_->pool->reconnects()) throw;
        continue;
      }
      try {
        CallOptions conversion = client::optionsUntil(deadline);
        conversion.permissive = options.permissive;
        return result->toIValue(conversion);
      } catch (const client::UnsupportedValue&) {
        return at::IValue();
      }
    }
  });
}

Package InterpreterManager::loadPackage(const std::string& uri, const CallOptions& options) {
  impl_->pool->check();
  const client::Deadline deadline = client::deadlineOf(*impl_->pool, options);
  auto file = client::ArchiveFile::open(uri, deadline);
  checkRequirements(impl_->pool, *file, deadline);
  return Package(std::make_shared<PackageImpl>(impl_->pool, std::move(file)));
}

Package InterpreterManager::loadPackage(
    std::shared_ptr<caffe2::serialize::ReadAdapterInterface> reader, const CallOptions& options) {
  impl_->pool->check();
  TORCH_CHECK(reader != nullptr, "loadPackage: the reader is null");
  const client::Deadline deadline = client::deadlineOf(*impl_->pool, options);
  auto file = client::ArchiveFile::read(*reader, deadline);
  checkRequirements(impl_->pool, *file, deadline);
  return Package(std::make_shared<PackageImpl>(impl_->pool, std::move(file)));
}

ReplicatedObj InterpreterManager::loadModel(const std::string& path, const std::string& name,
                                            const CallOptions& options) {
  impl_->pool->check();
  const client::Deadline deadline = client::deadlineOf(*impl_->pool, options);
  return ReplicatedObj(
      makeModel(impl_->pool, client::ArchiveFile::open(path, deadline), name, deadline));
}

ReplicatedObj InterpreterManager::loadModel(
    std::shared_ptr<caffe2::serialize::ReadAdapterInterface> reader, const std::string& name,
    const CallOptions& options) {
  impl_->pool->check();
  TORCH_CHECK(reader != nullptr, "loadModel: the reader is null");
  const client::Deadline deadline = client::deadlineOf(*impl_->pool, options);
  return ReplicatedObj(
      makeModel(impl_->pool, client::ArchiveFile::read(*reader, deadline), name, deadline));
}

void InterpreterManager::debugLimitInterpreters(size_t N) {
  TORCH_CHECK(N > 0 && N <= impl_->interpreters.size(), "debugLimitInterpreters(", N,
              "): the limit must be between 1 and ", impl_->interpreters.size(),
              ", the number of the manager's interpreters");
  impl_->pool->limitSlots(N);
}

ReplicatedObj InterpreterManager::createMovable(Obj obj, InterpreterSession* I,
                                                const CallOptions& options) {
  client::checkSession(I == nullptr ? nullptr : I->impl_.get(), *impl_->pool);
  return I->createMovable(std::move(obj), options);
}

void InterpreterManager::registerModuleSource(std::string name, std::string src) {
  impl_->pool->check();
  impl_->modules->add(std::move(name), std::move(src));
}

size_t InterpreterManager::countRegisteredModuleSources() { return impl_->modules->names(); }

uint64_t InterpreterManager::workersReplaced() const { return impl_->pool->workersReplaced(); }

uint64_t InterpreterManager::callsRerun() const { return impl_->pool->callsRerun(); }

PoolStatistics InterpreterManager::statistics() const { return impl_->pool->statistics(); }

std::vector<PoolSetting> InterpreterManager::options() const {
  return impl_->pool->settingsInForce();
}

}  // namespace isopool
