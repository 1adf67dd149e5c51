// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <linux/filter.h>
#include <linux/seccomp.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

/// Generates programs of system call filters (seccomp), without libseccomp, which has no rule for
/// "any target except these three", as kill() needs.
namespace isopool::worker {

using FilterProgram = std::vector<sock_filter>;

// Actions of a filter.
inline constexpr uint32_t kAllow = SECCOMP_RET_ALLOW;
inline constexpr uint32_t kTrap = SECCOMP_RET_TRAP;
constexpr uint32_t refusal(int error) { return SECCOMP_RET_ERRNO | static_cast<uint32_t>(error); }

/// Straight-line code for one system call: its conditions in order, then the action
/// if none applies.
class Verdict {
 public:
  Verdict& load(size_t argument) { return loadAt(offsetof(seccomp_data, args) + 8 * argument); }
  Verdict& loadHigh(size_t argument) {
    return loadAt(offsetof(seccomp_data, args) + 8 * argument + 4);
  }
  Verdict& ifEqual(uint32_t value, uint32_t action) {
    return jump(BPF_JEQ, value, 0, 1).otherwise(action);
  }
  Verdict& unlessEqual(uint32_t value, uint32_t action) {
    return jump(BPF_JEQ, value, 1, 0).otherwise(action);
  }
  Verdict& ifAny(uint32_t bits, uint32_t action) {
    return jump(BPF_JSET, bits, 0, 1).otherwise(action);
  }
  Verdict& ifBelow(uint32_t value, uint32_t action) {
    return jump(BPF_JGE, value, 1, 0).otherwise(action);
  }
  /// Replaces what is loaded by some of its bits.
  Verdict& shiftAndMask(uint32_t shift, uint32_t mask) {
    code_.push_back(BPF_STMT(BPF_ALU | BPF_RSH | BPF_K, shift));
    code_.push_back(BPF_STMT(BPF_ALU | BPF_AND | BPF_K, mask));
    return *this;
  }
  Verdict& unlessAny(uint32_t bits, uint32_t action) {
    return jump(BPF_JSET, bits, 1, 0).otherwise(action);
  }
  /// `then` must end with otherwise().
  Verdict& whenEqual(uint32_t value, const Verdict& then) {
    jump(BPF_JEQ, value, 0, static_cast<uint8_t>(then.code_.size()));
    code_.insert(code_.end(), then.code_.begin(), then.code_.end());
    return *this;
  }
  Verdict& ifNull(size_t argument, uint32_t action) {
    load(argument).jump(BPF_JEQ, 0, 0, 3);
    return loadHigh(argument).ifEqual(0, action);
  }
  Verdict& unlessWhole(size_t argument, uint64_t value, uint32_t action) {
    load(argument).unlessEqual(static_cast<uint32_t>(value), action);
    return loadHigh(argument).unlessEqual(static_cast<uint32_t>(value >> 32), action);
  }
  /// The action if no condition applied; the last instruction.
  Verdict& otherwise(uint32_t action) {
    code_.push_back(BPF_STMT(BPF_RET | BPF_K, action));
    return *this;
  }
  const FilterProgram& code() const { return code_; }

 private:
  Verdict& loadAt(size_t offset) {
    code_.push_back(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, static_cast<uint32_t>(offset)));
    return *this;
  }
  Verdict& jump(uint16_t comparison, uint32_t value, uint8_t ifTrue, uint8_t ifFalse) {
    code_.push_back(
        BPF_JUMP(static_cast<uint16_t>(BPF_JMP | comparison | BPF_K), value, ifTrue, ifFalse));
    return *this;
  }

  FilterProgram code_;
};

/// The verdicts of the system calls with these numbers; all other calls are allowed.
using Verdicts = std::map<uint32_t, Verdict>;

/// The program that applies the verdicts. It refuses calls of other architectures.
FilterProgram programOf(const Verdicts& verdicts);

}  // namespace isopool::worker
