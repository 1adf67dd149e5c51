// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <vector>

namespace isopool::supervisor {

/// The slots of a group that a member shall use when the group has other slots than before, as many
/// as in `own`, the slots that it used until now. `slots`: all slots that the group has now, those
/// that suit best first; not empty. The result uses each of them equally often, give or take one,
/// and differs from `own` in as few places as that needs. A slot that is used several times keeps
/// its first places.
std::vector<uint32_t> rebalanced(std::vector<uint32_t> own, const std::vector<uint32_t>& slots);

}  // namespace isopool::supervisor
