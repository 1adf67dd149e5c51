// SPDX-License-Identifier: BSD-3-Clause
#include "chaos/program/failure.h"

#include <c10/util/Exception.h>
#include <cxxabi.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <typeinfo>

#include "isopool/isopool.h"

namespace chaos {

void setText(Record& record, const char* text) {
  std::strncpy(record.text.data(), text, record.text.size() - 1);
}

namespace {

void describeDeath(Record& record, const isopool::WorkerLost& lost) {
  record.outcome = lost.started() ? Outcome::kWorkerLost : Outcome::kNeverRan;
  record.worker = lost.processId();
  record.signal = lost.signal();
}

// The process of "... worker 1 (pid 4711) ...": the worker that is killed for the call.
int processIn(const std::string& text) {
  const size_t begin = text.find("(pid ");
  return begin == std::string::npos ? 0 : std::atoi(text.c_str() + begin + 5);
}

std::string nameOf(const std::type_info& type) {
  const std::unique_ptr<char, void (*)(void*)> name(
      abi::__cxa_demangle(type.name(), nullptr, nullptr, nullptr), &std::free);
  return name ? name.get() : type.name();
}

void describe(Record& record, const std::exception_ptr& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const isopool::WorkerLost& lost) {
    describeDeath(record, lost);
    setText(record, lost.what());
  } catch (const isopool::DeadlineExceeded& exceeded) {
    record.outcome = exceeded.started() ? Outcome::kOverdue : Outcome::kNeverRan;
    if (exceeded.started()) record.worker = processIn(exceeded.what());
    setText(record, exceeded.what());
  } catch (const isopool::RemoteError& raised) {
    record.outcome = Outcome::kRaised;
    setText(record, raised.message().c_str());
  } catch (const isopool::Cancelled&) {
    record.outcome = Outcome::kCancelled;
  } catch (const isopool::PoolUnavailable& unavailable) {
    record.outcome = Outcome::kUnavailable;
    setText(record, unavailable.what());
  } catch (const isopool::SupervisorLost& lost) {
    record.outcome = lost.started() ? Outcome::kSupervisorLost : Outcome::kSupervisorLostUnstarted;
    setText(record, lost.what());
  } catch (const isopool::ArenaFull& full) {
    record.outcome = Outcome::kRefused;
    setText(record, full.what());
  } catch (const isopool::LimitExceeded& exceeded) {
    record.outcome = Outcome::kRefused;
    setText(record, exceeded.what());
  } catch (const std::bad_alloc&) {
    record.outcome = Outcome::kRefused;
    setText(record, "std::bad_alloc");
  } catch (const isopool::Error& error) {
    // All other causes of this error are misuse, which this program does not commit.
    const bool noThread =
        std::string(error.what()).rfind("can't start a thread for asynchronous calls", 0) == 0;
    record.outcome = noThread ? Outcome::kRefused : Outcome::kWrong;
    setText(record, (nameOf(typeid(error)) + ": " + error.what()).c_str());
  } catch (const c10::Error& error) {
    const bool readsFile = (record.flags & kOfManager) != 0;
    record.outcome = readsFile ? Outcome::kRefused : Outcome::kWrong;
    setText(record, ("c10::Error: " + std::string(error.what_without_backtrace())).c_str());
  } catch (const std::exception& error) {
    record.outcome = Outcome::kWrong;
    setText(record, (nameOf(typeid(error)) + ": " + error.what()).c_str());
  }
}

}  // namespace

void describeFailure(Record& record, const std::exception_ptr& failure) {
  try {
    describe(record, failure);
  } catch (const std::bad_alloc&) {
    // There is no memory for the text; the outcome is already recorded.
  }
}

}  // namespace chaos
