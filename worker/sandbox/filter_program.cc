// SPDX-License-Identifier: BSD-3-Clause
#include "worker/sandbox/filter_program.h"

#include <errno.h>
#include <linux/audit.h>

#include <iterator>

namespace isopool::worker {

namespace {

#if defined(__x86_64__)
constexpr uint32_t kArchitecture = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
constexpr uint32_t kArchitecture = AUDIT_ARCH_AARCH64;
#else
#error "the system calls of this processor are not known here: add its architecture and registers"
#endif

// A binary tree over the numbers. Every call passes all of its levels, unless the kernel has
// determined beforehand that the call is always allowed.
FilterProgram treeOver(Verdicts::const_iterator first, size_t count) {
  FilterProgram code;
  if (count == 1) {
    const FilterProgram& verdict = first->second.code();
    code.push_back(
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, first->first, 0, static_cast<uint8_t>(verdict.size())));
    code.insert(code.end(), verdict.begin(), verdict.end());
    code.push_back(BPF_STMT(BPF_RET | BPF_K, kAllow));
    return code;
  }
  const auto middle = std::next(first, static_cast<ptrdiff_t>(count / 2));
  const FilterProgram below = treeOver(first, count / 2);
  const FilterProgram above = treeOver(middle, count - count / 2);
  // A conditional jump reaches at most 255 instructions.
  code.push_back(BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, middle->first, 0, 1));
  code.push_back(BPF_STMT(BPF_JMP | BPF_JA, static_cast<uint32_t>(below.size())));
  code.insert(code.end(), below.begin(), below.end());
  code.insert(code.end(), above.begin(), above.end());
  return code;
}

}  // namespace

FilterProgram programOf(const Verdicts& verdicts) {
  // x86-64's calls with 32-bit pointers. arm64 has no numbers from here on.
  constexpr uint32_t kFirstOfX32 = 0x40000000;
  FilterProgram program = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, arch)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kArchitecture, 1, 0),
      BPF_STMT(BPF_RET | BPF_K, refusal(EPERM)),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, kFirstOfX32, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, refusal(ENOSYS)),
  };
  const FilterProgram tree = treeOver(verdicts.begin(), verdicts.size());
  program.insert(program.end(), tree.begin(), tree.end());
  return program;
}

}  // namespace isopool::worker
