// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <msgpack.hpp>
#include <string>
#include <vector>

#include "ipc/control/message_type.h"

/// The messages between a supervisor and its zygote. What holds for every message:
/// ipc/control/message_type.h.
namespace isopool::ipc {

// ---- supervisor -> zygote -------------------------------------------------------------------

/// Fork a worker. Answered by kWorkerForked or kForkFailed. Descriptors: the worker's end of its
/// control socket, the read end of its lifeline, its doorbell (a memory object of one page,
/// read-only for the worker), its crash log, its status page (of one page); perhaps a pipe for its
/// standard output and error stream. Without it the worker has the zygote's.
struct ForkWorker {
  static constexpr MessageType kType = MessageType::kForkWorker;
  uint64_t epoch = 0;
  uint64_t seed = 0;    ///< for torch's and numpy's random number generators
  std::string gpu;      ///< its CUDA_VISIBLE_DEVICES; empty: that of the zygote
  bool shared = false;  ///< it serves several programs
  MSGPACK_DEFINE_ARRAY(epoch, seed, gpu, shared)
};

// ---- zygote -> supervisor -------------------------------------------------------------------

/// The zygote's first message: it can fork workers.
struct ZygoteReady {
  static constexpr MessageType kType = MessageType::kZygoteReady;
  std::string pythonVersion;
  std::string torchVersion;
  bool livenessWordWorks = true;
  std::vector<std::string> missingProtections;  ///< of the sandbox, not supported by this kernel
  bool needsFolders = false;  ///< workers can't have folders in memory here (WorkerFolders)
  MSGPACK_DEFINE_ARRAY(pythonVersion, torchVersion, livenessWordWorks, missingProtections,
                       needsFolders)
};

/// The zygote can't serve: for example, an import failed, or it has more than one thread. The
/// zygote then exits.
struct ZygoteFailed {
  static constexpr MessageType kType = MessageType::kZygoteFailed;
  std::string text;
  MSGPACK_DEFINE_ARRAY(text)
};

/// The worker runs. It is a child of the supervisor, because its parent has exited.
struct WorkerForked {
  static constexpr MessageType kType = MessageType::kWorkerForked;
  uint64_t epoch = 0;
  int32_t processId = 0;
  MSGPACK_DEFINE_ARRAY(epoch, processId)
};

/// The zygote could not fork the worker. `text`: why.
struct ForkFailed {
  static constexpr MessageType kType = MessageType::kForkFailed;
  uint64_t epoch = 0;
  std::string text;
  MSGPACK_DEFINE_ARRAY(epoch, text)
};

}  // namespace isopool::ipc
