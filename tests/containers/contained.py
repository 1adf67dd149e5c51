# SPDX-License-Identifier: BSD-3-Clause
"""contained.py [OPTION...] -- PROGRAM WORD...: runs a program as process 1 of surroundings like those
that container engines make: new user, mount, PID and IPC namespaces, and what the options ask for.

    --read-only-root           no file system can be written but /tmp and /dev/shm, 64 MB each
    --shm SIZE                 the size of /dev/shm; 0: it does not exist
    --proc WHAT                /proc: whole, no-sys (/proc/sys is empty) or processes-only
    --no-user-namespaces HOW   by limit (user.max_user_namespaces) or by filter (EPERM)
    --refuse ERROR NAME,...    system calls fail with ENOSYS or EPERM: see REFUSABLE; can be repeated
    --shows FILE=TEXT          a file that a container of control groups of version 2 has in
                               /sys/fs/cgroup; can be repeated
    --memory BYTES             the memory of a control group of its own
    --processors COUNT         the processor time of a control group of its own
    --user ID                  the user and group; without it, those of the caller

Exits with the program's code, or with 128 and the number of the signal that ended it. Exits with 77,
and prints the reason, if this system does not allow such surroundings.
"""

import argparse
import contextlib
import ctypes
import errno
import os
import pathlib
import platform
import signal
import struct
import sys
from collections.abc import Iterator

NOT_POSSIBLE = 77
CHECKOUT = pathlib.Path(__file__).resolve().parents[2]

CLONE_NEWNS, CLONE_NEWIPC, CLONE_NEWUSER, CLONE_NEWPID = 0x20000, 0x8000000, 0x10000000, 0x20000000
CLONE_NEWCGROUP, CLONE_NEWUTS, CLONE_NEWNET = 0x2000000, 0x4000000, 0x40000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_BIND, MS_REC, MS_PRIVATE = 1, 2, 4, 8, 4096, 16384, 1 << 18
AT_FDCWD, AT_RECURSIVE, MOUNT_ATTR_RDONLY = -100, 0x8000, 1
SYS_MOUNT_SETATTR = 442
PR_SET_PDEATHSIG, PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 1, 38, 22, 2
MFD_HUGETLB = 4
NAMESPACES = (
    CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWUSER | CLONE_NEWPID
    | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWNET
)  # fmt: skip

# Number on x86-64; the argument and the bits of it that are refused, or None: every call is.
REFUSABLE: dict[str, tuple[int, tuple[int, int] | None]] = {
    "clone-namespaces": (56, (0, NAMESPACES)),
    "clone3": (435, None),
    "close_range": (436, None),
    "fsopen": (430, None),
    "keyctl": (250, None),
    "landlock_create_ruleset": (444, None),
    "memfd-huge-pages": (319, (1, MFD_HUGETLB)),
    "mount": (165, None),
    "move_pages": (279, None),
    "pidfd_getfd": (438, None),
    "seccomp": (317, None),
    "setns": (308, None),
    "unshare": (272, None),
    "userfaultfd": (323, None),
}

libc = ctypes.CDLL(None, use_errno=True)


class NotPossibleError(Exception):
    """This system does not allow the surroundings; the text says why."""


def check(result: int, what: str) -> None:
    if result != 0:
        raise NotPossibleError(f"{what}: {os.strerror(ctypes.get_errno())}")


def mount(kind: str, where: str, flags: int, data: str = "") -> None:
    result = libc.mount(
        kind.encode(), where.encode(), kind.encode(), ctypes.c_ulong(flags), data.encode()
    )
    check(result, f"mount of {kind} at {where}")


def write(path: pathlib.Path | str, text: str) -> None:
    try:
        pathlib.Path(path).write_text(text)
    except OSError as error:
        raise NotPossibleError(f"writing '{text}' to {path}: {error.strerror}") from error


def enter_namespaces() -> None:
    namespaces = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC
    check(libc.unshare(namespaces), "namespaces (unshare)")


def keep_users(process: int) -> None:
    """Users and groups have the same numbers inside and outside. root maps all of them."""
    user, group, count = os.getuid(), os.getgid(), 65536 if os.getuid() == 0 else 1
    if user != 0:
        write(f"/proc/{process}/setgroups", "deny")
    write(f"/proc/{process}/uid_map", f"{user} {user} {count}")
    write(f"/proc/{process}/gid_map", f"{group} {group} {count}")


@contextlib.contextmanager
def keeping_checkout() -> Iterator[None]:
    """What is run from a checkout below /tmp stays there, and can't be written, under a new /tmp."""
    if not CHECKOUT.is_relative_to("/tmp"):
        yield
        return
    folder = os.open(CHECKOUT, os.O_PATH | os.O_DIRECTORY)
    try:
        yield
        CHECKOUT.mkdir(parents=True)
        source = f"/proc/self/fd/{folder}".encode()
        flags = ctypes.c_ulong(MS_BIND | MS_REC)
        check(libc.mount(source, bytes(CHECKOUT), None, flags, None), f"{CHECKOUT} in a new /tmp")
    finally:
        os.close(folder)


def set_up_files(options: argparse.Namespace) -> None:
    check(libc.mount(None, b"/", None, ctypes.c_ulong(MS_REC | MS_PRIVATE), None), "private mounts")
    if options.read_only_root:
        attributes = struct.pack("QQQQ", MOUNT_ATTR_RDONLY, 0, 0, 0)
        result = libc.syscall(
            SYS_MOUNT_SETATTR, AT_FDCWD, b"/", AT_RECURSIVE, attributes, len(attributes)
        )
        check(result, "a root that can't be written")
        with keeping_checkout():
            mount("tmpfs", "/tmp", MS_NOSUID | MS_NODEV, "size=64m,mode=1777")
    if options.shm == "0":
        # A folder in which nothing can be made, as if there were none.
        mount("tmpfs", "/dev/shm", MS_NOSUID | MS_NODEV | MS_RDONLY, "size=4k,mode=0555")
    else:
        mount("tmpfs", "/dev/shm", MS_NOSUID | MS_NODEV, f"size={options.shm},mode=1777")
    harmless = MS_NOSUID | MS_NODEV | MS_NOEXEC
    mount("proc", "/proc", harmless, "subset=pid" if options.proc == "processes-only" else "")
    if options.no_user_namespaces == "limit":
        # Through the whole /proc of these namespaces: so the limit holds in them only.
        write("/proc/sys/user/max_user_namespaces", "0")
    if options.shows:
        mount("tmpfs", "/sys/fs/cgroup", harmless, "size=1m")
        for shown in options.shows:
            name, text = shown.split("=", 1)
            write(f"/sys/fs/cgroup/{name}", text + "\n")
    if options.proc == "no-sys":
        mount("tmpfs", "/proc/sys", MS_RDONLY | harmless, "size=4k")


def filter_for(refused: dict[str, int]) -> bytes:
    load, jump_if_equal, jump_if_set, answer = 0x20, 0x15, 0x45, 0x06
    allow, fail = 0x7FFF0000, 0x00050000
    code = b""

    def step(operation: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
        return struct.pack("HBBI", operation, if_true, if_false, value)

    for name, error in refused.items():
        number, argument = REFUSABLE[name]
        code += step(load, 0)
        if argument is None:
            code += step(jump_if_equal, number, 0, 1)
        else:
            index, bits = argument
            code += step(jump_if_equal, number, 0, 3)
            code += step(load, 16 + 8 * index)
            code += step(jump_if_set, bits, 0, 1)
        code += step(answer, fail | error)
    return code + step(answer, allow)


def install_filter(refused: dict[str, int]) -> None:
    class Program(ctypes.Structure):
        _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_void_p))

    code = filter_for(refused)
    buffer = ctypes.create_string_buffer(code)
    program = Program(len(code) // 8, ctypes.addressof(buffer))
    check(libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no new privileges")
    result = libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(program))
    check(result, "a filter of system calls")


def own_group(controller: str) -> tuple[pathlib.Path, bool]:
    """The folder of this process's control group, and whether it is of version 2."""
    for line in pathlib.Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controller in controllers.split(","):
            return pathlib.Path(f"/sys/fs/cgroup/{controller}{path}"), False
        if controllers == "":
            folder = pathlib.Path(f"/sys/fs/cgroup{path}")
            enabled = folder / "cgroup.subtree_control"
            if enabled.exists() and controller in enabled.read_text().split():
                return folder, True
    raise NotPossibleError(f"this process may make no control group for {controller}")


@contextlib.contextmanager
def group_with(controller: str, files: dict[bool, list[tuple[str, str]]]) -> Iterator[pathlib.Path]:
    """A control group with these limits. `files`: names and texts by "is of version 2"."""
    parent, is_version_2 = own_group(controller)
    folder = parent / f"isopool-test-{os.getpid()}"
    try:
        folder.mkdir()
    except OSError as error:
        raise NotPossibleError(f"{folder}: {error.strerror}") from error
    try:
        for name, text in files[is_version_2]:
            write(folder / name, text)
        yield folder
    finally:
        folder.rmdir()


@contextlib.contextmanager
def groups_for(options: argparse.Namespace) -> Iterator[list[pathlib.Path]]:
    with contextlib.ExitStack() as stack:
        groups = []
        if options.memory:
            limits = {
                False: [("memory.limit_in_bytes", options.memory)],
                True: [("memory.max", options.memory), ("memory.swap.max", "0")],
            }
            groups.append(stack.enter_context(group_with("memory", limits)))
        if options.processors:
            quota = str(int(float(options.processors) * 100_000))
            limits = {
                False: [("cpu.cfs_period_us", "100000"), ("cpu.cfs_quota_us", quota)],
                True: [("cpu.max", f"{quota} 100000")],
            }
            groups.append(stack.enter_context(group_with("cpu", limits)))
        yield groups


def become_user(number: int) -> None:
    os.setgroups([])
    os.setresgid(number, number, number)
    os.setresuid(number, number, number)


def run_inside(options: argparse.Namespace) -> None:
    """Does not return."""
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    refused = {
        name: getattr(errno, error) for error, names in options.refuse for name in names.split(",")
    }
    if options.no_user_namespaces == "filter":
        refused |= {"unshare": errno.EPERM, "clone-namespaces": errno.EPERM}
        # Engines answer so, because a filter can't read the arguments of this call: glibc then uses clone.
        refused |= {"clone3": errno.ENOSYS}
    set_up_files(options)
    if options.user is not None:
        become_user(options.user)
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if refused:
        install_filter(refused)
    try:
        os.execv(options.program[0], options.program)
    except OSError as error:
        raise NotPossibleError(f"{options.program[0]}: {error.strerror}") from error


def run(options: argparse.Namespace) -> int:
    if platform.machine() != "x86_64":
        raise NotPossibleError("the filters are made for x86-64")
    with groups_for(options) as groups:
        for group in groups:
            write(group / "cgroup.procs", str(os.getpid()))
        try:
            return run_in_namespaces(options)
        finally:
            for group in groups:
                write(group.parent / "cgroup.procs", str(os.getpid()))


def run_in_namespaces(options: argparse.Namespace) -> int:
    # The process that makes the namespaces is not this one, which could not leave them, and could
    # not map users in them.
    entered, has_entered = os.pipe()
    mapped, has_mapped = os.pipe()
    maker = os.fork()
    if maker == 0:
        os.close(entered)
        os.close(has_mapped)
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        os._exit(with_reason(lambda: make_and_wait(options, has_entered, mapped)))
    os.close(has_entered)
    os.close(mapped)
    if os.read(entered, 1):
        keep_users(maker)
        os.write(has_mapped, b"x")
    os.close(has_mapped)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda sent, _: os.kill(maker, sent))
    return code_of(os.waitpid(maker, 0)[1])


def make_and_wait(options: argparse.Namespace, has_entered: int, mapped: int) -> int:
    enter_namespaces()
    os.write(has_entered, b"x")
    if not os.read(mapped, 1):
        return NOT_POSSIBLE  # the other process prints the reason
    first = os.fork()
    if first == 0:
        os._exit(with_reason(lambda: run_inside(options)))
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda sent, _: os.kill(first, sent))
    return code_of(os.waitpid(first, 0)[1])


def code_of(status: int) -> int:
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def with_reason(act) -> int:
    try:
        return act()
    except NotPossibleError as reason:
        print(f"not possible here: {reason}", file=sys.stderr, flush=True)
        return NOT_POSSIBLE


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--read-only-root", action="store_true")
    parser.add_argument("--shm", default="64m")
    parser.add_argument("--proc", default="whole", choices=["whole", "no-sys", "processes-only"])
    parser.add_argument("--no-user-namespaces", choices=["limit", "filter"])
    parser.add_argument("--refuse", nargs=2, action="append", default=[])
    parser.add_argument("--shows", action="append", default=[])
    parser.add_argument("--memory")
    parser.add_argument("--processors")
    parser.add_argument("--user", type=int)
    parser.add_argument("program", nargs="+")
    options = parser.parse_args()
    return with_reason(lambda: run(options))


if __name__ == "__main__":
    sys.exit(main())
