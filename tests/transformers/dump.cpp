// SPDX-License-Identifier: Apache-2.0
// What a configuration's first step computes, for a comparison with another implementation.
//
//   sluice_transformers_dump OUT_DIR CONFIG|- [key=value ...]
//
// Writes to OUT_DIR:
//   config.json, model.safetensors   the initial weights, or those of model.weights
//   step.safetensors                 loss (mean over targets), grad.<name>, logits of some rows
//   of the first
//                                    sequence's beginning, and which rows those are
//   batches.safetensors              tokens, targets and positions of all train.steps steps, [steps, rows,
//   seq_len]
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "base/parallel.h"
#include "checkpoint/embedding_rows.h"
#include "checkpoint/tensors.h"
#include "checkpoint/weights.h"
#include "config/files/load_config.h"
#include "io/file.h"
#include "io/safetensors.h"
#include "model/families/families.h"
#include "run/data/data.h"
#include "run/loaded/text_pass.h"
#include "run/session/session.h"

namespace sluice::core {
namespace {

using Path = std::filesystem::path;

template <class T>
std::span<const std::byte> bytes_of(const std::vector<T>& values) {
  return std::as_bytes(std::span(values));
}

Rows rows_of(const Prepared& p, const RunData& data, int64_t step) {
  Rows rows(p.stages.main.model.layout, p.shape.tokens());
  fill_rows(*data.train, step, 0, rows.part(0, rows.tokens()));
  return rows;
}

Status write_batches(const Prepared& p, const RunData& data, const Path& path) {
  const int64_t steps = std::max<int64_t>(1, p.config.train.steps), seq = p.shape.seq_len;
  const std::vector<int64_t> shape{steps, p.shape.tokens() / seq, seq};
  std::vector<TensorInfo> infos;
  const BatchLayout& layout = p.stages.main.model.layout;
  for (const BatchColumn column : layout.columns()) {
    const ColumnFacts& facts = facts_of(column);
    infos.push_back({std::string(facts.name), tensor_type(facts.type), shape});
  }
  SLUICE_ASSIGN(auto writer, SafeTensorsWriter::create(path, infos));
  for (int64_t step = 0; step < steps; ++step) {
    const Rows rows = rows_of(p, data, step);
    for (const BatchColumn column : layout.columns()) {
      const auto bytes = rows.bytes(column, 0, rows.tokens());
      SLUICE_TRY(writer.write(std::string(facts_of(column).name), step * int64_t(bytes.size()), bytes));
    }
  }
  return writer.commit();
}

Status write_args(Executor& executor, const BuiltProgram& model, float loss_scale) {
  StepArgs args{};
  args.step = args.updates = 1;
  args.loss_scale = loss_scale;
  return executor.write(model.args, std::as_bytes(std::span(&args, 1)));
}

// Gradients under the names of a checkpoint, with the shapes of its tensors.
std::vector<TensorInfo> gradients_of(const BuiltProgram& model) {
  std::vector<TensorInfo> out;
  for (const auto& [name, places] : weight_places(model)) {
    const WeightPlace& any = places.front();
    const Weight& weight = model.weights[any.weight];
    if (weight.trainable) out.push_back({name, TensorType::F32, any.source->shape(weight.matrix)});
  }
  return out;
}

// One step without an update, and the logits of `rows_of_logits` rows.
Status write_step(const Prepared& p, const RunData& data, Executor& training, Executor& sampling,
                  const Path& path) {
  const Rows rows = rows_of(p, data, 0);
  const BuiltProgram &model = p.stages.main.model, &sampler = p.stages.at(kSampling).model;
  std::vector<std::byte> staging;
  SLUICE_TRY(feed_rows(rows, model, training, staging));
  const auto counted =
      std::ranges::count_if(rows.column(BatchColumn::Targets), [](int32_t t) { return t >= 0; });
  const float loss_scale = 1.0f / float(counted);
  SLUICE_TRY(write_args(training, model, loss_scale));
  SLUICE_TRY(training.step());
  LossSums sums{};
  SLUICE_TRY(training.read(model.loss.front(), std::as_writable_bytes(std::span(&sums, 1))));
  const double loss = sums.loss * double{loss_scale};

  const int64_t window = sampler.capacity;
  const std::vector<int32_t> at_rows{0, 1, int32_t(window / 2), int32_t(window - 1)};
  const int64_t logit_rows = int64_t(at_rows.size());
  const std::vector<TensorInfo> gradients = gradients_of(model);
  std::vector<TensorInfo> infos{{"loss", TensorType::F64, {1}},
                                {"logit_rows", TensorType::I32, {logit_rows}},
                                {"logits", TensorType::F32, {logit_rows, p.model.vocab}}};
  const auto name_of_gradient = [](const TensorInfo& tensor) { return "grad." + tensor.name; };
  for (const TensorInfo& tensor : gradients) {
    infos.push_back(tensor);
    infos.back().name = name_of_gradient(tensor);
  }
  SLUICE_ASSIGN(auto writer, SafeTensorsWriter::create(path, infos));
  SLUICE_TRY(writer.write("loss", 0, std::as_bytes(std::span(&loss, 1))));
  SLUICE_TRY(writer.write("logit_rows", 0, bytes_of(at_rows)));
  for (const TensorInfo& tensor : gradients) {
    SLUICE_ASSIGN(const std::vector<float> values,
                  read_tensor(model, {TensorKind::Gradient}, tensor.name, training));
    SLUICE_TRY(writer.write(name_of_gradient(tensor), 0, bytes_of(values)));
  }
  SLUICE_ASSIGN(EmbeddingRows embedding,
                EmbeddingRows::open(p.model, p.numerics.compute,
                                    {p.config.model.weights, "", uint64_t(p.config.train.seed)}));
  const auto embed = [&](std::span<const int32_t> tokens, std::vector<std::byte>& out) {
    return embedding.read(tokens, out);
  };
  TextPass pass(sampler, sampling);
  SLUICE_TRY(pass.forget());
  const std::span<const int32_t> text = rows.column(BatchColumn::Tokens);
  int64_t held = 0;
  for (int64_t i = 0; i < logit_rows; ++i) {
    std::span<const float> logits;
    while (held <= at_rows[size_t(i)]) {
      const int64_t count = std::min(pass.new_tokens(), at_rows[size_t(i)] + 1 - held);
      const RowInput input{0, held, text.subspan(size_t(held), size_t(count))};
      SLUICE_TRY(pass.run(std::span(&input, 1), {}, {}, embed));
      logits = pass.logits(0);
      held += count;
    }
    SLUICE_TRY(writer.write("logits", i * p.model.vocab * 4, std::as_bytes(logits)));
  }
  return writer.commit();
}

Status dump(const Path& out, const std::string& config_path, std::vector<std::string> settings) {
  // A deferred update leaves the gradients of a step where they can be read.
  settings.emplace_back("train.deferred_update=on");
  SLUICE_ASSIGN(RunConfig config, load_config(config_path, settings));
  SLUICE_ASSIGN(Prepared p, prepare(std::move(config), "", false));
  Question request{p, {.threads = search_threads()}, p.shape};
  request.caps = p.config.caps;
  request.caps[kDevice] = std::min(request.caps[kDevice], p.machine.device_total_bytes);
  request.between.push_back({kSampling, std::min<int64_t>(p.shape.seq_len, 512)});
  SLUICE_ASSIGN(p.stages, make_stages(request, p.machine.profile));
  SLUICE_TRY(make_directories(out));
  SLUICE_TRY(write_file(out / "config.json", to_json(p.model)));
  SLUICE_ASSIGN(const RunData data, open_data(p.config, p.model.vocab));
  SLUICE_TRY(write_batches(p, data, out / "batches.safetensors"));

  SLUICE_ASSIGN(const std::unique_ptr<Backend> backend, p.machine.make());
  SLUICE_ASSIGN(const Arenas arenas, backend->reserve(p.stages.arena_bytes()));
  SLUICE_TRY(backend->prepare(all_ops(p.stages)));
  const Stage &training_stage = p.stages.main, &sampling_stage = p.stages.at(kSampling);
  Executor training(training_stage.model.program, training_stage.plan, *backend, arenas);
  Executor sampling(sampling_stage.model.program, sampling_stage.plan, *backend, arenas);
  SLUICE_TRY(
      initialize(training_stage.model, uint64_t(p.config.train.seed), training, [](int64_t, int64_t) {}));
  if (!p.config.model.weights.empty()) {
    SLUICE_TRY(load_weights(training_stage.model, p.config.model.weights, training));
  }
  SLUICE_TRY(save_weights(training_stage.model, out / "model.safetensors", training));
  SLUICE_TRY(write_step(p, data, training, sampling, out / "step.safetensors"));
  fmt::print("{}: {} tokens per step, written to {}\n", p.machine.description, p.shape.tokens(),
             out.string());
  return {};
}

}  // namespace
}  // namespace sluice::core

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: sluice_transformers_dump OUT_DIR CONFIG|- [key=value ...]\n");
    return 2;
  }
  const std::string config = argv[2];
  const sluice::Status status = sluice::core::dump(argv[1], config == "-" ? "" : config,
                                                   std::vector<std::string>(argv + 3, argv + argc));
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", status.message().c_str());
  return 1;
}
