// SPDX-License-Identifier: BSD-3-Clause
#include "worker/sandbox/controls.h"

#include <linux/fs.h>
#include <linux/random.h>
#include <linux/sockios.h>
#include <sys/ioctl.h>

namespace isopool::worker {

namespace {

// Newer than the headers of some build systems.
constexpr uint32_t kTcgets2 = 0x802C542A;
constexpr uint32_t kFiemap = 0xC020660B;  // FS_IOC_FIEMAP
constexpr uint32_t kScanPagemap = 0xC0606610;
constexpr uint32_t kQueryMappings = 0xC0686611;

constexpr uint32_t kAllowed[] = {
    // a descriptor's own state; a signal for O_ASYNC needs fcntl(F_SETOWN), which is forbidden
    FIOCLEX, FIONCLEX, FIONBIO, FIOASYNC, FIONREAD, FIOQSIZE, TIOCOUTQ,
    // a terminal's settings, read: isatty(), the window's size
    TCGETS, kTcgets2, TCGETA, TIOCGWINSZ, TIOCGPGRP, TIOCGSID, TIOCGETD,
    // attributes of files, read
    FS_IOC_GETFLAGS, FS_IOC_GETVERSION, FS_IOC_FSGETXATTR, kFiemap, FIGETBSZ,
    // copies between files, into one that is open for writing
    FICLONE, FICLONERANGE, FIDEDUPERANGE,
    // the process's own memory, in files of /proc/self
    kScanPagemap, kQueryMappings,
    // sockets and network interfaces, read
    SIOCATMARK, SIOCGIFCONF, SIOCGIFNAME, SIOCGIFINDEX, SIOCGIFFLAGS, SIOCGIFADDR, SIOCGIFNETMASK,
    SIOCGIFBRDADDR, SIOCGIFHWADDR, SIOCGIFMTU, SIOCETHTOOL,
    // random numbers
    RNDGETENTCNT};

// Requests to NVIDIA's drivers: they have one type, but for those of unified memory, which are bare
// numbers. No file system has requests of either kind that need no capability.
constexpr uint32_t kTypeOfGpus = 'F';
constexpr uint32_t kBareNumbers = 0x100;
constexpr uint32_t kBeginUnifiedMemory = 0x30000001;
constexpr uint32_t kEndUnifiedMemory = 0x30000002;

}  // namespace

Verdict controls(bool gpus, uint32_t refused) {
  Verdict verdict;
  verdict.load(1);
  for (const uint32_t request : kAllowed) verdict.ifEqual(request, kAllow);
  if (gpus) {
    verdict.ifEqual(kBeginUnifiedMemory, kAllow)
        .ifEqual(kEndUnifiedMemory, kAllow)
        .ifBelow(kBareNumbers, kAllow)
        .shiftAndMask(8, 0xFF)
        .ifEqual(kTypeOfGpus, kAllow);
  }
  return verdict.otherwise(refused);
}

}  // namespace isopool::worker
