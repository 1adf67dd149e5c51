// SPDX-License-Identifier: BSD-3-Clause
#include "chaos/campaign.h"

#include <poll.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>

namespace chaos {

namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr milliseconds kWarmUp(1500);
constexpr uint64_t kSystemMemoryNoise = 1 << 20;

struct Front {
  std::unique_ptr<Target> target;
  std::unique_ptr<Nemesis> nemesis;
};

template <typename Act>
void onEach(std::vector<Front>& fronts, const Act& act) {
  std::vector<std::thread> threads;
  for (Front& front : fronts) threads.emplace_back([&act, &front] { act(front); });
  for (std::thread& thread : threads) thread.join();
}

// False if other isopool processes run on this machine: they change the system's shared memory.
bool aloneOnThisMachine() {
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    if (statusOf(std::stoi(name)).name.rfind("isopoold", 0) == 0) return false;
  }
  return true;
}

void compareSystemMemory(uint64_t before, Findings& findings) {
  uint64_t now = 0;
  for (int tries = 0; tries < 100; ++tries) {
    now = systemSharedBytes();
    if (now <= before + kSystemMemoryNoise) return;
    ::poll(nullptr, 0, 50);
  }
  findings.add(Fault::kLeakedBytes,
               "the system's shared memory is " + std::to_string(now) + " bytes and was " +
                   std::to_string(before),
               now - before);
}

// What the threads that attack the targets share.
struct Course {
  const CampaignSettings& settings;
  const Clock::time_point began = Clock::now();
  uint64_t realKills = 0;  ///< how many of the kills are to be of real targets' processes
  AttackCounts counts{};
  std::atomic<uint64_t> episodes{0};

  bool enough(bool plain) const {
    if (settings.kills == 0) return false;
    return plain ? counts.plainKills >= settings.kills - realKills : counts.realKills >= realKills;
  }
  bool overAfter(uint64_t episodesOfTarget, bool plain) const {
    if (!settings.fault.empty() && episodesOfTarget > 0) return true;
    if (settings.time.count() != 0 && Clock::now() - began >= settings.time) return true;
    return enough(plain) || settings.endEarly();
  }
};

void showProgress(const Course& course) {
  if (!course.settings.progress) return;
  const uint64_t kills = course.counts.plainKills + course.counts.realKills;
  std::string line = "\r\033[Kepisode " + std::to_string(course.episodes) + ": " +
                     std::to_string(kills) + " kills, " + std::to_string(course.counts.realKills) +
                     " of them real workers";
  if (course.settings.kills != 0) {
    line += ", " + std::to_string(kills * 100 / course.settings.kills) + " %";
  }
  std::fputs(line.c_str(), stderr);
}

// Attacks a target, episode after episode, and ends it. No target waits for another one: while one
// is at rest, or waits for the end of a stop of ten seconds, the others are attacked.
void attack(Front& front, Course& course) {
  const bool plain = front.target->plan().plain;
  for (uint64_t episodes = 0; !course.overAfter(episodes, plain); ++episodes) {
    front.nemesis->attackUntil(Clock::now() + course.settings.episode,
                               [&] { return course.enough(plain) || course.settings.endEarly(); });
    front.target->takeStock();
    ++course.episodes;
    showProgress(course);
  }
  front.target->end();
}

CampaignResult sumUp(const std::vector<Front>& fronts, const Course& course) {
  const AttackCounts& counts = course.counts;
  CampaignResult result;
  result.episodes = course.episodes;
  for (const Front& front : fronts) {
    result.calls += front.target->calls();
    result.selfInflictedDeaths += front.target->selfInflictedDeaths();
    for (const RecordFlag act : {kConstructor, kLoad, kClose}) {
      result.managers[act] += front.target->managers(act);
    }
    result.latest = std::max(result.latest, front.target->latest());
    for (size_t i = 0; i < result.outcomes.size(); ++i) {
      result.outcomes[i] += front.target->outcomes(static_cast<Outcome>(i));
    }
  }
  result.kills = counts.plainKills + counts.realKills;
  result.realKills = counts.realKills;
  std::copy(counts.byFamily.begin(), counts.byFamily.end(), result.attacks.begin());
  return result;
}

}  // namespace

std::vector<TargetPlan> targetPlans(const CampaignSettings& settings) {
  std::vector<TargetPlan> plans(7);
  plans[0].name = "plain-private-1";
  plans[1].name = "plain-private-2";
  plans[2].name = "plain-shared";
  plans[2].shared = true;
  plans[2].programs = 3;
  plans[3].name = "real-private";
  plans[3].plain = false;
  plans[4].name = "real-shared";
  plans[4].plain = false;
  plans[4].shared = true;
  plans[4].programs = 2;
  plans[5].name = "plain-private-3";
  plans[6].name = "plain-private-4";
  for (size_t i = 0; i < plans.size(); ++i) {
    plans[i].seed = settings.seed * 16 + i;
    plans[i].slowness = settings.slowness;
  }
  plans[0].fault = settings.fault;
  return plans;
}

CampaignResult run(const CampaignSettings& settings, const Installation& installation,
                   Findings& findings) {
  Course course{settings};
  const bool alone = aloneOnThisMachine();
  const uint64_t sharedBefore = systemSharedBytes();
  std::vector<Front> fronts;
  bool hasReal = false;
  bool hasPlain = false;
  for (const TargetPlan& plan : targetPlans(settings)) {
    if (!settings.target.empty() && plan.name != settings.target) continue;
    (plan.plain ? hasPlain : hasReal) = true;
    Front& front = fronts.emplace_back();
    front.target = std::make_unique<Target>(plan, installation, findings);
    front.nemesis = std::make_unique<Nemesis>(
        *front.target, AttackPlan(plan.seed, plan.plain, plan.shared), course.counts, findings);
  }
  course.realKills = !hasPlain ? settings.kills : hasReal ? settings.kills / 10 : 0;
  // Measures the state before any attack.
  std::this_thread::sleep_for(kWarmUp);
  onEach(fronts, [](Front& front) { front.target->takeStock(); });
  // What is not in order before any attack would be found after each one, as a setting that the
  // programs refuse.
  if (findings.none() || !settings.fault.empty()) {
    onEach(fronts, [&course](Front& front) { attack(front, course); });
  }
  CampaignResult result = sumUp(fronts, course);
  result.endedEarly = settings.endEarly();
  fronts.clear();
  result.systemMemoryCompared = alone && aloneOnThisMachine();
  if (result.systemMemoryCompared) compareSystemMemory(sharedBefore, findings);
  result.seconds = std::chrono::duration<double>(Clock::now() - course.began).count();
  if (settings.progress) std::fprintf(stderr, "\r\033[K");
  return result;
}

}  // namespace chaos
