// SPDX-License-Identifier: Apache-2.0
#include "equivalence/rig/rig.h"

#include <algorithm>
#include <random>

#include "checkpoint/weights.h"

namespace sluice::core::rig {

int64_t Tokens::counted() const {
  return std::count_if(targets.begin(), targets.end(), [](int32_t t) { return t >= 0; });
}

Tokens random_tokens(const StepShape& shape, int64_t vocab, uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto below = [&](int64_t n) { return int64_t(random() % uint64_t(n)); };
  Tokens out;
  int64_t left = 0;  // of the document, with this token
  for (int64_t i = 0; i < shape.tokens(); ++i) {
    const bool row_begins = i % shape.seq_len == 0;
    if (row_begins || (shape.packed && left == 0)) {
      left = shape.packed ? 1 + below(shape.seq_len * 3 / 2) : shape.seq_len;
      out.positions.push_back(0);
    } else {
      out.positions.push_back(out.positions.back() + 1);
    }
    --left;
    out.tokens.push_back(int32_t(below(vocab)));
    const bool last = shape.packed && (left == 0 || (i + 1) % shape.seq_len == 0);
    out.targets.push_back(last || i % 11 == 3 ? -1 : int32_t(below(vocab)));
  }
  return out;
}

Profile profile_of(const Backend& backend) {
  Profile profile;
  profile.name = "test";
  profile.set_bytes_per_s(1e11);
  profile.set_lanes(backend.lanes(), 1e11);
  if (backend.lanes().find({kDevice, kDevice, true}))
    profile.network = {.bytes_per_s = 1e9, .latency_ns = 1000};
  profile.transfer_latency_ns = 200;
  profile.alignment = backend.alignment();
  profile.workspace_bytes = [&backend](const Op& op) { return backend.workspace_bytes(op); };
  return profile;
}

void poison(Backend& backend, const BytesByTier& bytes) {
  static const std::vector<std::byte> nans(size_t{1} << 16, std::byte{0xff});
  for (const Tier tier : bytes.tiers()) {
    for (int64_t at = 0; at < bytes[tier]; at += std::ssize(nans))
      must(backend.upload({tier, at}, nans.data(), std::min<int64_t>(std::ssize(nans), bytes[tier] - at)));
  }
}

ObjectId find(const Program& program, std::string_view name) {
  for (uint32_t o = 0; o < program.objects().size(); ++o) {
    if (program.objects()[o].name == name) return ObjectId(o);
  }
  throw std::runtime_error("no object " + std::string(name));
}

std::vector<std::byte> read_bytes(const Executor& executor, ObjectId id) {
  std::vector<std::byte> out(size_t(executor.program().object(id).bytes));
  must(executor.read(id, out));
  return out;
}

std::vector<float> read_floats(const Executor& executor, ObjectId id) {
  const Object& object = executor.program().object(id);
  std::vector<float> out(size_t(object.elements()));
  with_type(object.format.type, [&]<class T>(T) {
    std::vector<T> raw(out.size());
    must(executor.read(id, std::as_writable_bytes(std::span(raw))));
    std::transform(raw.begin(), raw.end(), out.begin(), [](T v) { return float(v); });
  });
  return out;
}

void write_floats(Executor& executor, ObjectId id, const std::vector<float>& values) {
  must(executor.write(id, std::as_bytes(std::span(values))));
}

void write_tokens(Executor& executor, const BuiltProgram& model, const Tokens& tokens) {
  Rows rows(model.layout, int64_t(tokens.tokens.size()));
  std::ranges::copy(tokens.tokens, rows.column(BatchColumn::Tokens).begin());
  std::ranges::copy(tokens.targets, rows.column(BatchColumn::Targets).begin());
  std::ranges::copy(tokens.positions, rows.column(BatchColumn::Positions).begin());
  if (model.layout.has(BatchColumn::Weights))
    std::ranges::copy(tokens.weights, rows.column<float>(BatchColumn::Weights).begin());
  std::vector<std::byte> staging;
  must(feed_rows(rows, model, executor, staging));
}

void write_args(Executor& executor, const BuiltProgram& model, const StepArgs& args, int64_t first_row) {
  const DropoutArgs all{args, args.step, first_row};
  const int64_t read = model.program.object(model.args).bytes;
  must(executor.write(model.args, std::as_bytes(std::span(&all, 1)).first(size_t(read))));
}

StepArgs args_for(int64_t step, int64_t counted, float learning_rate) {
  StepArgs args{};
  args.step = args.updates = step;
  args.seed = 7;
  args.learning_rate = learning_rate;
  args.loss_scale = 1.0f / float(counted);
  args.update = 1;
  return args;
}

Losses read_losses(const Executor& executor, const BuiltProgram& model, const Tokens& tokens) {
  float clip[2];
  double loss = 0;
  for (const ObjectId of_replica : model.loss) {
    LossSums sums{};
    must(executor.read(of_replica, std::as_writable_bytes(std::span(&sums, 1))));
    loss += sums.loss;
  }
  must(executor.read(model.clip, std::as_writable_bytes(std::span(clip))));
  return {loss / double(tokens.counted()), clip[0], clip[1]};
}

State read_state(const Executor& executor, std::initializer_list<ObjectKind> kinds) {
  State out;
  const auto& objects = executor.program().objects();
  for (uint32_t o = 0; o < objects.size(); ++o) {
    if (std::find(kinds.begin(), kinds.end(), objects[o].kind) == kinds.end()) continue;
    out[objects[o].name] = read_bytes(executor, ObjectId(o));
  }
  return out;
}

Rig::Rig(const Question& request, Stages stages, std::unique_ptr<Backend>&& backend)
    : request_(request), backend_(std::move(backend)), stages_(std::move(stages)) {
  arenas_ = must(backend_->reserve(stages_.arena_bytes()));
  must(backend_->prepare(all_ops(stages_)));
  poison(*backend_, stages_.arena_bytes());
  const auto executor = [&](const Stage& s) {
    return std::make_unique<Executor>(s.model.program, s.plan, *backend_, arenas_);
  };
  training_ = executor(stages_.main);
  if (const Stage* flush = stages_.find(kFlush)) flush_ = executor(*flush);
}

Rig::Rig(const Question& request, std::unique_ptr<Backend>&& backend)
    : Rig(request, must(make_stages(request, profile_of(*backend))), std::move(backend)) {}

void Rig::initialize(uint64_t seed) {
  pending_ = false;
  must(sluice::core::initialize(model(), seed, *training_, [](int64_t, int64_t) {}));
}

Losses Rig::step(int64_t step, const Tokens& tokens, int64_t counted) {
  const bool deferred = request_.optimizer.deferred;
  const int64_t updated = deferred ? std::max<int64_t>(1, step - 1) : step;
  StepArgs args = args_for(updated, counted > 0 ? counted : tokens.counted(), learning_rate);
  args.update = deferred && !pending_ ? 0 : 1;
  write_tokens(*training_, model(), tokens);
  write_args(*training_, model(), args, first_row);
  must(training_->step());
  pending_ = deferred;
  return read_losses(*training_, model(), tokens);
}

void Rig::flush(int64_t step) {
  if (!pending_) return;
  write_args(*flush_, stages_.at(kFlush).model, args_for(step, 1, learning_rate));
  must(flush_->step());
  pending_ = false;
}

Losses Rig::measure(const Tokens& tokens, std::span<const Amendment> changes) {
  StepArgs args = args_for(1, tokens.counted());
  args.update = 0;
  write_tokens(*training_, model(), tokens);
  write_args(*training_, model(), args);
  must(training_->step(nullptr, changes));
  return read_losses(*training_, model(), tokens);
}

std::vector<float> Rig::log_probs() const {
  std::vector<float> out;
  for (const auto& round : model().log_probs) {
    for (const ObjectId chunk : round) {
      const std::vector<float> values = read_floats(*training_, chunk);
      out.insert(out.end(), values.begin(), values.end());
    }
  }
  return out;
}

History run_steps(Rig& rig, int64_t steps, const std::set<int64_t>& flush_after) {
  rig.initialize();
  History out;
  for (int64_t step = 1; step <= steps; ++step) {
    const Question& r = rig.request();
    const Losses losses = rig.step(step, random_tokens(r.shape, r.model.vocab, uint64_t(step)));
    out.losses.push_back(losses.loss);
    out.norms.push_back(losses.norm);
    if (flush_after.count(step)) rig.flush(step);
  }
  rig.flush(steps);
  out.state = read_state(rig.training(), {ObjectKind::Param, ObjectKind::OptState});
  return out;
}

}  // namespace sluice::core::rig
