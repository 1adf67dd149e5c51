// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

/// Numbers and names as text for people.
namespace isopool::cli {

/// "0", "512 B", "4.0 KiB", "12.3 MiB", "512 GiB".
std::string wordsForBytes(uint64_t bytes);
/// "12 ms", "3.2 s", "4 min 10 s", "3 h 20 min", "12 d 4 h".
std::string wordsForDuration(uint64_t milliseconds);
/// The same for shorter times: "50 us", "2.5 ms", "1.2 s".
std::string wordsForMicroseconds(uint64_t microseconds);
/// "0.25", "8.3", "1234".
std::string wordsForRate(double perSecond);
/// "1 call", "2 calls".
std::string counted(uint64_t number, std::string_view noun);

/// The name of the user, or the number if the user has no name. Remembers each answer.
std::string userName(uid_t user);

}  // namespace isopool::cli
