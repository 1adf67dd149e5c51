// SPDX-License-Identifier: BSD-3-Clause
// What a target at rest must have: all its processes, attached to each other, and no memory and no
// descriptors beyond those of its earlier rests.
#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <sstream>

#include "chaos/target/target.h"
#include "chaos/target/wait_until.h"

namespace chaos {

namespace {

using std::chrono::milliseconds;

// Leases of each channel's last calls are returned only with the next call.
constexpr uint64_t kInputsNotYetBack = 16 << 20;

size_t sumOf(const std::map<std::string, size_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), size_t{0},
                         [](size_t sum, const auto& count) { return sum + count.second; });
}

// "2 socket, 1 anon_inode:[eventfd]": the descriptors that were added.
std::string growth(const std::map<std::string, size_t>& before,
                   const std::map<std::string, size_t>& now) {
  std::string text;
  for (const auto& [kind, count] : now) {
    const auto found = before.find(kind);
    const size_t had = found == before.end() ? 0 : found->second;
    if (count <= had) continue;
    text.append(text.empty() ? "" : ", ").append(std::to_string(count - had)).append(" ");
    text.append(kind);
  }
  return text;
}

bool isOfChannel(const std::string& label) {
  return label == "isopool:client" || label == "isopool:worker" || label == "isopool:output";
}

}  // namespace

// Checks what the program's library itself reports that it holds.
void Target::checkBooks(Program& program) {
  std::string last;
  uint64_t inputs = 0;
  uint64_t lent = 0;
  const bool settled = waitUntil(
      [&] {
        program.process->say("books");
        last = program.process->hear(onThisMachine(kPatience)).value_or("");
        std::istringstream fields(last);
        std::string word;
        uint64_t workers = 0, serving = 0, waiting = 0;
        fields >> word >> workers >> serving >> inputs >> lent >> waiting;
        return workers > 0 && serving == workers && waiting == 0 && lent == 0 &&
               inputs <= kInputsNotYetBack;
      },
      onThisMachine(kPatience));
  if (settled) return;
  if (lent > 0 || inputs > kInputsNotYetBack) {
    findings_.add(Fault::kLeakedBytes, program.name + " at rest says: " + last, lent + inputs);
  } else {
    findings_.add(Fault::kHung, program.name + " at rest has no whole pool: " + last);
  }
}

Target::StatusPages Target::statusPages(const std::vector<Member>& members) {
  StatusPages pages;
  for (const Member& member : members) {
    for (const auto& [inode, object] : holdingsOf(member.id.pid).objects) {
      if (object.label == "isopool:status-page") pages[member.id.pid].insert(inode);
    }
  }
  return pages;
}

// Each program must map the status page of each of its workers and no other. Otherwise
// describes a program that does not, and which other processes hold those pages: this shows
// which side is wrong.
std::string Target::notAttached(const std::vector<Member>& members,
                                const StatusPages& pages) const {
  const auto pagesOf = [&](const Member& member) {
    const auto found = pages.find(member.id.pid);
    return found == pages.end() ? std::set<uint64_t>() : found->second;
  };
  for (const Member& member : members) {
    if (member.role != Role::kProgram) continue;
    const std::set<uint64_t> own = pagesOf(member);
    if (own.size() == static_cast<size_t>(plan_.workers) + 1) continue;
    std::string text = "program " + std::to_string(member.id.pid) + " maps the status pages of " +
                       std::to_string(own.size()) + " workers and not of " +
                       std::to_string(plan_.workers + 1);
    for (const uint64_t page : own) {
      text += "; one is held";
      std::string others;
      for (const Member& other : members) {
        if (other.role == Role::kProgram || pagesOf(other).count(page) == 0) continue;
        others.append(" by ").append(nameOf(other.role));
        others.append(" ").append(std::to_string(other.id.pid));
      }
      text += others.empty() ? " by no other process" : others;
    }
    return text + unreaped(members);
  }
  return {};
}

// Dead children of supervisors that are not reaped.
std::string Target::unreaped(const std::vector<Member>& members) {
  std::string text;
  for (const Member& member : members) {
    if (member.role != Role::kSupervisor) continue;
    for (const pid_t child : childrenOf(member.id.pid)) {
      if (chaos::statusOf(child).alive()) continue;
      text += "; the supervisor has not reaped " + std::to_string(child);
    }
  }
  return text;
}

// Waits until exactly the expected workers and spares exist.
bool Target::waitUntilComplete() {
  const auto supervisors = static_cast<size_t>(plan_.shared ? 1 : plan_.programs);
  const size_t workers = supervisors * (static_cast<size_t>(plan_.workers) + 1);
  size_t expected = 0;
  size_t there = 0;
  size_t serving = 0;
  std::string attachment;
  const bool complete = waitUntil(
      [&] {
        const std::vector<Member> all = members();
        const auto count = [&](Role role) {
          return static_cast<size_t>(std::count_if(
              all.begin(), all.end(), [&](const Member& member) { return member.role == role; }));
        };
        serving = count(Role::kWorker);
        // A private supervisor continues without its guardian.
        expected = static_cast<size_t>(plan_.programs) + supervisors * 2 + count(Role::kGuardian) +
                   workers;
        there = marked().size();
        attachment = notAttached(all, statusPages(all));
        return there == expected && serving == workers && attachment.empty();
      },
      onThisMachine(kPatience));
  if (complete) return true;
  if (there > expected) {
    std::string who;
    for (const pid_t pid : marked()) {
      who.append(" ").append(std::to_string(pid)).append(" ").append(chaos::statusOf(pid).name);
    }
    findings_.add(Fault::kLeakedProcesses,
                  plan_.name + " has " + std::to_string(there) + " processes and not " +
                      std::to_string(expected) + ":" + who,
                  there - expected);
    return false;
  }
  const std::string what = serving == workers && !attachment.empty()
                               ? attachment
                               : "there are " + std::to_string(serving) + " workers and not " +
                                     std::to_string(workers) + ", and " + std::to_string(there) +
                                     " processes and not " + std::to_string(expected);
  findings_.add(Fault::kHung, plan_.name + ": " + what + ", " +
                                  std::to_string(onThisMachine(kPatience).count() / 1000) +
                                  " s after the last attack");
  return false;
}

// The most memory that a supervisor keeps ready: one set for each channel that it needs if all
// workers die.
uint64_t Target::stockBytes() const {
  constexpr uint64_t kSetBytes = (4 << 20) + (1 << 18);
  return static_cast<uint64_t>(plan_.programs) * static_cast<uint64_t>(plan_.workers + 1) *
         kSetBytes;
}

void Target::checkHoldings() {
  // Releasing takes a moment: only what remains is a leak.
  std::string leak;
  Fault fault = Fault::kLeakedBytes;
  uint64_t amount = 0;
  const auto incomplete = [&](const std::string& how) {
    fault = Fault::kHung;
    amount = 1;
    leak = plan_.name + ": " + how;
    return false;
  };
  const auto nothingLeaks = [&] {
    // Lists the processes each time: a worker may still be replaced for a call past its deadline.
    const std::vector<Member> all = members();
    const StatusPages pages = statusPages(all);
    const std::string wrong = notAttached(all, pages);
    if (!wrong.empty()) return incomplete(wrong);
    std::map<uint64_t, std::set<Role>> holders;
    std::map<uint64_t, MemoryObject> objects;
    std::map<ProcessId, Baseline> seen;
    for (const Member& member : all) {
      const Holdings holdings = holdingsOf(member.id.pid);
      Baseline own{holdings.otherDescriptors, 0};
      // A supervisor makes and locks its folder for workers when a zygote reports that
      // it is needed.
      std::erase_if(own.descriptors, [](const auto& kind) {
        return kind.first.find("/isopool-workers-") != std::string::npos && kind.second == 1;
      });
      for (const auto& [inode, object] : holdings.objects) {
        holders[inode].insert(member.role);
        objects[inode] = object;
      }
      seen[member.id] = own;
    }
    for (const auto& [inode, roles] : holders) {
      const MemoryObject& object = objects[inode];
      const bool channel = isOfChannel(object.label);
      const bool program = roles.count(Role::kProgram) != 0;
      const bool worker = roles.count(Role::kWorker) != 0;
      const bool input = object.label == "isopool:input";
      if ((channel && program && !worker) || (channel && worker && !program) ||
          (input && !program)) {
        fault = Fault::kLeakedBytes;
        amount = object.bytes;
        leak = plan_.name + ": " + object.label + " of " + std::to_string(object.bytes) +
               " bytes is held by a " +
               (program  ? "program"
                : worker ? "worker"
                         : "supervisor") +
               " alone";
        return false;
      }
    }
    for (const Member& member : all) {
      if (member.role != Role::kSupervisor) continue;
      // The memory that the supervisor keeps ready for the next workers.
      for (const auto& [inode, object] : holdingsOf(member.id.pid).objects) {
        if (holders[inode].size() == 1) seen[member.id].ownBytes += object.bytes;
      }
    }
    for (const auto& [id, own] : seen) {
      if (own.ownBytes > stockBytes()) {
        fault = Fault::kLeakedBytes;
        amount = own.ownBytes - stockBytes();
        leak = plan_.name + ": the supervisor alone holds " + std::to_string(own.ownBytes) +
               " bytes of shared memory, more than what it keeps ready for new workers";
        return false;
      }
      const auto baseline = baselines_.find(id);
      if (baseline == baselines_.end()) continue;
      const std::map<std::string, size_t>& before = baseline->second.descriptors;
      if (sumOf(own.descriptors) > sumOf(before)) {
        fault = Fault::kLeakedDescriptors;
        amount = sumOf(own.descriptors) - sumOf(before);
        leak = plan_.name + ": process " + std::to_string(id.pid) + " (" +
               chaos::statusOf(id.pid).name + ") has " + std::to_string(sumOf(own.descriptors)) +
               " descriptors and had " + std::to_string(sumOf(before)) +
               "; more are: " + growth(before, own.descriptors);
        return false;
      }
    }
    // If a worker was replaced meanwhile, its program had fewer descriptors for a moment. As a
    // baseline, that number would make a leak of each later one.
    if (statusPages(all) != pages) return incomplete("its workers are replaced again and again");
    baselines_ = seen;
    return true;
  };
  if (waitUntil(nothingLeaks, onThisMachine(milliseconds(5000)))) return;
  if (fault == Fault::kHung && waitUntil(nothingLeaks, onThisMachine(kPatience))) return;
  findings_.add(fault, leak, amount);
}

}  // namespace chaos
