// SPDX-License-Identifier: BSD-3-Clause
#include "isopool/errors.h"

#include <cstring>

#include "client/transport/death_text.h"

namespace isopool {

std::string client::deathText(const WorkerLost::Death& death) {
  std::string text = death.worker + " died";
  if (!death.causeKnown) {
    text += " (its exit status is not known yet)";
  } else if (death.signal != 0) {
    const char* name = sigabbrev_np(death.signal);
    text += " by signal " + std::to_string(death.signal);
    if (name != nullptr) text += std::string(" (SIG") + name + ")";
  } else {
    text += " with exit code " + std::to_string(death.exitCode);
  }
  return text;
}

namespace {

std::string describe(const WorkerLost::Death& death, bool started) {
  std::string text = client::deathText(death);
  text += started ? " while it ran this call" : " before this call started";
  if (!started && death.ofOtherProgram) text += ", while it ran code of another program";
  if (!death.crashLog.empty()) text += "; its crash log:\n" + death.crashLog;
  return text;
}

}  // namespace

RemoteError::RemoteError(const std::string& what, std::string pythonType, std::string message,
                         std::string traceback, std::string worker, std::string pickled)
    : Error(what),
      pythonType_(std::move(pythonType)),
      message_(std::move(message)),
      traceback_(std::move(traceback)),
      worker_(std::move(worker)),
      pickled_(std::move(pickled)) {}

WorkerLost::WorkerLost(Death death, bool started)
    : Error(describe(death, started)), death_(std::move(death)), started_(started) {}

}  // namespace isopool
