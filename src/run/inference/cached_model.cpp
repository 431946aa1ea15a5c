// SPDX-License-Identifier: Apache-2.0
#include "run/inference/cached_model.h"

#include <algorithm>

#include "base/bytes.h"
#include "base/parallel.h"
#include "run/inference/standing_start.h"
#include "search/refusal.h"

namespace sluice::core {
namespace {

// Memory in use is read after so many passes: reading it takes as long as a small model's pass.
constexpr int64_t kPassesPerCheck = 64;

// Plans both, with so much room for prompts.
Status plan_with_room(const BytesByTier& room, const Profile& profile, GenerationPlans& plans) {
  PlanRequest request;
  request.caps = plans.setup.caps;
  request.threads = search_threads();
  request.boundary_bytes = room;
  request.experts = ExpertLoads::Faster;
  Stage& main = plans.stages.main;
  SLUICE_ASSIGN(main.plan, make_plan(main.model.program, profile, request));
  return plan_beside(plans.stages, room, profile);
}

// A refusal of the planner, with what would take less here.
Error refused(const Error& e) {
  const auto& shortage = e.shortage;
  if (!shortage || !shortage->need_bytes) return e;
  Error out = e;
  out.message = fmt::format(
      "{} memory: the smallest cap that works is {}, {} was given. Raise it, or take fewer texts at once "
      "(--batch), "
      "shorter ones (--tokens), or fewer tokens of a prompt at once (--prompt-tokens)",
      shortage->tier, format_bytes(*shortage->need_bytes), format_bytes(shortage->given_bytes));
  return out;
}

}  // namespace

Result<GenerationPlans> plan_generation(GenerationSetup setup, const Profile& profile) {
  GenerationPlans plans;
  const GenerationSetup& s = plans.setup = std::move(setup);
  SLUICE_TRY(check_length(s.model, s.capacity, "tokens of a text, prompt and all,"));
  const GenerationShape tokens_shape{.rows = s.rows, .capacity = s.capacity, .draws = s.draws};
  const GenerationShape prompts_shape{.rows = s.prompt_rows(),
                                      .new_tokens = s.prompt_tokens,
                                      .capacity = s.capacity,
                                      .slots = s.rows > s.prompt_rows() ? s.rows : 0,
                                      .copies = s.copies,
                                      .draws = s.draws};
  plans.stages.main = {build_generation(s.model, tokens_shape, s.numerics), {}, "tokens"};
  plans.stages.beside.push_back(
      {build_generation(s.model, prompts_shape, s.numerics), {}, std::string(kPrompts)});
  const Stage& tokens = plans.stages.main;
  // Planning puts new stages beside the main one.
  const auto prompts = [&]() -> const Program& { return plans.stages.at(kPrompts).model.program; };
  SLUICE_ASSIGN(const BytesByTier room, room_beside(prompts(), profile));
  if (const Status planned = plan_with_room(room, profile, plans); !planned.ok())
    return refused(planned.error());
  const bool streams = std::ranges::any_of(tokens.plan.actions, [&](const Action& a) {
    return a.loads() && tokens.model.program.object(a.object).persistent;
  });
  if (!streams) return plans;
  // The room is for prompts when every weight is elsewhere. Beside those that stay they may need less, and
  // then more of them can.
  const auto needed = room_beside(prompts(), tokens, profile);
  if (!needed.ok() || (*needed)[kDevice] >= room[kDevice]) return plans;
  GenerationPlans closer = plans;
  if (plan_with_room(*needed, profile, closer).ok() &&
      closer.stages.main.plan.makespan_ns < tokens.plan.makespan_ns) {
    return closer;
  }
  return plans;
}

Result<std::unique_ptr<CachedModel>> CachedModel::open(const GenerationPlans& plans, const Machine& machine,
                                                       const WeightsFrom& weights, Observer& observer) {
  const GenerationSetup& s = plans.setup;
  SLUICE_ASSIGN(EmbeddingRows embedding, EmbeddingRows::open(s.model, s.numerics.compute, weights));
  if (s.caps[kHost] == kUnlimited) embedding.keep_random();
  SLUICE_ASSIGN(Loaded loaded, load(machine, plans.stages, s.caps, weights, observer));
  return std::unique_ptr<CachedModel>(new CachedModel(plans, std::move(embedding), std::move(loaded)));
}

CachedModel::CachedModel(const GenerationPlans& plans, EmbeddingRows embedding, Loaded loaded)
    : embedding_(std::move(embedding)),
      loaded_(std::move(loaded)),
      texts_(
          TextPass(plans.stages.main.model, loaded_.main()),
          TextPass(plans.stages.at(kPrompts).model, loaded_.at(kPrompts)),
          [this](std::span<const int32_t> tokens, std::vector<std::byte>& rows) {
            return embedding_.read(tokens, rows);
          },
          [this](bool prompts) { return note_pass(prompts); }) {}

Status CachedModel::note_pass(bool prompts) {
  if (!prompts) {
    const LoadedBytes loaded = loaded_.main().loaded_bytes();
    loads_.all += loaded.all;
    loads_.chosen += loaded.chosen;
  }
  return passes_++ % kPassesPerCheck == 0 ? loaded_.check_caps() : Status();
}

}  // namespace sluice::core
