# SPDX-License-Identifier: BSD-3-Clause
"""older_kernel.py PROGRAM WORD...: executes a program that finds neither Landlock nor seccomp. If
the variable HIDDEN_CALL holds the number of a system call, the program lacks only that call."""

import ctypes
import os
import struct
import sys

ENOSYS = 38
RETURN_ERROR = 0x00050000
ALLOW = 0x7FFF0000
HIDDEN = {"seccomp": 317, "landlock_create_ruleset": 444}
if "HIDDEN_CALL" in os.environ:
    HIDDEN = {"": int(os.environ["HIDDEN_CALL"])}

code = struct.pack("HBBI", 0x20, 0, 0, 0)  # load the number of the system call
for number in HIDDEN.values():
    code += struct.pack("HBBI", 0x15, 0, 1, number)  # unless it is this one, skip
    code += struct.pack("HBBI", 0x06, 0, 0, RETURN_ERROR | ENOSYS)
code += struct.pack("HBBI", 0x06, 0, 0, ALLOW)
buffer = ctypes.create_string_buffer(code)


class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("code", ctypes.c_void_p)]


libc = ctypes.CDLL(None, use_errno=True)
SET_NO_NEW_PRIVS, SET_SECCOMP, FILTER = 38, 22, 2
assert libc.prctl(SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
program = Program(len(code) // 8, ctypes.addressof(buffer))
assert libc.prctl(SET_SECCOMP, FILTER, ctypes.byref(program), 0, 0) == 0
os.execv(sys.argv[1], sys.argv[1:])
