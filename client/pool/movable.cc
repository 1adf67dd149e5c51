// SPDX-License-Identifier: BSD-3-Clause
#include "client/pool/movable.h"

#include <msgpack.hpp>

#include "base/utf8.h"
#include "client/pool/replicated_object.h"
#include "client/pool/worker_steps.h"
#include "client/program/process_fork.h"
#include "client/transport/moved_object.h"
#include "ipc/channel/status_page.h"

namespace isopool::client {

namespace {

/// The owners of what a moved object's definition refers to.
struct MoveSource {
  std::shared_ptr<MovedObject> memory;
  std::vector<std::shared_ptr<const void>> others;  ///< packages of its code, earlier moved objects
};

/// The worker's report on an object that it has pickled.
struct MoveSummary {
  uint64_t bytes = 0;
  uint64_t pickleOffset = 0;
  uint64_t pickleBytes = 0;
  std::vector<uint32_t> packages;
  std::string name;
};

// The name comes from a worker: only characters that a log can show, and no more of them than the
// status pages of the workers have.
std::string shownName(std::string_view text) {
  std::string name;
  while (!text.empty()) {
    const base::Character next = base::firstCharacter(text);
    if (name.size() + next.bytes > ipc::kShownNameBytes) break;
    if (next.valid && !base::isControlCharacter(next.code)) {
      name += text.substr(0, next.bytes);
    } else {
      name += '?';
    }
    text.remove_prefix(next.bytes);
  }
  return name.empty() ? "moved object" : name;
}

MoveSummary readSummary(const at::IValue& value) {
  const auto& fields = value.toTupleRef().elements();
  TORCH_CHECK(fields.size() == 5, "the summary of a moved object must have five fields");
  MoveSummary summary;
  summary.bytes = static_cast<uint64_t>(fields[0].toInt());
  summary.pickleOffset = static_cast<uint64_t>(fields[1].toInt());
  summary.pickleBytes = static_cast<uint64_t>(fields[2].toInt());
  for (const at::IValue& package : fields[3].toTupleRef().elements()) {
    summary.packages.push_back(static_cast<uint32_t>(package.toInt()));
  }
  summary.name = shownName(fields[4].toStringRef());
  return summary;
}

std::shared_ptr<const void> keepPackage(const std::shared_ptr<Pool>& pool, base::PackageId id) {
  if (auto moved = MovedObject::find(id)) return moved;
  // Owned through a Package, so that the workers keep it too.
  if (auto file = ArchiveFile::find(id)) return std::make_shared<PackageImpl>(pool, file);
  throw Error("the object can't be moved: it refers to a package that is no longer open");
}

ObjectDefinition movedObject(const MovedObject& memory, const MoveSummary& summary) {
  const uint64_t object = newObjectNumber();
  msgpack::sbuffer body;
  msgpack::packer(body)
      .pack_array(6)
      .pack(object)
      .pack(memory.id().value)
      .pack(summary.pickleOffset)
      .pack(summary.pickleBytes)
      .pack(summary.packages)
      .pack(summary.name);
  return {object, ipc::Operation::kDefineMovable, std::string(body.data(), body.size()),
          summary.name};
}

}  // namespace

std::shared_ptr<ReplicatedObjImpl> moveObject(const SessionImpl& session,
                                              const InterpreterObj& object,
                                              const Deadline& deadline) {
  Pool& pool = *session.pool;
  WorkerLink& channel = *session.channel;
  if (object.owner() != session.number) {
    throw Error("Cannot create movable from an object that lives in different session");
  }
  const auto connection = pool.connection();
  if (!connection) throw Error("the InterpreterManager that this belongs to is gone");

  const InterpreterObj move(session, channel.nextHandle());
  RequestDraft& pickling = requestDraft();
  pickling.writer.packer().pack_array(2).pack(object.handle().value).pack(move.handle().value);
  const MoveSummary summary =
      readSummary(step(pool, channel, ipc::Operation::kPickle, pickling, deadline));

  auto source = std::make_shared<MoveSource>();
  source->memory =
      MovedObject::make(connection->writer(), connection->number(), summary.bytes, summary.name);
  for (const uint32_t package : summary.packages) {
    source->others.push_back(keepPackage(session.pool, base::PackageId(package)));
  }
  RequestDraft& filling = requestDraft();
  filling.writer.packer().pack_array(2).pack(move.handle().value).pack(source->memory->id().value);
  step(pool, channel, ipc::Operation::kFillMovable, filling, deadline);
  pool.contents().addMoved(source->memory);
  const ObjectDefinition definition = movedObject(*source->memory, summary);
  return makeForThisProcess<ReplicatedObjImpl>(session.pool, definition, std::move(source));
}

void checkSession(const SessionImpl* session, const Pool& pool) {
  if (session == nullptr) throw Error("createMovable() needs a session");
  if (session->pool.get() != &pool) throw Error("the session belongs to another manager");
}

}  // namespace isopool::client
