// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include "worker/python/py_ref.h"

namespace isopool::worker {

/// Whether Python finds packages that are installed below the user's home folder (site.USER_SITE).
enum class UserPackages : uint8_t { kAsUsual, kNot };

/// A module of this program, which Python code imports as a built-in one.
struct BuiltInModule {
  const char* name;
  PyObject* (*make)();  ///< a new reference, or null with a Python error set
};

/// Starts CPython in this process as `executable` would start it, so that the packages of its
/// environment are found; PYTHONPATH and the other variables of Python apply. If this process is a
/// Python already, which runs the worker as an extension module, uses that: its caller has started
/// it with what `users` asks for. Then imports the embedded package isopool_worker, which uses
/// `module`. The calling thread holds the GIL afterwards. Call once. Throws std::runtime_error.
void startInterpreter(const char* executable, UserPackages users, BuiltInModule module);

/// The object isopool_worker.<module>.<name>, or null with a Python error set. Imports the module
/// at its first use. With the GIL.
PyRef workerFunction(const char* module, const char* name);

}  // namespace isopool::worker
