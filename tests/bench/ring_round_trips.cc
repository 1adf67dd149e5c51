// SPDX-License-Identifier: BSD-3-Clause
// Makes a number of round trips through a channel whose two ends are in one thread, so that each
// run takes the same steps. For count_instructions.py.
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "tests/ipc/channel/peers.h"

using namespace isopool;

int main(int argc, char** argv) {
  const long roundTrips = argc == 2 ? std::atol(argv[1]) : 0;
  if (roundTrips <= 0) {
    std::fprintf(stderr, "usage: ring_round_trips N\n");
    return 2;
  }
  constexpr base::Epoch kEpoch(1);
  tests::ChannelMemory memory(tests::ChannelMemory::Views::kSealed);
  ipc::ClientEnd client(kEpoch, memory.clientOwn(), memory.clientPeer());
  ipc::WorkerEnd worker(kEpoch, memory.workerOwn(), memory.workerPeer());
  const std::vector<std::byte> content(64, std::byte{1});
  const ipc::OutgoingCall request = tests::callWith(content);
  const ipc::OutgoingPayload answer = tests::payloadWith(content);
  ipc::ReceivedCall call;
  ipc::ReceivedCompletion completion;
  for (long i = 0; i < roundTrips; ++i) {
    client.allowSpin(50, 0);
    client.publish(request);
    if (worker.peek(call) != ipc::Received::kOne) return 1;
    worker.taken();
    if (worker.start(call.sequence) != ipc::Start::kRun) return 1;
    worker.complete(call.sequence, ipc::CompletionStatus::kValue, answer);
    if (client.peek(completion) != ipc::Received::kOne) return 1;
    client.consumed();
    if (completion.sequence != call.sequence) return 1;
  }
  return 0;
}
