// SPDX-License-Identifier: BSD-3-Clause
#include "worker/sandbox/system_call_filter.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <initializer_list>
#include <iterator>
#include <span>
#include <stdexcept>

#include "base/system_call.h"
#include "worker/sandbox/controls.h"
#include "worker/sandbox/filter_program.h"

namespace isopool::worker {

namespace {

// Newer than the headers of some build systems.
constexpr int kQuotactlFd = 443;
constexpr int kProcessMrelease = 448;
constexpr int kMemfdSecret = 447;
constexpr int kFchmodat2 = 452;
constexpr int kMapShadowStack = 453;
constexpr int kSetxattrat = 463;
constexpr int kRemovexattrat = 466;
constexpr int kOpenTreeAttr = 467;
constexpr int kFileSetattr = 469;
// Arguments of setpriority() and ioprio_set() that select all processes of a user; ioprio_set()
// counts from 1.
constexpr uint32_t kPriorityOfUser = 2;
constexpr uint32_t kIoPriorityOfUser = 3;
constexpr uint32_t kHugeMemfd = 4;  // MFD_HUGETLB

struct Call {
  int number;
  const char* name;
};

// Forbidden with any arguments.
constexpr Call kAlwaysForbidden[] = {
    // other processes
    {SYS_ptrace, "ptrace"},
    {SYS_process_vm_readv, "process_vm_readv"},
    {SYS_process_vm_writev, "process_vm_writev"},
    {SYS_process_madvise, "process_madvise"},
    {kProcessMrelease, "process_mrelease"},
    {SYS_pidfd_getfd, "pidfd_getfd"},
    {SYS_kcmp, "kcmp"},
    {SYS_migrate_pages, "migrate_pages"},
    {SYS_move_pages, "move_pages"},
    {SYS_tkill, "tkill"},
    // System V and POSIX IPC, which reaches every process of the user by a number or key
    {SYS_shmget, "shmget"},
    {SYS_shmat, "shmat"},
    {SYS_shmctl, "shmctl"},
    {SYS_semget, "semget"},
    {SYS_semop, "semop"},
    {SYS_semtimedop, "semtimedop"},
    {SYS_semctl, "semctl"},
    {SYS_msgget, "msgget"},
    {SYS_msgsnd, "msgsnd"},
    {SYS_msgrcv, "msgrcv"},
    {SYS_msgctl, "msgctl"},
    {SYS_mq_open, "mq_open"},
    {SYS_mq_unlink, "mq_unlink"},
    // file systems and namespaces
    {SYS_mount, "mount"},
    {SYS_umount2, "umount2"},
    {SYS_pivot_root, "pivot_root"},
    {SYS_chroot, "chroot"},
    {SYS_fsopen, "fsopen"},
    {SYS_fsconfig, "fsconfig"},
    {SYS_fsmount, "fsmount"},
    {SYS_fspick, "fspick"},
    {SYS_move_mount, "move_mount"},
    {SYS_open_tree, "open_tree"},
    {kOpenTreeAttr, "open_tree_attr"},
    {SYS_mount_setattr, "mount_setattr"},
    {SYS_setns, "setns"},
    {SYS_unshare, "unshare"},
    {SYS_open_by_handle_at, "open_by_handle_at"},
    {SYS_quotactl, "quotactl"},
    {kQuotactlFd, "quotactl_fd"},
    {SYS_fanotify_init, "fanotify_init"},
    {SYS_swapon, "swapon"},
    {SYS_swapoff, "swapoff"},
    {SYS_acct, "acct"},
    // interfaces with a large kernel attack surface
    {SYS_bpf, "bpf"},
    {SYS_perf_event_open, "perf_event_open"},
    {SYS_userfaultfd, "userfaultfd"},
    {SYS_io_uring_setup, "io_uring_setup"},
    {SYS_io_uring_enter, "io_uring_enter"},
    {SYS_io_uring_register, "io_uring_register"},
    {SYS_keyctl, "keyctl"},
    {SYS_add_key, "add_key"},
    {SYS_request_key, "request_key"},
    {SYS_kexec_load, "kexec_load"},
    {SYS_kexec_file_load, "kexec_file_load"},
    {SYS_init_module, "init_module"},
    {SYS_finit_module, "finit_module"},
    {SYS_delete_module, "delete_module"},
#if defined(__x86_64__)
    {SYS_modify_ldt, "modify_ldt"},
    {SYS_iopl, "iopl"},
    {SYS_ioperm, "ioperm"},
#endif
    {SYS_syslog, "syslog"},
    // the identity of the process, and the machine
    {SYS_setuid, "setuid"},
    {SYS_setgid, "setgid"},
    {SYS_setreuid, "setreuid"},
    {SYS_setregid, "setregid"},
    {SYS_setresuid, "setresuid"},
    {SYS_setresgid, "setresgid"},
    {SYS_setfsuid, "setfsuid"},
    {SYS_setfsgid, "setfsgid"},
    {SYS_setgroups, "setgroups"},
    {SYS_setrlimit, "setrlimit"},
    {SYS_reboot, "reboot"},
    {SYS_sethostname, "sethostname"},
    {SYS_setdomainname, "setdomainname"},
    {SYS_settimeofday, "settimeofday"},
    {SYS_clock_settime, "clock_settime"},
    {SYS_clock_adjtime, "clock_adjtime"},
    {SYS_adjtimex, "adjtimex"},
    {SYS_vhangup, "vhangup"},
};

// Landlock's rules for files do not cover these calls, so they would reach every file of the user.
// Before calls run they fail without a signal: programs that run while a model is loaded would die
// of the signal.
constexpr Call kForbiddenOnFiles[] = {
#if defined(__x86_64__)
    // Newer architectures have only the calls that do the same and more.
    {SYS_chmod, "chmod"},
    {SYS_chown, "chown"},
    {SYS_lchown, "lchown"},
    {SYS_utime, "utime"},
    {SYS_utimes, "utimes"},
    {SYS_futimesat, "futimesat"},
#endif
    {SYS_fchmod, "fchmod"},
    {SYS_fchmodat, "fchmodat"},
    {kFchmodat2, "fchmodat2"},
    {SYS_fchown, "fchown"},
    {SYS_fchownat, "fchownat"},
    {SYS_utimensat, "utimensat"},
    {SYS_setxattr, "setxattr"},
    {SYS_lsetxattr, "lsetxattr"},
    {SYS_fsetxattr, "fsetxattr"},
    {kSetxattrat, "setxattrat"},
    {SYS_removexattr, "removexattr"},
    {SYS_lremovexattr, "lremovexattr"},
    {SYS_fremovexattr, "fremovexattr"},
    {kRemovexattrat, "removexattrat"},
    {kFileSetattr, "file_setattr"},
};

// What these calls take is limited for all processes of the user together, or for the whole
// machine, or is memory that no limit counts. Before calls run they fail without a signal, as
// above.
constexpr Call kForbiddenResources[] = {
    {SYS_io_setup, "io_setup"},  // fs.aio-max-nr, for the machine
#if defined(__x86_64__)
    {SYS_inotify_init, "inotify_init"},
#endif
    {SYS_inotify_init1, "inotify_init1"},   // fs.inotify.max_user_instances
    {SYS_vmsplice, "vmsplice"},             // pages that a pipe keeps when they are unmapped
    {kMemfdSecret, "memfd_secret"},         // memory that cannot be swapped
    {kMapShadowStack, "map_shadow_stack"},  // not counted by RLIMIT_DATA
};

// Allowed for the calling thread, for the worker, and for its other threads; for the last, the
// handler of countForbiddenCalls() makes the call.
constexpr Call kForbiddenOnOthers[] = {
    {SYS_sched_setaffinity, "sched_setaffinity"},
    {SYS_sched_setscheduler, "sched_setscheduler"},
    {SYS_sched_setparam, "sched_setparam"},
    {SYS_sched_setattr, "sched_setattr"},
    {SYS_setpriority, "setpriority"},
    {SYS_ioprio_set, "ioprio_set"},
};

// Forbidden depending on their arguments, see below.
constexpr Call kSometimesForbidden[] = {
    {SYS_kill, "kill"},
    {SYS_tgkill, "tgkill"},
    {SYS_rt_sigqueueinfo, "rt_sigqueueinfo"},
    {SYS_rt_tgsigqueueinfo, "rt_tgsigqueueinfo"},
    {SYS_pidfd_send_signal, "pidfd_send_signal"},
    {SYS_prlimit64, "prlimit64"},
    {SYS_socket, "socket"},
    {SYS_socketpair, "socketpair"},
    {SYS_sendmsg, "sendmsg"},
    {SYS_sendmmsg, "sendmmsg"},
    {SYS_bind, "bind"},
    {SYS_setsockopt, "setsockopt"},
    {SYS_mmap, "mmap"},
    {SYS_clone, "clone"},
    {SYS_personality, "personality"},
    {SYS_ioctl, "ioctl"},
    {SYS_fcntl, "fcntl"},
    {SYS_prctl, "prctl"},
    {SYS_setpgid, "setpgid"},
    {SYS_execve, "execve"},
    {SYS_execveat, "execveat"},
#if defined(__x86_64__)
    {SYS_fork, "fork"},
#endif
};

// CLONE_NEWTIME shares a bit with the signal that clone() may be given.
constexpr uint32_t kNamespaces = CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC |
                                 CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET;

Verdict onlySignals(const FilterOptions& options, size_t signalArgument) {
  const auto process = static_cast<uint32_t>(options.process);
  Verdict verdict;
  // Signal 0 only checks whether the process exists.
  verdict.load(signalArgument).ifEqual(0, kAllow);
  return verdict.load(0).ifEqual(process, kAllow);
}

// Forbids datagram sockets: they can send, without a connection, to every socket that has a path,
// as the system's log or the service manager.
Verdict connectionsOnly(size_t typeArgument) {
  Verdict verdict;
  verdict.load(typeArgument);
  for (const int type : {SOCK_STREAM, SOCK_SEQPACKET}) {
    for (const int flags :
         {0, int{SOCK_CLOEXEC}, int{SOCK_NONBLOCK}, SOCK_CLOEXEC | SOCK_NONBLOCK}) {
      verdict.ifEqual(static_cast<uint32_t>(type | flags), kAllow);
    }
  }
  return verdict.otherwise(kTrap);
}

Verdict sockets(bool network) {
  constexpr uint32_t kRoutes = 0;  // NETLINK_ROUTE: name look-ups ask for the machine's addresses
  // libc's request to nscd at each look-up of a user. It fails without a signal, so that it is not
  // counted: user code did not ask for it.
  constexpr uint32_t kToNscd = SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK;
  Verdict verdict;
  verdict.load(0);
  if (!network) {
    return verdict.unlessEqual(AF_UNIX, kTrap)
        .load(1)
        .ifEqual(kToNscd, refusal(EPERM))
        .otherwise(kTrap);
  }
  for (const uint32_t family : {AF_INET, AF_INET6}) verdict.ifEqual(family, kAllow);
  return verdict.whenEqual(AF_UNIX, connectionsOnly(1))
      .unlessEqual(AF_NETLINK, kTrap)
      .load(2)
      .ifEqual(kRoutes, kAllow)
      .otherwise(kTrap);
}

// User code must not reset the parent death signal: a worker ends with its supervisor. Nor which
// process gets the orphans: those of user code are the worker's.
Verdict family(uint32_t action) {
  return Verdict()
      .load(0)
      .ifEqual(PR_SET_PDEATHSIG, action)
      .ifEqual(PR_SET_CHILD_SUBREAPER, action)
      .otherwise(kAllow);
}

// Passing credentials gives a socket an abstract name, which is then taken for all users.
Verdict optionsOfSockets() {
  constexpr uint32_t kPassPidfd = 76;  // newer than the headers of some build systems
  return Verdict()
      .load(1)
      .unlessEqual(SOL_SOCKET, kAllow)
      .load(2)
      .ifEqual(SO_PASSCRED, kTrap)
      .ifEqual(kPassPidfd, kTrap)
      .otherwise(kAllow);
}

// Allows the process itself and the calling thread, and with the key any other thread.
Verdict onlyOwn(const FilterOptions& options, size_t argument, Verdict verdict = {}) {
  return verdict.load(argument)
      .ifEqual(0, kAllow)
      .ifEqual(static_cast<uint32_t>(options.process), kAllow)
      .unlessWhole(4, options.key[0], kTrap)
      .unlessWhole(5, options.key[1], kTrap)
      .otherwise(kAllow);
}

}  // namespace

FilterProgram alwaysForbidden(const FilterOptions& options) {
  Verdicts verdicts;
  for (const Call& call : kAlwaysForbidden) {
    verdicts[static_cast<uint32_t>(call.number)].otherwise(kTrap);
  }
  for (const Call& call : kForbiddenOnFiles) {
    verdicts[static_cast<uint32_t>(call.number)].otherwise(refusal(EPERM));
  }
  for (const Call& call : kForbiddenResources) {
    verdicts[static_cast<uint32_t>(call.number)].otherwise(refusal(EPERM));
  }
  for (const Call& call : kForbiddenOnOthers) {
    verdicts[static_cast<uint32_t>(call.number)] = onlyOwn(options, 0);
  }
  verdicts[SYS_setpriority] =
      onlyOwn(options, 1, Verdict().load(0).ifEqual(kPriorityOfUser, kTrap));
  verdicts[SYS_ioprio_set] =
      onlyOwn(options, 1, Verdict().load(0).ifEqual(kIoPriorityOfUser, kTrap));
  // A process that joins another group would be killed with that group, or that group with it.
  verdicts[SYS_setpgid].load(1).ifEqual(0, kAllow).otherwise(kTrap);
  const auto group = static_cast<uint32_t>(-options.process);
  verdicts[SYS_kill] =
      onlySignals(options, 1).ifEqual(group, kAllow).ifEqual(0, kAllow).otherwise(kTrap);
  verdicts[SYS_tgkill] = onlySignals(options, 2).otherwise(kTrap);
  verdicts[SYS_rt_sigqueueinfo] = onlySignals(options, 1).otherwise(kTrap);
  verdicts[SYS_rt_tgsigqueueinfo] = onlySignals(options, 2).otherwise(kTrap);
  verdicts[SYS_pidfd_send_signal].load(1).ifEqual(0, kAllow).otherwise(kTrap);
  // A signal on a ready descriptor would be another way to send signals to other processes.
  verdicts[SYS_fcntl]
      .load(1)
      .ifEqual(F_SETOWN, kTrap)
      .ifEqual(F_SETOWN_EX, kTrap)
      .ifEqual(F_SETSIG, kTrap)
      // They delay other programs that open the file, or tell what these do.
      .ifEqual(F_SETLEASE, kTrap)
      .ifEqual(F_NOTIFY, kTrap)
      .otherwise(kAllow);
  verdicts[SYS_ioctl] = controls(options.gpus, refusal(EPERM));
  // Fails without a signal: a program that runs while a model is loaded would die of the signal.
  verdicts[SYS_prctl] = family(refusal(EPERM));
  verdicts[SYS_prlimit64]
      .ifNull(2, kAllow)
      .load(0)
      .unlessEqual(0, kTrap)
      // Compilers raise the limit of the stack; this takes nothing from other processes.
      .load(1)
      .ifEqual(RLIMIT_STACK, kAllow)
      .unlessWhole(4, options.key[0], kTrap)
      .unlessWhole(5, options.key[1], kTrap)
      .otherwise(kAllow);
  verdicts[SYS_socket] = sockets(options.network);
  verdicts[SYS_socketpair].load(0).whenEqual(AF_UNIX, connectionsOnly(1)).otherwise(kTrap);
  if (!options.network) {
    // Descriptors that were sent and never received prevent all processes of the user from sending
    // more. The worker's own messages have no descriptors, so it does not need these calls.
    verdicts[SYS_sendmsg].otherwise(kTrap);
    verdicts[SYS_sendmmsg].otherwise(kTrap);
    // Abstract names are the machine's: a pair of sockets could take those of services.
    verdicts[SYS_bind].otherwise(kTrap);
    verdicts[SYS_setsockopt] = optionsOfSockets();
  }
  // The kernel counts a mapping that grows downwards as a stack, and not as RLIMIT_DATA. Huge pages
  // are the machine's; programs that find none take others, so this is not counted.
  verdicts[SYS_mmap]
      .load(3)
      .ifAny(MAP_GROWSDOWN, kTrap)
      .ifAny(MAP_HUGETLB, refusal(EPERM))
      .otherwise(kAllow);
  verdicts[SYS_memfd_create].load(1).ifAny(kHugeMemfd, refusal(EPERM)).otherwise(kAllow);
  // A sister of the worker would be the supervisor's child and not in the worker's tree.
  verdicts[SYS_clone].load(0).ifAny(kNamespaces | CLONE_PARENT, kTrap).otherwise(kAllow);
  verdicts[SYS_clone3].otherwise(refusal(ENOSYS));
  verdicts[SYS_personality].load(0).ifEqual(0, kAllow).ifEqual(~0U, kAllow).otherwise(kTrap);
  verdicts[SYS_rt_sigaction]
      .load(0)
      .unlessEqual(SIGSYS, kAllow)
      .ifNull(1, kAllow)
      .otherwise(refusal(EPERM));
  return programOf(verdicts);
}

FilterProgram forbiddenDuringCalls(bool gpus) {
  Verdicts verdicts;
  verdicts[SYS_execve].otherwise(kTrap);
  verdicts[SYS_execveat].otherwise(kTrap);
#if defined(__x86_64__)
  // Elsewhere libc forks with clone().
  verdicts[SYS_fork].otherwise(kTrap);
  verdicts[SYS_vfork].otherwise(refusal(EPERM));
#endif
  for (const Call& call : kForbiddenOnFiles) {
    verdicts[static_cast<uint32_t>(call.number)].otherwise(kTrap);
  }
  for (const Call& call : kForbiddenResources) {
    verdicts[static_cast<uint32_t>(call.number)].otherwise(kTrap);
  }
  verdicts[SYS_ioctl] = controls(gpus, kTrap);
  verdicts[SYS_prctl] = family(kTrap);
  verdicts[SYS_clone].load(0).unlessAny(CLONE_THREAD, refusal(EPERM)).otherwise(kAllow);
  return programOf(verdicts);
}

void installFilter(const FilterProgram& program) {
  const sock_fprog code{static_cast<unsigned short>(program.size()),
                        const_cast<sock_filter*>(program.data())};
  const auto result = static_cast<int>(
      ::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &code));
  base::checkSystemCall(result, "seccomp", "a filter");
  if (result != 0) {
    throw std::runtime_error("thread " + std::to_string(result) +
                             " has a system call filter that user code installed");
  }
}

std::optional<std::string> forbiddenCallName(size_t number) {
  for (const std::span<const Call> calls :
       {std::span<const Call>(kAlwaysForbidden), std::span<const Call>(kForbiddenOnFiles),
        std::span<const Call>(kForbiddenResources), std::span<const Call>(kForbiddenOnOthers),
        std::span<const Call>(kSometimesForbidden)}) {
    for (const Call& call : calls) {
      if (static_cast<size_t>(call.number) == number) return call.name;
    }
  }
  return std::nullopt;
}

bool changesFiles(const std::string& callName) {
  return std::any_of(std::begin(kForbiddenOnFiles), std::end(kForbiddenOnFiles),
                     [&](const Call& call) { return callName == call.name; });
}

std::optional<size_t> threadArgument(int number) {
  switch (number) {
    case SYS_sched_setaffinity:
    case SYS_sched_setscheduler:
    case SYS_sched_setparam:
    case SYS_sched_setattr:
      return 0;
    case SYS_setpriority:
    case SYS_ioprio_set:
      return 1;
    default:
      return std::nullopt;
  }
}

}  // namespace isopool::worker
