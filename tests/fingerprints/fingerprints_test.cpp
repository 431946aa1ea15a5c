// SPDX-License-Identifier: Apache-2.0
// Programs and plans by their hashes: what a change that only moves code must leave as it is, to the byte.
//
// Alone it compares the hashes of all programs of the corpus with the committed ones, which takes seconds.
//
// --plans: also the text of every plan of the corpus, of its whole models and of the runs below; minutes.
//
// --only=TEXT: of groups and runs whose names have it.
//
// --update: says what changed and rewrites fingerprints.txt; a commit that does so says why.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <map>
#include <mutex>
#include <thread>

#include "base/bytes.h"
#include "base/hash.h"
#include "base/parallel.h"
#include "corpus/cells.h"
#include "cost/card.h"
#include "io/file.h"
#include "model/families/families.h"
#include "search/shape.h"
#include "setup/stages.h"

namespace sluice::core {
namespace {

using Fingerprints = std::map<std::string, std::string>;  // by what they are of

bool& with_plans() {
  static bool plans = false;
  return plans;
}
std::string& only() {
  static std::string name;
  return name;
}

// The text of a plan without its first line, which names the program's hash.
std::string fingerprint(const Program& program, const Plan& plan) {
  const std::string text = to_text(program, plan);
  return fmt::format("{:016x}", Hash().add(std::string_view(text).substr(text.find('\n') + 1)).value());
}

std::string fingerprint(const BuiltProgram& model) {
  return fmt::format("{:016x}", model.program.hash());
}

Question request_of(const corpus::Group& g) {
  Question r{{.model = g.config, .numerics = g.numerics, .optimizer = g.optimizer}, {}, g.step};
  r.threads = search_threads();
  r.between.push_back({kEvaluation});
  r.between.push_back({kSampling, std::min<int64_t>(g.step.seq_len, 1024)});
  return r;
}

void add_programs(const std::string& name, const Question& r, Fingerprints& out) {
  out["program " + name + " training"] =
      fingerprint(build_training(r.model, r.shape, r.numerics, r.optimizer));
  out["program " + name + " flush"] = fingerprint(build_flush(r.model, r.numerics, r.optimizer));
  out["program " + name + " evaluation"] =
      fingerprint(build_evaluation(r.model, evaluation_shape(r.shape), r.numerics));
  out["program " + name + " sampling"] = fingerprint(build_stages(r).at(kSampling).model);
}

void add_plans(const corpus::Group& group, Fingerprints& out) {
  const Program program = build_training(group.config, group.step, group.numerics, group.optimizer).program;
  const Profile profile = corpus::profile_of(group);
  for (const corpus::Caps& caps : group.caps) {
    PlanRequest request;
    request.caps[kDevice] = caps.device_bytes;
    request.caps[kHost] = caps.host_bytes;
    request.explain = false;
    const auto plan = make_plan(program, profile, request);
    out[fmt::format("plan {} device {} host {}", group.name(), caps.device_bytes, caps.host_bytes)] =
        plan.ok() ? fingerprint(program, *plan) : "none fits";
  }
}

std::string name_of_run(int64_t device_gib) {
  return device_gib == 0 ? "8B h200 none" : fmt::format("8B h200 {}GiB", device_gib);
}

// Whole runs of Llama-3 8B on the preset of an H200: the shape is chosen, and every stage planned.
void add_run(int64_t device_gib, Fingerprints& out) {
  const Profile profile = *profile_of(*find_card("h200"), DType::BF16);
  const std::string name = name_of_run(device_gib);
  Question r;
  r.threads = search_threads();
  r.model = *model_preset("8");
  r.numerics = {DType::BF16, DType::BF16, DType::BF16, MasterWeights::Off, true};
  r.optimizer.deferred = true;
  r.caps[kDevice] = device_gib == 0 ? kUnlimited : device_gib * kGiB;
  r.caps[kHost] = 110 * kGiB;
  r.between.push_back({kEvaluation});
  r.between.push_back({kSampling, 1024});
  const Cut cut{.seq_len = 8192, .tokens_per_step = 131072};
  const auto choice =
      choose_shape(subject_of(r.model, r.numerics, r.optimizer), cut, r.caps, Effort(), profile);
  if (!choice.ok()) {
    out["run " + name] = choice.message();
    return;
  }
  r.shape = choice->shape;
  r.optimizer.late_moments = choice->late_moments;
  out["run " + name + " shape"] = to_text(r.shape) + (choice->late_moments ? " late" : "");
  add_programs(name, r, out);
  const auto stages = make_stages(r, profile);
  if (!stages.ok()) {
    out["run " + name] = stages.message();
    return;
  }
  for_each_stage(*stages, [&](const Stage& s) {
    out["plan " + name + " " + s.name] = fingerprint(s.model.program, s.plan);
  });
}

// Calls of `work` with 0 to n - 1 on all cores; each adds to fingerprints of its own.
Fingerprints collect(size_t n, const std::function<void(size_t, Fingerprints&)>& work) {
  Fingerprints all;
  std::mutex mutex;
  std::atomic<size_t> next = 0;
  std::vector<std::jthread> threads;
  for (unsigned t = 0; t < std::max(1u, std::thread::hardware_concurrency()); ++t) {
    threads.emplace_back([&] {
      for (size_t i = next++; i < n; i = next++) {
        Fingerprints own;
        work(i, own);
        const std::lock_guard lock(mutex);
        all.merge(own);
      }
    });
  }
  threads.clear();
  return all;
}

bool is_wanted(const std::string& name) {
  return name.find(only()) != std::string::npos;
}

Fingerprints fingerprints(bool plans) {
  std::vector<corpus::Group> groups = corpus::groups(false);
  for (corpus::Group& g : corpus::groups(true)) groups.push_back(std::move(g));
  std::erase_if(groups, [](const corpus::Group& g) { return !is_wanted(g.name()); });
  Fingerprints all = collect(groups.size(), [&](size_t i, Fingerprints& out) {
    add_programs(groups[i].name(), request_of(groups[i]), out);
    if (plans) add_plans(groups[i], out);
  });
  for (const int64_t gib : {0, 24, 16, 9}) {
    if (plans && is_wanted(name_of_run(gib))) add_run(gib, all);
  }
  return all;
}

std::string to_lines(const Fingerprints& all) {
  std::string out;
  for (const auto& [name, value] : all) out += fmt::format("{}: {}\n", name, value);
  return out;
}

Result<Fingerprints> committed() {
  SLUICE_ASSIGN(const std::string text, read_file(SLUICE_FINGERPRINTS));
  Fingerprints out;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size()), colon = text.find(": ", begin);
    if (colon < end) out[text.substr(begin, colon - begin)] = text.substr(colon + 2, end - colon - 2);
    begin = end + 1;
  }
  return out;
}

TEST(Fingerprints, AreTheCommittedOnes) {
  const auto expected = committed();
  ASSERT_TRUE(expected.ok()) << expected.message();
  for (const auto& [name, value] : fingerprints(with_plans())) {
    const auto it = expected->find(name);
    if (it == expected->end()) {
      ADD_FAILURE() << name << ": not in the list; run sluice_test_fingerprints --plans --update";
    } else if (it->second != value) {
      ADD_FAILURE() << name << ": committed " << it->second << ", now " << value;
    }
  }
}

int update() {
  const auto before = committed();
  Fingerprints now = fingerprints(with_plans());
  if (before.ok()) {
    for (const auto& [name, value] : now) {
      const auto it = before->find(name);
      if (it != before->end() && it->second != value)
        fmt::print("{}: was {}, now {}\n", name, it->second, value);
    }
    // What was not asked for stays as it is in the list.
    if (!with_plans() || !only().empty()) now.insert(before->begin(), before->end());
  }
  const Status written = write_file(SLUICE_FINGERPRINTS, to_lines(now));
  fmt::print("{}\n",
             written.ok() ? fmt::format("{}: {} lines", SLUICE_FINGERPRINTS, now.size()) : written.message());
  return written.ok() ? 0 : 1;
}

}  // namespace
}  // namespace sluice::core

int main(int argc, char** argv) {
  bool rewrite = false;
  for (int i = 1; i < argc; ++i) {
    sluice::core::with_plans() |= argv[i] == std::string_view("--plans");
    rewrite |= argv[i] == std::string_view("--update");
    if (const std::string_view text = argv[i]; text.starts_with("--only="))
      sluice::core::only() = text.substr(text.find('=') + 1);
  }
  if (rewrite) return sluice::core::update();
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
