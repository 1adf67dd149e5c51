# SPDX-License-Identifier: BSD-3-Clause
"""few_user_namespaces.py COUNT PROGRAM WORD...: executes a program that can create at most COUNT
user namespaces."""

import ctypes
import os
import sys

CLONE_NEWUSER = 0x10000000
user, group = os.getuid(), os.getgid()
libc = ctypes.CDLL(None, use_errno=True)
if libc.unshare(CLONE_NEWUSER) == 0:
    for path, text in (
        ("/proc/self/setgroups", "deny"),
        ("/proc/self/uid_map", f"{user} {user} 1"),
        ("/proc/self/gid_map", f"{group} {group} 1"),
        ("/proc/sys/user/max_user_namespaces", sys.argv[1]),
    ):
        with open(path, "w") as file:
            file.write(text)
os.execv(sys.argv[2], sys.argv[2:])
