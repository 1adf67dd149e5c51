// SPDX-License-Identifier: BSD-3-Clause
#include "tests/crash_matrix/neighbour.h"

#include <poll.h>

#include <stdexcept>

#include "isopool/isopool.h"
#include "tests/client/harness.h"

namespace isopool::tests {

Neighbour::Neighbour(const std::string& address)
    : process_([=, this] { live(address, *progress_); }) {}

void Neighbour::live(const std::string& address, Progress& progress) {
  InterpreterManager manager(isopool::SharedSupervisor{address}, 2);
  const ReplicatedObj object = manager.loadPackage(packagePath()).loadPickle("model", "model.pkl");
  const Package other = manager.loadPackage(packagePath("one.pt"));
  CallOptions again;
  again.idempotent = true;
  for (int64_t number = 0; !progress.stop; ++number) {
    const at::Tensor x = empty({2048}).fill_(static_cast<double>(number));
    const at::Tensor y = object.call({"add_one", x}, {}, again).toTensor();
    if (!y.eq(static_cast<double>(number + 1)).all().item<bool>()) {
      throw std::runtime_error("the neighbour has an answer to another call");
    }
    ++progress.answers;
    // Pauses, so that the neighbour does not keep the machine busy.
    ::poll(nullptr, 0, 2);
  }
}

bool Neighbour::hasCome() {
  return waitUntil([&] { return progress_->answers > 0; }, kStartPatience);
}

bool Neighbour::goesOn() {
  const uint64_t before = progress_->answers;
  return waitUntil([&] { return progress_->answers >= before + 3; });
}

bool Neighbour::leaves() {
  progress_->stop = true;
  const auto status = process_.waitForEnd(milliseconds(5000));
  return status && wentWell(*status);
}

}  // namespace isopool::tests
