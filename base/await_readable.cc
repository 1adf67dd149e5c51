// SPDX-License-Identifier: BSD-3-Clause
#include "base/await_readable.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <limits>

namespace isopool::base {

bool awaitReadable(int fd, std::chrono::milliseconds timeout) noexcept {
  using std::chrono::milliseconds;
  using Clock = std::chrono::steady_clock;
  constexpr milliseconds kLongest(std::numeric_limits<int>::max());
  const auto wait = std::clamp(timeout, milliseconds(0), kLongest);
  const auto end = Clock::now() + wait;
  pollfd readable{fd, POLLIN, 0};
  milliseconds left = wait;
  for (;;) {
    const int ready =
        ::poll(&readable, 1, timeout == kForever ? -1 : static_cast<int>(left.count()));
    if (ready >= 0) return ready == 1 && (readable.revents & POLLNVAL) == 0;
    if (errno != EINTR) return false;
    left = std::max(std::chrono::ceil<milliseconds>(end - Clock::now()), milliseconds(0));
  }
}

}  // namespace isopool::base
