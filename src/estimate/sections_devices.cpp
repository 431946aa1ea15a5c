// SPDX-License-Identifier: Apache-2.0
// Several devices: the batch that they make, what each holds, and when a mesh of them is bound by compute.
#include <cmath>

#include "estimate/sections.h"

namespace sluice::core {

std::optional<Section> batch_section(const Basis& b) {
  const EstimateInput& in = b.in;
  Section s{"batch", "Batch"};
  const double replicas = b.replicas(), sequences = double(in.batch.rows * in.accumulate) * replicas;
  s.facts.push_back(
      {"replicas", "replicas of the model", replicas, Form::Count,
       fmt::format("devices / (tensor x pipeline parallel) = {} / ({} x {})", in.devices, in.tp, in.pp)});
  s.facts.push_back(
      {"sequences", "sequences of a step", sequences, Form::Count,
       fmt::format("B x accumulation x replicas = {} x {} x {:g}", in.batch.rows, in.accumulate, replicas)});
  s.facts.push_back({"tokens", "tokens of a step", b.step_tokens(), Form::Count, "the same x S"});
  if (in.accumulate > 1) {
    s.notes.push_back(
        "Accumulation costs no FLOPs: weights are read, and gathered where they are sharded, once more for "
        "each batch, and activations are those of one.");
  }
  return s;
}

namespace {

// Activations of a device's batch, and the words for them.
struct Activations {
  double bytes;
  std::string formula;
};
Activations activations_of(const Basis& b) {
  if (b.spec != nullptr) {
    return {double(b.training.everything.bytes), "A: objects that the backward pass reads, of T tokens"};
  }
  if (b.in.subject.blocks) {
    const Subject::Blocks& s = *b.in.subject.blocks;
    return {2.0 * double(s.dim + s.ffn) * double(s.layers) * b.tokens(),
            "A = 2 (D + F) L T: bf16 inputs of "
            "both matrices of a block"};
  }
  return {0, "A unknown, taken as 0"};
}

}  // namespace

std::optional<Section> sharding_section(const Basis& b) {
  const EstimateInput& in = b.in;
  const Activations a = activations_of(b);
  const double statics = b.statics.all(), n = double(in.devices);
  const double state = b.statics.state + b.statics.masters, held = statics - state;
  Section s{"sharding", "Memory of each device when several share"};
  Table table{"sharding",
              "Of each device",
              "sharded",
              {{"bytes", fmt::format("of {}", in.devices), Form::Bytes},
               {"smallest", "fewest devices", Form::Count}}};
  // Bytes of a device: `kept` + `shared` / devices.
  const auto add = [&](const char* name, double kept, double shared, const char* formula) {
    std::vector<std::optional<double>> values{kept + shared / n, std::nullopt};
    std::string note = formula;
    const double left = in.device ? in.device->memory_bytes - kept : 0;
    if (left > 0) values[1] = std::max(1.0, std::ceil(shared / left));
    if (in.device && left <= 0) note += ": no number of devices is enough";
    table.rows.push_back({name, std::move(values), std::move(note)});
  };
  const double k = a.bytes;
  add("nothing", statics + k, 0, "s P + A");
  add("state and masters", held + k, state, "(weights + gradients) P + (state + masters) P / n + A");
  add("all but activations", k, statics, "s P / n + A");
  add("all, half of activations", k / 2, statics + k / 2, "(s P + A / 2) / n + A / 2");
  add("weights, gradients, state alone", 0, statics, "s P / n");
  table.formulas = {fmt::format("n devices, s = {} bytes of a parameter ({}). {}.",
                                to_text(statics / b.params, Form::Number), in.recipe->name, a.formula)};
  s.facts.push_back({"static", "weights, gradients, state of all", statics, Form::Bytes, "s P"});
  if (in.device) {
    s.facts.push_back({"devices_of_memory", "devices whose memory that is", statics / in.device->memory_bytes,
                       Form::Number, "s P / M"});
  }
  s.facts.push_back({"activations", "activations of a device's batch", k, Form::Bytes, a.formula});
  s.tables.push_back(std::move(table));
  return s;
}

std::optional<Section> mesh_section(const Basis& b) {
  if (!b.in.mesh) return std::nullopt;
  const Mesh& m = *b.in.mesh;
  const double c = m.peak_flops > 0 ? m.peak_flops : b.in.device ? b.in.device->peak_flops : 0;
  Section s{"mesh", fmt::format("Mesh: weights over {} ({} axes), matrices over {} ({} axes)", m.fsdp,
                                m.fsdp_axes, m.tp, m.tp_axes)};
  if (c <= 0) {
    s.notes.push_back("Needs the peak of a device: --machine, or peak= in --mesh.");
    return s;
  }
  const double x = double(m.fsdp), y = double(m.tp), mx = double(m.fsdp_axes), my = double(m.tp_axes);
  const double w = m.link_rate, each = c / (w * mx * y);
  s.facts.push_back(
      {"tokens_per_device", "tokens of each device, forward, from which compute binds", each, Form::Number,
       "B/(X Y) > C / (W MX Y): a block's products take 4 (B/X) D F / (Y C), gathering its weights 4 "
       "D F / (Y W MX)"});
  s.facts.push_back({"tokens", "tokens of all", each * x * y, Form::Number, "the same x X Y"});
  s.facts.push_back({"least_ffn", "width of F from which tensor parallel is bound by compute",
                     y * c / (w * my), Form::Number,
                     "F > Y C / (W MY): activations of B/X tokens take 4 (B/X) D / (W MY)"});
  const int64_t f = b.spec != nullptr     ? b.spec->layers.front().mlp().ffn
                    : b.in.subject.blocks ? b.in.subject.blocks->ffn
                                          : 0;
  if (f > 0) {
    s.facts.push_back({"ffn", double(f) > y * c / (w * my) ? "F, which holds" : "F, which does not hold",
                       double(f), Form::Count, "of the model"});
  }
  Table tricks{
      "smaller",
      "Smaller batches at full speed, by the same equations",
      "change",
      {{"tokens_per_device", "tokens of each", Form::Number}, {"least_ffn", "least F", Form::Number}}};
  const double least = y * c / (w * my);
  tricks.rows = {{"as given", {each, least}},
                 {"tensor parallel over twice as many", {each / 2, 2 * least}, "Y: fewer tokens, wider F"},
                 {"weights over one axis more", {c / (w * (mx + 1) * y), least}, "MX + 1"},
                 {"weights gathered in 8 bits", {each / 2, least}, "half of the bytes"},
                 {"links twice as fast", {each / 2, least / 2}, "2 W"},
                 {"gathered once for two batches",
                  {each / 2, least},
                  "accumulation with weights kept: twice the tokens of a gather"}};
  tricks.formulas = {
      "X devices share weights on MX axes of the mesh, Y matrices on MY axes; W bytes/s of a link and axis, "
      "C of "
      "a device; transfers run beside compute. Pipelines and splitting sequences change neither bound: both "
      "divide products and transfers alike."};
  s.tables.push_back(std::move(tricks));
  s.notes.push_back(
      "Bounds by formula. sluice simulate --hosts N --network RATE plans hosts that share a step by data, "
      "and "
      "sluice compare --hosts compares numbers of them.");
  return s;
}

}  // namespace sluice::core
