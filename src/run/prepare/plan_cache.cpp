// SPDX-License-Identifier: Apache-2.0
#include "run/prepare/plan_cache.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <system_error>

#include "base/checksum.h"
#include "io/file.h"
#include "io/sealed.h"
#include "setup/fields.h"
#include "setup/kept_plans.h"

namespace sluice::core {
namespace {

void add_profile(SealedRequest& request, const Profile& profile) {
  visit_fields(profile, [&](std::string_view name, const auto& value) {
    if (name != "overhead_bytes") request.add(name, value);
  });
  // Not of the host, where what was made for a little more is good, too (see good_for()).
  for (const Tier tier : tiers_of(profile.devices())) {
    if (tier != kHost)
      request.add(fmt::format("overhead of {}", name_of(tier)), profile.overhead_bytes[tier]);
  }
}

void add_caps(SealedRequest& request, const BytesByTier& caps, const Profile& profile) {
  for (const Tier tier : tiers_of(profile.devices()))
    request.add(fmt::format("cap of {}", name_of(tier)), caps[tier]);
}

void add_model(SealedRequest& request, const ModelSpec& model, const Numerics& numerics,
               const OptimizerConfig& optimizer) {
  request.add("model", to_text(model));
  visit_fields(numerics, [&](std::string_view name, const auto& value) { request.add(name, value); });
  if (model.products.w) request.add("narrow_products", true);
  if (model.narrow_head) request.add("narrow_head", true);
  request.add("optimizer", optimizer.optimizer->name);
  for (const double value : optimizer.values) request.add("hyperparameter", value);
}

SealedRequest in_full(const Question& r, const Profile& profile, const Stages& stages) {
  SealedRequest request("plans 3");
  request.add("made by", made_by());
  add_model(request, r.model, r.numerics, r.optimizer);
  visit_fields(r.shape, [&](std::string_view name, const auto& value) { request.add(name, value); });
  add_caps(request, r.caps, profile);
  request.add("quick", r.quick);
  add_profile(request, profile);
  for_each_stage(stages, [&](const Stage& s) {
    if (s.optional) return;  // whether it is there, the others decide
    const TaskCosts costs = cost_of(s.model.program, profile);
    request.add("program", fmt::format("{:016x}", s.model.program.hash()));
    request.add("costs", checksum_of(std::as_bytes(std::span(costs.ns))).to_text());
    request.add("workspaces", checksum_of(std::as_bytes(std::span(costs.workspace_bytes))).to_text());
  });
  return request;
}

SealedRequest in_full(const ShapeSubject& subject, const Question& q, const Profile& profile) {
  const Cut& r = q.cut;
  SealedRequest request("shape 3");
  request.add("made by", made_by());
  request.add("seq_len", r.seq_len).add("tokens_per_step", r.tokens_per_step).add("packed", r.packed);
  request.add("chunk_tokens", r.chunk_tokens).add("rounds", r.rounds);
  request.add("first_round_chunks", r.first_round_chunks).add("head_tokens", r.head_tokens);
  if (r.whole) request.add("whole", r.whole);
  request.add("least", q.least).add("may be late", subject.may_be_late);
  add_caps(request, q.caps, profile);
  if (subject.room_between_steps) {
    const StepShape one{r.seq_len, r.seq_len, 1, 1, r.seq_len, r.packed};
    const BytesByTier room = subject.room_between_steps(one);
    for (const Tier tier : tiers_of(profile.devices()))
      request.add(fmt::format("room of {}", name_of(tier)), room[tier]);
  }
  add_profile(request, profile);
  for (const auto& [op, ns] : std::map(profile.measured_ns.begin(), profile.measured_ns.end()))
    request.add(op, ns);
  // Workspaces depend on how the backend was asked to work: those of one sequence in one piece tell.
  const StepShape whole{r.seq_len, r.seq_len, 1, 1, r.seq_len, r.packed};
  const Program program = subject.program(whole, false);
  request.add("program", fmt::format("{:016x}", program.hash()));
  for (const Op& op : distinct_ops(program)) request.add(to_text(op), profile.cost(op).workspace_bytes);
  return request;
}

std::string name_of_file(const SealedRequest& request) {
  const std::string_view kind = request.kind();
  return fmt::format("{}-{}", kind.substr(0, kind.find(' ')), request.key());
}

// Writes it to a folder, of which the newest `most` files stay.
void keep_in(const std::filesystem::path& folder, size_t most, const SealedRequest& request,
             std::string_view content) {
  if (folder.empty() || made_by().empty() || !make_directories(folder).ok() ||
      !write_sealed(folder / name_of_file(request), request, content).ok())
    return;
  std::vector<std::pair<std::filesystem::file_time_type, std::filesystem::path>> files;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
    files.emplace_back(entry.last_write_time(ignored), entry.path());
  }
  if (files.size() <= most) return;
  std::sort(files.begin(), files.end());
  for (size_t i = 0; i < files.size() - most; ++i) std::filesystem::remove(files[i].second, ignored);
}

// Says so when a file is there and not believed.
void say(const std::filesystem::path& path, const Error& e, Observer& observer) {
  if (e.kind == ErrorKind::NotFound) return;
  const bool named = e.message.starts_with(path.string());
  observer.warned(fmt::format("{}{}; it is made anew", named ? "" : path.string() + ": ", e.message));
}

}  // namespace

const std::string& made_by() {
  static const std::string sum = [] {
    Dl_info info{};
    const bool known = dladdr(reinterpret_cast<const void*>(&made_by), &info) != 0;
    const std::string_view file = known && info.dli_fname != nullptr ? info.dli_fname : "";
    // A program is named as it was called, which may be from another directory.
    const auto checksum = checksum_of_file(file.ends_with(".so") ? std::string(file) : "/proc/self/exe");
    return checksum.ok() ? checksum->to_text() : "";
  }();
  return sum;
}

Result<std::string> PlanCache::find(const SealedRequest& request) const {
  if (folder_.empty()) return error(ErrorKind::NotFound, "plans: nothing is kept");
  auto own = read_sealed(path_of(request), request);
  if (own.ok() || own.error().kind != ErrorKind::NotFound || shared_.empty()) return own;
  auto shared = read_sealed(shared_ / name_of_file(request), request);
  if (!shared.ok()) return own;
  keep_in(folder_, most_, request, *shared);
  return shared;
}

void PlanCache::keep(const SealedRequest& request, std::string_view content) const {
  constexpr size_t kMostShared = 1024;
  keep_in(folder_, most_, request, content);
  if (!folder_.empty()) keep_in(shared_, kMostShared, request, content);
}

std::filesystem::path PlanCache::path_of(const SealedRequest& request) const {
  return folder_ / name_of_file(request);
}

bool PlanCache::find(const Question& question, const Profile& profile, Stages& stages,
                     Observer& observer) const {
  const SealedRequest in_words = in_full(question, profile, stages);
  const auto plans = [&]() -> Result<std::vector<Plan>> {
    SLUICE_ASSIGN(const std::string bytes, find(in_words));
    return plans_in(bytes, stages, question, profile);
  }();
  if (!plans.ok()) {
    say(path_of(in_words), plans.error(), observer);
    return false;
  }
  stages.beside.resize(plans->size() - 1);
  size_t i = 0;
  for_each_stage(stages, [&](Stage& s) { s.plan = (*plans)[i++]; });
  return true;
}

void PlanCache::keep(const Question& question, const Profile& profile, const Stages& stages) const {
  keep(in_full(question, profile, stages), plans_as_bytes(stages, profile));
}

std::optional<ShapeChoice> PlanCache::find(const ShapeSubject& subject, const Question& question,
                                           const Profile& profile, Observer& observer) const {
  const SealedRequest in_words = in_full(subject, question, profile);
  auto choice = [&]() -> Result<ShapeChoice> {
    SLUICE_ASSIGN(const std::string bytes, find(in_words));
    return shape_in(bytes, question, profile);
  }();
  if (choice.ok()) return std::move(*choice);
  say(path_of(in_words), choice.error(), observer);
  return std::nullopt;
}

void PlanCache::keep(const ShapeSubject& subject, const Question& question, const Profile& profile,
                     const ShapeChoice& choice) const {
  keep(in_full(subject, question, profile), shape_as_text(choice, profile));
}

Result<Stages> make_stages(const Question& q, const Profile& profile, const PlanCache* cache,
                           Observer& observer) {
  Stages stages = build_stages(q);
  if (cache != nullptr && cache->find(q, profile, stages, observer)) return stages;
  Effort effort = q;
  effort.weigh_memory = cache != nullptr;  // what is kept has it, whoever plans first
  SLUICE_TRY(plan_stages(stages, q.caps, effort, profile));
  if (cache != nullptr) cache->keep(q, profile, stages);
  return stages;
}

}  // namespace sluice::core
