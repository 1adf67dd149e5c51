// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// What programs written for torch::deploy and multipy know by this name, over isopool.
/// Includes what such programs use without including it themselves.
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
