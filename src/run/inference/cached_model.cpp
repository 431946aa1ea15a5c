// SPDX-License-Identifier: Apache-2.0
#include "run/inference/cached_model.h"

#include <algorithm>

#include "base/bytes.h"
#include "base/parallel.h"
#include "run/inference/standing_start.h"
#include "run/passes/caps.h"

namespace sluice::core {
namespace {

// What is in use is asked for after so many passes: asking takes as long as a small model's pass.
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
  const std::string_view need = e.detail("need");
  if (e.kind != ErrorKind::DoesNotFit || need.empty()) return e;
  const auto bytes = [&](std::string_view detail) {
    return format_bytes(std::stoll(std::string(e.detail(detail))));
  };
  Error out = e;
  out.message = fmt::format(
      "{} memory: the smallest cap that works is {}, {} was given. Raise it, or take fewer texts at once "
      "(--batch), "
      "shorter ones (--tokens), or fewer tokens of a prompt at once (--prompt-tokens)",
      e.detail("tier"), bytes("need"), bytes("given"));
  return out;
}

}  // namespace

Result<GenerationPlans> plan_generation(GenerationSetup setup, const Profile& profile) {
  GenerationPlans plans;
  const GenerationSetup& s = plans.setup = std::move(setup);
  SLUICE_TRY(check_length(s.model, s.capacity, "tokens of a text, prompt and all,"));
  const auto build = [&](int64_t new_tokens) {
    return build_generation(s.model, {s.rows, new_tokens, s.capacity}, s.numerics);
  };
  plans.stages.main = {build(1), {}, "tokens"};
  plans.stages.beside.push_back({build(s.prompt_tokens), {}, std::string(kPrompts)});
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
                                                       const std::filesystem::path& weights, uint64_t seed,
                                                       Observer& observer) {
  std::unique_ptr<CachedModel> model(new CachedModel(plans));
  SLUICE_TRY(model->start(machine, weights, seed, observer));
  return model;
}

Status CachedModel::start(const Machine& machine, const std::filesystem::path& weights, uint64_t seed,
                          Observer& observer) {
  const Stage& tokens = plans_.stages.main;
  SLUICE_ASSIGN(backend_, machine.make());
  SLUICE_ASSIGN(const Arenas arenas,
                take_memory(*backend_, tokens.plan, plans_.stages.arena_bytes(), observer));
  SLUICE_TRY(backend_->prepare(all_ops(plans_.stages)));
  const auto executor_of = [&](const Stage& stage) {
    return std::make_unique<Executor>(stage.model.program, stage.plan, *backend_, arenas);
  };
  const Model& model = tokens.model;
  const Stage& prompts = plans_.stages.at(kPrompts);
  token_executor_ = executor_of(tokens);
  prompt_executor_ = executor_of(prompts);
  tokens_.emplace(model, *token_executor_);
  prompts_.emplace(prompts.model, *prompt_executor_);
  SLUICE_ASSIGN(embedding_,
                EmbeddingRows::open(plans_.setup.model, plans_.setup.numerics.compute, weights, seed));
  SLUICE_TRY(make_ready(*backend_, model, *token_executor_, weights, seed, observer));
  return check_caps(*backend_, memory(), plans_.setup.caps);
}

Result<std::span<const float>> CachedModel::pass(bool prompts, std::span<const RowInput> inputs) {
  const TextPass::Embed embed = [this](std::span<const int32_t> tokens, std::vector<std::byte>& rows) {
    return embedding_->read(tokens, rows);
  };
  SLUICE_ASSIGN(const std::span<const float> logits, (prompts ? *prompts_ : *tokens_).run(inputs, embed));
  if (!prompts) {
    const LoadedBytes loaded = token_executor_->loaded_bytes();
    loaded_.all += loaded.all;
    loaded_.chosen += loaded.chosen;
  }
  if (passes_++ % kPassesPerCheck == 0) SLUICE_TRY(check_caps(*backend_, memory(), plans_.setup.caps));
  return logits;
}

BytesByTier CachedModel::memory() {
  const BytesByTier bytes = backend_->memory();
  raise_to(bytes, peak_);
  return bytes;
}

}  // namespace sluice::core
