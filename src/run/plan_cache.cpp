// SPDX-License-Identifier: Apache-2.0
#include "run/plan_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <system_error>

#include "base/checksum.h"
#include "io/file.h"
#include "io/sealed.h"
#include "machine/machine.h"
#include "plan/store.h"
#include "run/fields.h"

namespace sluice::core {
namespace {

// A planner that was changed makes other plans. Empty: unknown, then nothing is kept.
const std::string& this_program() {
  static const std::string sum = [] {
    const auto checksum = checksum_of_file("/proc/self/exe");
    return checksum.ok() ? checksum->text() : "";
  }();
  return sum;
}

void add_profile(SealedRequest& request, const Profile& profile) {
  visit_fields(profile, [&](std::string_view name, const auto& value) {
    if (name != "overhead_bytes") request.add(name, value);
  });
  // Not of the host, where what was made for a little more is good, too (see good_for()).
  for (const Tier tier : kTiers) {
    if (tier != kHost)
      request.add(fmt::format("overhead of {}", name_of(tier)), profile.overhead_bytes[tier]);
  }
}

void add_caps(SealedRequest& request, const BytesByTier& caps) {
  for (const Tier tier : kTiers) request.add(fmt::format("cap of {}", name_of(tier)), caps[tier]);
}

void add_model(SealedRequest& request, const ModelSpec& model, const Numerics& numerics,
               const OptimizerConfig& optimizer) {
  request.add("model", text(model));
  visit_fields(numerics, [&](std::string_view name, const auto& value) { request.add(name, value); });
  request.add("optimizer", optimizer.optimizer->name);
  for (const double value : optimizer.values) request.add("hyperparameter", value);
}

SealedRequest in_full(const StageRequest& r, const Profile& profile, const Stages& stages) {
  SealedRequest request("plans 1");
  request.add("made by", this_program());
  add_model(request, r.model, r.numerics, r.optimizer);
  visit_fields(r.shape, [&](std::string_view name, const auto& value) { request.add(name, value); });
  add_caps(request, r.caps);
  request.add("quick", r.quick);
  add_profile(request, profile);
  for_each_stage(stages, [&](const Stage& s) {
    const TaskCosts costs = cost_of(s.model.program, profile);
    request.add("program", fmt::format("{:016x}", s.model.program.hash()));
    request.add("costs", checksum_of(std::as_bytes(std::span(costs.ns))).text());
    request.add("workspaces", checksum_of(std::as_bytes(std::span(costs.workspace_bytes))).text());
  });
  return request;
}

SealedRequest in_full(const ShapeSubject& subject, const ShapeRequest& r, const Profile& profile) {
  SealedRequest request("shape 1");
  request.add("made by", this_program());
  request.add("seq_len", r.seq_len).add("tokens_per_step", r.tokens_per_step).add("packed", r.packed);
  request.add("chunk_tokens", r.chunk_tokens).add("rounds", r.rounds);
  request.add("first_round_chunks", r.first_round_chunks).add("head_tokens", r.head_tokens);
  request.add("least", r.least).add("may be late", subject.may_be_late);
  add_caps(request, r.caps);
  add_profile(request, profile);
  for (const auto& [op, ns] : std::map(profile.measured_ns.begin(), profile.measured_ns.end()))
    request.add(op, ns);
  // Workspaces depend on how the backend was asked to work: those of one sequence in one piece tell.
  const StepShape whole{r.seq_len, r.seq_len, 1, 1, r.seq_len, r.packed};
  const Program program = subject.program(whole, false);
  request.add("program", fmt::format("{:016x}", program.hash()));
  for (const Op& op : distinct_ops(program)) request.add(text(op), profile.cost(op).workspace_bytes);
  return request;
}

// Whether what was made for a process that holds `made_for_bytes` on the host beside its arenas is good for
// this one, which holds no more, and hardly less. Where it is not, another search is nothing to speak of:
// NotFound.
Status good_for(int64_t made_for_bytes, const BytesByTier& held_bytes, const Profile& profile) {
  if (made_for_bytes >= held_bytes[kHost] && made_for_bytes <= profile.overhead_bytes[kHost] + kOverheadGrain)
    return {};
  return error(ErrorKind::NotFound, "it is for a process of {} bytes", made_for_bytes);
}

// Words of a plan reach terminals and pages.
bool plain(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c >= ' ' && c <= '~'; });
}

// Whether the plan fits the request, as far as that is not proved by verify().
Status check(const Plan& plan, int64_t host_overhead_bytes, const StageRequest& r, const Profile& profile) {
  if (plan.machine != profile.name || plan.alignment != profile.alignment || !(plan.lanes == profile.lanes()))
    return error("it is for another machine, {}", plain(plan.machine) ? plan.machine : "without a name");
  BytesByTier overhead_bytes = profile.overhead_bytes;
  overhead_bytes[kHost] = host_overhead_bytes;
  for (const Tier tier : plan.lanes.tiers()) {
    if (r.caps[tier] == kUnlimited) continue;
    if (plan.arenas[tier].bytes > r.caps[tier] - overhead_bytes[tier]) {
      return error("its {} arena of {} bytes does not fit the cap of {}", name_of(tier),
                   plan.arenas[tier].bytes, r.caps[tier]);
    }
  }
  if (!plain(plan.policy)) return error("its words are none");
  return {};
}

std::string bytes_of(int64_t number) {
  std::string bytes(sizeof(number), 0);
  std::memcpy(bytes.data(), &number, sizeof(number));
  return bytes;
}

Result<int64_t> take_number(std::string_view& rest) {
  int64_t number = 0;
  if (rest.size() < sizeof(number)) return error("it is cut short");
  std::memcpy(&number, rest.data(), sizeof(number));
  rest.remove_prefix(sizeof(number));
  return number;
}

// What the process held on the host when these were made, and every plan with its length before it.
Result<std::vector<Plan>> plans_in(std::string_view bytes, const StageRequest& r, const Profile& profile,
                                   const Stages& stages) {
  SLUICE_ASSIGN(const int64_t host_overhead_bytes, take_number(bytes));
  SLUICE_TRY(good_for(host_overhead_bytes, r.held_bytes, profile));
  std::vector<Plan> plans;
  Status status;
  const auto take = [&](const Stage& s) -> Status {
    SLUICE_ASSIGN(const int64_t size, take_number(bytes));
    if (size < 0 || uint64_t(size) > bytes.size()) return error("it is cut short");
    SLUICE_ASSIGN(Plan plan, plan_from_bytes(bytes.substr(0, size_t(size))));
    bytes.remove_prefix(size_t(size));
    SLUICE_TRY(check(plan, host_overhead_bytes, r, profile));
    SLUICE_TRY(verify(s.model.program, plan, cost_of(s.model.program, profile).workspace_bytes));
    if (!plans.empty())
      SLUICE_TRY(verify_beside(s.model.program, plan, stages.training.model.program, plans.front()));
    plans.push_back(std::move(plan));
    return {};
  };
  for_each_stage(stages, [&](const Stage& s) {
    if (status.ok()) status = take(s);
  });
  SLUICE_TRY(status);
  if (!bytes.empty()) return error("{} bytes of it are too many", bytes.size());
  return plans;
}

// What json holds for a shape; an error in words.
Result<ShapeChoice> shape_in(std::string_view text, const ShapeRequest& r, const Profile& profile,
                             const BytesByTier& held_bytes) {
  const auto json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_object()) return error("it is no JSON object");
  ShapeChoice choice;
  Status read;
  const auto take = [&](const char* name, auto& value) {
    using Value = std::remove_reference_t<decltype(value)>;
    const auto it = json.find(name);
    bool fits = it != json.end();
    if constexpr (std::same_as<Value, bool>) fits = fits && it->is_boolean();
    if constexpr (std::same_as<Value, int64_t>) {
      fits = fits && it->is_number_integer() &&
             !(it->is_number_unsigned() && it->template get<uint64_t>() > INT64_MAX);
    }
    if constexpr (std::same_as<Value, std::string>) fits = fits && it->is_string();
    if (fits) {
      it->get_to(value);
    } else if (read.ok()) {
      read = error("{} is missing or of another type", name);
    }
  };
  int64_t host_overhead_bytes = 0;
  take("host_overhead_bytes", host_overhead_bytes);
  visit_fields(choice.shape, take);
  take("late_moments", choice.late_moments);
  take("why", choice.why);
  SLUICE_TRY(read);
  SLUICE_TRY(good_for(host_overhead_bytes, held_bytes, profile));
  const StepShape& s = choice.shape;
  SLUICE_TRY(validate(s));
  if (s.seq_len != r.seq_len || s.tokens() != r.tokens_per_step || s.packed != r.packed) {
    return error("it is a step of {} tokens in sequences of {}", s.tokens(), s.seq_len);
  }
  const std::pair<int64_t, int64_t> given[] = {
      {r.chunk_tokens, s.chunk_tokens}, {r.rounds, s.rounds}, {r.head_tokens, s.head_tokens}};
  for (const auto& [asked, is] : given) {
    if (asked != 0 && asked != is) return error("it is not what was asked for: {}", core::text(s));
  }
  if (!plain(choice.why)) return error("its words are none");
  return choice;
}

// Says so when a file is there and not believed.
void say(const std::filesystem::path& path, const Error& e, Observer& observer) {
  if (e.kind == ErrorKind::NotFound) return;
  const bool named = e.message.starts_with(path.string());
  observer.warned(fmt::format("{}{}; it is made anew", named ? "" : path.string() + ": ", e.message));
}

}  // namespace

void PlanCache::write(const SealedRequest& request, std::string_view content) const {
  if (this_program().empty() || !make_directories(folder_).ok() ||
      !write_sealed(path_of(request), request, content).ok())
    return;
  std::vector<std::pair<std::filesystem::file_time_type, std::filesystem::path>> files;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder_, ignored)) {
    files.emplace_back(entry.last_write_time(ignored), entry.path());
  }
  if (files.size() <= most_) return;
  std::sort(files.begin(), files.end());
  for (size_t i = 0; i < files.size() - most_; ++i) std::filesystem::remove(files[i].second, ignored);
}

std::filesystem::path PlanCache::path_of(const SealedRequest& request) const {
  const std::string_view kind = request.kind();
  return folder_ / fmt::format("{}-{}", kind.substr(0, kind.find(' ')), request.key());
}

bool PlanCache::find(const StageRequest& request, const Profile& profile, Stages& stages,
                     Observer& observer) const {
  const SealedRequest in_words = in_full(request, profile, stages);
  const auto plans = [&]() -> Result<std::vector<Plan>> {
    SLUICE_ASSIGN(const std::string bytes, read_sealed(path_of(in_words), in_words));
    return plans_in(bytes, request, profile, stages);
  }();
  if (!plans.ok()) {
    say(path_of(in_words), plans.error(), observer);
    return false;
  }
  size_t i = 0;
  for_each_stage(stages, [&](Stage& s) { s.plan = (*plans)[i++]; });
  return true;
}

void PlanCache::keep(const StageRequest& request, const Profile& profile, const Stages& stages) const {
  std::string all = bytes_of(profile.overhead_bytes[kHost]);
  for_each_stage(stages, [&](const Stage& s) {
    const std::string bytes = to_bytes(s.plan);
    all += bytes_of(int64_t(bytes.size()));
    all += bytes;
  });
  write(in_full(request, profile, stages), all);
}

std::optional<ShapeChoice> PlanCache::find(const ShapeSubject& subject, const ShapeRequest& request,
                                           const Profile& profile, const BytesByTier& held_bytes,
                                           Observer& observer) const {
  const SealedRequest in_words = in_full(subject, request, profile);
  auto choice = [&]() -> Result<ShapeChoice> {
    SLUICE_ASSIGN(const std::string bytes, read_sealed(path_of(in_words), in_words));
    return shape_in(bytes, request, profile, held_bytes);
  }();
  if (choice.ok()) return std::move(*choice);
  say(path_of(in_words), choice.error(), observer);
  return std::nullopt;
}

void PlanCache::keep(const ShapeSubject& subject, const ShapeRequest& request, const Profile& profile,
                     const ShapeChoice& choice) const {
  nlohmann::json json = {{"host_overhead_bytes", profile.overhead_bytes[kHost]},
                         {"late_moments", choice.late_moments},
                         {"why", choice.why}};
  visit_fields(choice.shape, [&](const char* name, const auto& value) { json[name] = value; });
  write(in_full(subject, request, profile), json.dump(1) + "\n");
}

}  // namespace sluice::core
