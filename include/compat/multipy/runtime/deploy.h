// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// The API of torch::deploy and multipy, as aliases of isopool's classes. Contracts are those
/// of the headers in isopool/. Also includes headers that such programs use but do not
/// include themselves.
#include <c10/util/irange.h>
#include <torch/csrc/jit/serialization/import.h>
#include <torch/imethod.h>
#include <unistd.h>

#include <cassert>
#include <fstream>
#include <functional>
#include <iostream>
#include <string>
#include <thread>
#include <vector>

#include "multipy/runtime/Exception.h"
#include "multipy/runtime/environment.h"
#include "multipy/runtime/interpreter/interpreter_impl.h"
#include "multipy/runtime/noop_environment.h"

#include "isopool/isopool.h"

namespace torch::deploy {
using isopool::Interpreter;
using isopool::InterpreterManager;
using isopool::InterpreterSession;
using isopool::LoadBalancer;
using isopool::Obj;
using isopool::Package;
using isopool::PythonMethodWrapper;
using isopool::ReplicatedObj;
}  // namespace torch::deploy
