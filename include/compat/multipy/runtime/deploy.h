// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// multipy/runtime/deploy.h as programs written for torch::deploy and multipy know it, over isopool.
#include <c10/util/irange.h>
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
using isopool::Obj;
using isopool::Package;
using isopool::ReplicatedObj;
}  // namespace torch::deploy

namespace multipy {
namespace runtime = torch::deploy;
}
