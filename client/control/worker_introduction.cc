// SPDX-License-Identifier: BSD-3-Clause
#include "client/control/worker_introduction.h"

#include <utility>

#include "client/program/process_fork.h"
#include "ipc/channel/layout.h"
#include "ipc/crash_point.h"
#include "ipc/memory/memory_object.h"

namespace isopool::client {

std::shared_ptr<WorkerLink> linkTo(const ipc::IntroduceWorker& worker, ipc::Frame& frame,
                                   bool livenessWordWorks, uint64_t connection) {
  if (frame.descriptors.size() != 6) throw ipc::ProtocolError("a worker without six descriptors");
  base::Fd& pidfd = frame.descriptors[0];
  const base::Fd& own = frame.descriptors[1];
  const base::Fd& peer = frame.descriptors[2];
  const base::Fd& output = frame.descriptors[3];
  base::Fd& crashLog = frame.descriptors[4];
  const base::Fd& statusPage = frame.descriptors[5];
  ipc::reachCrashPoint(ipc::CrashPoint::kIntroductionReceived);
  if (!ipc::memoryObjectHas(own, ipc::kClientControlBytes, ipc::Seal::kFixedSize) ||
      !ipc::memoryObjectHas(peer, ipc::kWorkerControlBytes, ipc::Seal::kFixedSize) ||
      !ipc::memoryObjectHas(output, worker.outputBytes, ipc::Seal::kFixedSize) ||
      !ipc::memoryObjectHas(statusPage, ipc::kPageBytes, ipc::Seal::kFixedSize)) {
    throw ipc::ProtocolError("an introduced worker's memory has an unexpected size");
  }
  auto memory = makeForThisProcess<WorkerMemory>(
      base::Epoch(worker.epoch),
      ipc::mapShared(own, 0, ipc::kClientControlBytes, ipc::Access::kReadWrite,
                     ipc::Prefault::kYes),
      ipc::mapShared(peer, 0, ipc::kWorkerControlBytes, ipc::Access::kReadOnly,
                     ipc::Prefault::kYes),
      ipc::mapShared(statusPage, 0, ipc::kPageBytes, ipc::Access::kReadOnly, ipc::Prefault::kYes));
  // From here on no further writable mapping of this process's control segment can be made.
  ipc::sealMemoryObject(own, ipc::Seal::kSingleWriter);
  ipc::reachCrashPoint(ipc::CrashPoint::kClientSegmentSealed);
  memory->addSegment(
      base::SegmentId(1),
      ipc::mapShared(output, 0, worker.outputBytes, ipc::Access::kReadWrite, ipc::Prefault::kYes));
  return makeForThisProcess<WorkerLink>(std::move(memory), worker.processId, std::move(pidfd),
                                        std::move(crashLog), livenessWordWorks, connection);
}

}  // namespace isopool::client
