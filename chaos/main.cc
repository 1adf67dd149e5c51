// SPDX-License-Identifier: BSD-3-Clause
// isopool_chaos: attacks isopool and reports what it found. scripts/chaos builds and runs it.
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <random>
#include <string>

#include "chaos/campaign.h"
#include "chaos/program/planted_fault.h"
#include "chaos/report.h"
#include "chaos/target/cleaner.h"

namespace {

// Set by a SIGINT or SIGTERM. A second one of its kind ends the process.
std::atomic<bool> signalled{false};

void endEarlyOnSignal() {
  struct sigaction action {};
  action.sa_handler = [](int) { signalled = true; };
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
}

struct Options {
  chaos::CampaignSettings campaign;
  chaos::Installation installation{
      CHAOS_PROGRAM, CHAOS_SUPERVISOR, CHAOS_PLAIN_WORKER, "", CHAOS_CLOCK, ""};
  double seconds = 0;
  uint64_t listed = 0;
  std::string json;
  bool keep = false;
};

std::string describeFaults() {
  std::string text = "commit a fault on purpose, to see that it is found:";
  for (const chaos::PlantedFault& fault : chaos::plantedFaults()) {
    text += std::string(" ") + fault.name + " (" + fault.what + ")";
  }
  return text;
}

int listAttacks(const Options& options) {
  for (const chaos::TargetPlan& target : chaos::targetPlans(options.campaign)) {
    chaos::AttackPlan plan(target.seed, target.plain, target.shared);
    for (uint64_t i = 0; i < options.listed; ++i) {
      std::printf("%s: %s\n", target.name.c_str(), chaos::describe(plan.next()).c_str());
    }
  }
  return 0;
}

int attack(Options& options) {
  if (options.installation.package.empty()) {
    throw std::runtime_error(
        "--package FILE is missing: scripts/chaos makes the model and gives it");
  }
  std::string folder = std::filesystem::temp_directory_path() / "isopool-chaos-XXXXXX";
  if (::mkdtemp(folder.data()) == nullptr) throw std::runtime_error("no temporary folder");
  options.installation.folder = folder;
  options.campaign.progress = ::isatty(STDERR_FILENO) != 0;
  options.campaign.endEarly = [] { return signalled.load(); };
  endEarlyOnSignal();
  std::printf("seed %llu\n", static_cast<unsigned long long>(options.campaign.seed));
  std::fflush(stdout);
  const chaos::Cleaner cleaner;
  chaos::Findings findings;
  const chaos::CampaignResult result = chaos::run(options.campaign, options.installation, findings);
  chaos::writeText(std::cout, options.campaign, result, findings);
  if (!options.json.empty()) {
    std::ofstream file(options.json);
    chaos::writeJson(file, options.campaign, result, findings);
    if (!file.flush()) throw std::runtime_error("can't write " + options.json);
  }
  if (options.keep) {
    std::printf("histories and logs are in %s\n", folder.c_str());
  } else {
    std::filesystem::remove_all(folder);
  }
  return findings.none() ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app(
      "Attacks isopool: kills, stops, starves and interrupts its workers, zygotes, supervisors and "
      "client programs while many callers call, and checks each call's outcome, each model's "
      "effects, and what is left. SIGINT and SIGTERM end the attacks: what was found until then is "
      "reported. Exit code 1 if anything was found.");
  Options options;
  options.campaign.seed = std::random_device()();
  app.add_option("--kills", options.campaign.kills,
                 "end after so many, a tenth of them with real workers (without it and --seconds: "
                 "1000)");
  app.add_option("--seconds", options.seconds, "end after so long, whatever the number of kills");
  app.add_option("--seed", options.campaign.seed,
                 "decides the attacks and the calls; printed, and drawn if it is not given");
  app.add_option("--target", options.campaign.target,
                 "attack this one alone: plain-private-1 to -4, plain-shared, real-private, "
                 "real-shared")
      ->check([](const std::string& name) {
        for (const chaos::TargetPlan& plan : chaos::targetPlans({})) {
          if (plan.name == name) return std::string();
        }
        return "there is no target " + name;
      });
  app.add_option(
         "--slowness", options.campaign.slowness,
         "this machine is so many times slower than an ordinary one, as an emulated one is: "
         "multiplies the times that chaos allows. isopool's own are settings, as "
         "ISOPOOL_ZYGOTE_TIMEOUT")
      ->check(CLI::Range(1, 1000));
  app.add_option("--json", options.json, "write the counts as one JSON object to this FILE");
  app.add_option("--list", options.listed,
                 "only say what the first so many attacks on each target would be");
  app.add_option("--plant", options.campaign.fault, describeFaults())
      ->check([](const std::string& name) {
        for (const chaos::PlantedFault& fault : chaos::plantedFaults()) {
          if (fault.name == name) return std::string();
        }
        return "there is no fault " + name;
      });
  app.add_flag("--keep", options.keep, "keep histories and logs, and say where");
  app.add_option("--package", options.installation.package,
                 "the packaged model, which scripts/chaos makes")
      ->check(CLI::ExistingFile);
  CLI11_PARSE(app, argc, argv);
  ::signal(SIGPIPE, SIG_IGN);
  options.campaign.time = std::chrono::milliseconds(static_cast<int64_t>(options.seconds * 1000));
  if (options.campaign.kills == 0 && options.seconds == 0) options.campaign.kills = 1000;
  try {
    return options.listed != 0 ? listAttacks(options) : attack(options);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "chaos: %s\n", error.what());
    return 2;
  }
}
