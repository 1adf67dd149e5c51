// SPDX-License-Identifier: BSD-3-Clause
#include "isopool/package.h"

#include <new>

#include "base/json.h"
#include "client/models/model_formats.h"
#include "client/pool/movable.h"
#include "client/pool/replicated_object.h"
#include "client/pool/worker_steps.h"

namespace isopool {

PackageImpl::PackageImpl(std::shared_ptr<client::Pool> poolOfManager,
                         std::shared_ptr<client::ArchiveFile> packageFile)
    : pool(std::move(poolOfManager)), file(std::move(packageFile)) {
  if (const auto connection = pool->connection()) connection->loadPackage(file);
}

PackageImpl::~PackageImpl() {
  try {
    if (const auto connection = pool->connection()) connection->unloadPackage(file->id());
  } catch (const std::bad_alloc&) {
    // The supervisor then keeps the package until this program disconnects.
  }
}

ReplicatedObj Package::loadPickle(const std::string& module, const std::string& file) {
  client::Pool& pool = *impl_->pool;
  pool.check();
  // Text by text: the destructor of a JSON array allocates, which must not fail there.
  std::string options = base::jsonString(module);
  options.insert(0, 1, '[').append(1, ',').append(base::jsonString(file)).append(1, ']');
  const client::ObjectDefinition definition =
      client::loadedObject(impl_->file->id(), client::kTorchPackage.name, options);
  return ReplicatedObj(replicate(impl_->pool, definition, impl_));
}

std::string Package::loadText(const std::string& packageName, const std::string& key) {
  return acquireSession().self.attr("load_text")({packageName, key}).toIValue().toStringRef();
}

std::string Package::loadBinary(const std::string& packageName, const std::string& key) {
  return acquireSession().self.attr("load_binary")({packageName, key}).toIValue().toStringRef();
}

InterpreterSession Package::acquireSession() {
  InterpreterSession session(client::openSession(impl_->pool));
  client::WorkerLink& channel = *session.impl_->channel;
  const base::HandleId handle = channel.nextHandle();
  client::RequestDraft& draft = client::requestDraft();
  draft.writer.packer().pack_array(2).pack(impl_->file->id().value).pack(handle.value);
  client::step(*impl_->pool, channel, ipc::Operation::kPackageHandle, draft);
  session.self = Obj(std::make_shared<InterpreterObj>(*session.impl_, handle));
  return session;
}

ReplicatedObj Package::createMovable(Obj obj, InterpreterSession* I) {
  client::checkSession(I == nullptr ? nullptr : I->impl_.get(), *impl_->pool);
  return I->createMovable(std::move(obj));
}

}  // namespace isopool
