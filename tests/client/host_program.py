# SPDX-License-Identifier: BSD-3-Clause
"""host_program.py LIBRARY PACKAGE: a Python process with torch that loads a library with a pool."""

import ctypes
import os
import sys
import threading

import torch

torch.ones(100).sum()
bridge = ctypes.CDLL(sys.argv[1])
bridge.bridgeSum.restype = ctypes.c_double
bridge.bridgeError.restype = ctypes.c_char_p

worker = bridge.bridgeOpen(sys.argv[2].encode())
print("in another process:", worker > 0 and worker != os.getpid(), flush=True)
print("sum:", round(bridge.bridgeSum(), 3), flush=True)
print("error:", bridge.bridgeError().decode(), flush=True)
answers: list[float] = []
thread = threading.Thread(target=lambda: answers.append(bridge.bridgeSum()))
thread.start()
thread.join()
print("from a thread:", round(answers[0], 3), flush=True)
sys.stdin.read()
bridge.bridgeClose()
