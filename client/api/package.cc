// SPDX-License-Identifier: BSD-3-Clause
#include "isopool/package.h"

#include <new>

#include "base/json.h"
#include "client/models/model_formats.h"
#include "client/pool/movable.h"
#include "client/pool/pool_call.h"
#include "client/pool/replicated_object.h"
#include "client/pool/worker_steps.h"

namespace isopool {

PackageImpl::PackageImpl(std::shared_ptr<client::Pool> poolOfManager,
                         std::shared_ptr<client::ArchiveFile> packageFile)
    : pool(std::move(poolOfManager)), file(std::move(packageFile)) {
  pool->contents().addPackage(file);
}

PackageImpl::~PackageImpl() {
  try {
    pool->contents().removePackage(file->id());
  } catch (const std::bad_alloc&) {
    // The supervisor then keeps the package until this program disconnects.
  }
}

ReplicatedObj Package::loadPickle(const std::string& module, const std::string& file,
                                  const CallOptions& callOptions) {
  client::Pool& pool = *impl_->pool;
  pool.check();
  // Text by text: the destructor of a JSON array allocates, which must not fail there.
  std::string options = base::jsonString(module);
  options.insert(0, 1, '[').append(1, ',').append(base::jsonString(file)).append(1, ']');
  const client::ObjectDefinition definition =
      client::loadedObject(impl_->file->id(), client::kTorchPackage.name, options,
                           client::reportName(*impl_->file, module + "/" + file));
  return ReplicatedObj(replicate(impl_->pool, definition, impl_,
                                 client::deadlineOf(pool, callOptions),
                                 {client::kTorchPackage.name, impl_->file->name(),
                                  impl_->file->bytes(), impl_->file, module}));
}

std::string Package::loadText(const std::string& packageName, const std::string& key,
                              const CallOptions& options) {
  return resource("load_text", packageName, key, options);
}

std::string Package::loadBinary(const std::string& packageName, const std::string& key,
                                const CallOptions& options) {
  return resource("load_binary", packageName, key, options);
}

// One deadline for all steps.
std::string Package::resource(const char* method, const std::string& packageName,
                              const std::string& key, const CallOptions& options) {
  const client::Deadline deadline = client::deadlineOf(*impl_->pool, options);
  const auto left = [&] { return client::optionsUntil(deadline); };
  return acquireSession(left())
      .self.attr(method, left())
      .call({packageName, key}, {}, left())
      .toIValue(left())
      .toStringRef();
}

InterpreterSession Package::acquireSession(const CallOptions& options) {
  const client::Deadline deadline = client::deadlineOf(*impl_->pool, options);
  InterpreterSession session(client::openSession(impl_->pool, deadline));
  client::WorkerLink& channel = *session.impl_->channel;
  const base::HandleId handle = channel.nextHandle();
  client::RequestDraft& draft = client::requestDraft();
  draft.writer.packer().pack_array(2).pack(impl_->file->id().value).pack(handle.value);
  client::step(*impl_->pool, channel, ipc::Operation::kPackageHandle, draft, deadline);
  session.self = Obj(std::make_shared<InterpreterObj>(*session.impl_, handle));
  return session;
}

ReplicatedObj Package::createMovable(Obj obj, InterpreterSession* I, const CallOptions& options) {
  client::checkSession(I == nullptr ? nullptr : I->impl_.get(), *impl_->pool);
  return I->createMovable(std::move(obj), options);
}

}  // namespace isopool
