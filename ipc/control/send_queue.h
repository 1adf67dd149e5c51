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

/// The frames that a control socket has not taken yet, in order, each with its own descriptors. A
/// peer that runs user code or is stopped may read nothing for any time: the queue limits the
/// number and the bytes of waiting frames, not the time that they wait. No member blocks. The class
/// is not thread-safe.
class SendQueue {
 public:
  /// Identifies a frame that may be revoked: the number of a client (0 if there is only one) and
  /// that of one of its packages.
  using Subject = std::pair<uint64_t, uint32_t>;

  enum class State : uint8_t {
    kEmpty,       ///< all frames have been sent
    kFull,        ///< the socket is full: call flush() when it is writable
    kCrowded,     ///< too many descriptors of this user are in transit: flush() in kCrowdedRetry
    kPeerGone,    ///< the peer is gone: the waiting frames are lost
    kOverflow,    ///< the queue's limit is met, the frame was dropped: close the connection
    kOutOfFiles,  ///< no descriptor is free for a copy: the frame was not taken
  };
  /// The time until the next flush(): a socket that is kCrowded stays writable, so waiting until it
  /// is writable would not wait.
  static constexpr std::chrono::milliseconds kCrowdedRetry{5};

  /// Calls `sent` after each frame that has been sent completely.
  explicit SendQueue(std::function<void()> sent = {}) : sent_(std::move(sent)) {}

  /// Sends what the socket takes without waiting, unless earlier frames wait, and queues the rest
  /// with copies of the descriptors.
  State send(ControlSocket& socket, OutgoingFrame frame, std::initializer_list<int> descriptors,
             std::optional<Subject> subject = std::nullopt);
  /// Sends as many waiting frames as the socket takes without waiting.
  State flush(ControlSocket& socket);
  /// Removes a waiting frame. False if there is none, or if a part of it has been sent.
  bool revoke(const Subject& subject);
  /// Drops all waiting frames.
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
