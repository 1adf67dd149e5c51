// SPDX-License-Identifier: BSD-3-Clause
#include "supervisor/pool/worker_status.h"

#include <unistd.h>

#include <cstddef>
#include <cstring>

#include "ipc/channel/status_page.h"

namespace isopool::supervisor {

namespace {

using Page = ipc::WorkerStatusPage;

struct Copy {
  template <typename Number>
  Number number(size_t offset) const {
    Number value = 0;
    std::memcpy(&value, bytes + offset, sizeof value);
    return value;
  }
  std::string model(size_t index) const {
    const char* name = reinterpret_cast<const char*>(bytes) + offsetof(Page, models) +
                       index * ipc::kShownNameBytes;
    return {name, ::strnlen(name, ipc::kShownNameBytes)};
  }

  std::byte bytes[sizeof(Page)];
};

}  // namespace

WorkerStatus readStatusPage(const base::Fd& page) {
  Copy copy;
  WorkerStatus status;
  if (::pread(page.get(), copy.bytes, sizeof copy.bytes, 0) != sizeof copy.bytes) return status;
  status.runningClient = copy.number<uint64_t>(offsetof(Page, runningClient));
  status.runningSince = copy.number<int64_t>(offsetof(Page, runningSince));
  status.lastClient = copy.number<uint64_t>(offsetof(Page, lastClient));
  status.waitingClients = copy.number<uint32_t>(offsetof(Page, waitingClients));
  status.lentBlocks = copy.number<uint64_t>(offsetof(Page, lentBlocks));
  status.lentBytes = copy.number<uint64_t>(offsetof(Page, lentBytes));
  status.zombieBytes = copy.number<uint64_t>(offsetof(Page, zombieBytes));
  for (size_t index = 0; index < ipc::kShownModels; ++index) {
    std::string name = copy.model(index);
    if (!name.empty()) status.models.push_back(std::move(name));
  }
  const auto running = copy.number<uint32_t>(offsetof(Page, model));
  if (running != 0 && running <= ipc::kShownModels) status.model = copy.model(running - 1);
  return status;
}

}  // namespace isopool::supervisor
