// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// Includes the whole C++ interface of isopool. Link the CMake target isopool::isopool.
///
/// A first program, for a package that holds a pickled model:
///
///     isopool::InterpreterManager pool(4);  // four worker processes
///     isopool::Package package = pool.loadPackage("model.pt");
///     isopool::ReplicatedObj model = package.loadPickle("model", "model.pkl");
///     at::Tensor result = model({at::ones({3})}).toTensor();
///
/// interpreter_manager.h describes processes, threads, lifetime and deaths; errors.h
/// the exceptions.
#include "isopool/async.h"
#include "isopool/call_options.h"
#include "isopool/counters.h"
#include "isopool/environment.h"
#include "isopool/errors.h"
#include "isopool/interpreter.h"
#include "isopool/interpreter_manager.h"
#include "isopool/load_balancer.h"
#include "isopool/method.h"
#include "isopool/noop_environment.h"
#include "isopool/obj.h"
#include "isopool/observation.h"
#include "isopool/options.h"
#include "isopool/package.h"
#include "isopool/path_environment.h"
#include "isopool/python_method_wrapper.h"
#include "isopool/replicated_obj.h"
#include "isopool/result_stream.h"
#include "isopool/shared_memory.h"
#include "isopool/statistics.h"
#include "isopool/trace.h"
