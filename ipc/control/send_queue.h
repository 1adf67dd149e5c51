// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <initializer_list>
#include <optional>
#include <utility>
#include <vector>

#include "base/fd.h"
#include "ipc/control/frame.h"

namespace isopool::ipc {

/// The frames that a control socket has not taken yet, in their order, each with descriptors of its
/// own. A peer that runs user code or stands still reads nothing for as long as it likes: what
/// waits for it is bounded, and not how long. No call waits. Not thread-safe.
class SendQueue {
 public:
  /// What a frame is about, if it may be taken back: a client (0 where there is but one) and the
  /// number of one of its packages.
  using Subject = std::pair<uint64_t, uint32_t>;

  enum class State : uint8_t {
    kEmpty,       ///< all has been sent
    kFull,        ///< the socket is: flush() once it is writable
    kCrowded,     ///< too many descriptors of this user are on their way: flush() in kCrowdedRetry
    kPeerGone,    ///< what waited is lost
    kOverflow,    ///< more waits than may: the peer gets no more frames and is to be given up
    kOutOfFiles,  ///< no descriptor is left for copies: the frame was not taken
  };
  /// A socket is writable all the while that the kernel takes no more descriptors (ETOOMANYREFS).
  static constexpr std::chrono::milliseconds kCrowdedRetry{5};

  /// `sent` is called for each frame that has left whole.
  explicit SendQueue(std::function<void()> sent = {}) : sent_(std::move(sent)) {}

  /// Sends what the socket takes at once, if nothing waits, and queues the rest with copies of the
  /// descriptors.
  State send(ControlSocket& socket, OutgoingFrame frame, std::initializer_list<int> descriptors,
             std::optional<Subject> subject = std::nullopt);
  /// Sends what the socket takes.
  State flush(ControlSocket& socket);
  /// Takes a frame back. False if the peer has got it, or a part of it.
  bool revoke(const Subject& subject);
  void clear();

  bool empty() const { return frames_.empty(); }
  size_t size() const { return frames_.size(); }

 private:
  struct Waiting {
    OutgoingFrame frame;
    std::vector<base::Fd> descriptors;
    std::optional<Subject> subject;
  };

  State append(OutgoingFrame frame, std::initializer_list<int> descriptors,
               std::optional<Subject> subject);

  std::function<void()> sent_;
  std::deque<Waiting> frames_;
  size_t bytes_ = 0;
  State state_ = State::kEmpty;
};

}  // namespace isopool::ipc
