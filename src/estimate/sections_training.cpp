// SPDX-License-Identifier: Apache-2.0
// Memory of training: what is kept of every parameter, and of every token.
#include <algorithm>
#include <array>
#include <cmath>

#include "estimate/sections.h"

namespace sluice::core {
namespace {

Table table_of_recipes(const Basis& b) {
  Table table{"recipes",
              "Weights, gradients and state by optimizer and number formats",
              "--optimizer",
              {{"weights", "weights", Form::Number},
               {"masters", "masters", Form::Number},
               {"gradients", "gradients", Form::Number},
               {"state", "state", Form::Number},
               {"per_parameter", "sum", Form::Number},
               {"bytes", "bytes", Form::Bytes}}};
  for (const Recipe& r : recipes()) {
    const StaticBytes bytes = static_bytes(r, b.params, b.in_layers, b.spec);
    table.rows.push_back(
        {std::string(r.name),
         {r.weights, r.masters, r.grads, bytes.state / b.params, bytes.all() / b.params, bytes.all()},
         fmt::format("{}{}", r.meaning, r.runs() ? fmt::format("; Sluice: {}", r.settings) : std::string())});
  }
  table.formulas = {
      "Bytes of a parameter: bf16 2, f32 4, moments of 8 bits 1 each. Where Sluice is named it runs that, "
      "and "
      "its Program's objects have these bytes; the others are as published. Weights alone, for inference: 2 "
      "(bf16), 4 (f32), 6 (both), 1 (8 bits)."};
  return table;
}

// Everything that is in the device's memory at once.
Table anatomy(const Basis& b) {
  Table table{"anatomy",
              fmt::format("Training with {}, everything kept", b.in.recipe->name),
              "what",
              {{"bytes", "bytes", Form::Bytes}, {"per_parameter", "of a parameter", Form::Number}}};
  double all = 0;
  const auto add = [&](const char* name, double bytes, const char* note) {
    table.rows.push_back({name, {bytes, bytes / b.params}, note});
    all += bytes;
  };
  add("weights", b.statics.weights, "");
  add("masters", b.statics.masters, "");
  add("gradients", b.statics.grads, "");
  add("optimizer state", b.statics.state, "");
  if (b.spec != nullptr) {
    add("activations", double(b.training.everything.bytes), "objects that the backward pass reads");
    add("temporaries", double(b.training.temporary_bytes), "most at one moment, in the Program's order");
    add("logits", double(b.training.logits_bytes), "f32, of at most 2,048 rows at once");
    add("workspace", double(b.training.workspace_bytes), "largest of an op on a GPU");
  }
  if (b.in.device) add("context and kernels", b.in.device->overhead_bytes, "of the machine's profile");
  table.rows.push_back({"sum", {all, all / b.params}});
  return table;
}

// A way to have activations in the backward pass.
struct Mode {
  const char *key, *what;
  const Kept& kept;
};
std::array<Mode, 3> modes_of(const TrainingCounts& counts) {
  return {{{"everything", "nothing recomputed", counts.everything},
           {"sublayers", "input of each attention and FFN kept", counts.sublayers},
           {"blocks", "input of each layer kept", counts.blocks}}};
}

Table lengths(const Basis& b) {
  const Device& d = *b.in.device;
  const auto devices = double(b.in.devices);
  Table table{"lengths",
              "Tokens of training at once, weights and state in the card's memory",
              "recomputation",
              {{"per_token", "of a token", Form::Bytes},
               {"tokens", "tokens", Form::Count},
               {"rule_tokens", "by N", Form::Count},
               {"sequences", "sequences", Form::Count},
               {"tokens_with_rest", "with the rest", Form::Count}}};
  if (b.in.devices > 1) {
    table.columns.push_back({"tokens_sharded", fmt::format("each of {}", b.in.devices), Form::Count});
  }
  const double statics = b.statics.all(), per_parameter = statics / b.params;
  const double rest = b.training.temporary_bytes / b.tokens();
  const double fixed = d.overhead_bytes + double(b.training.logits_bytes + b.training.workspace_bytes);
  const auto count = [](double left, double each) { return std::max(0.0, std::floor(left / each)); };
  for (const Mode& mode : modes_of(b.training)) {
    const double each = double(mode.kept.bytes) / b.tokens();
    const double tokens = count(d.memory_bytes - statics, each);
    table.rows.push_back({mode.what,
                          {each, tokens, count(d.memory_bytes - per_parameter * b.matrices, each),
                           std::floor(tokens / double(b.in.batch.seq_len)),
                           count(d.memory_bytes - statics - fixed, each + rest),
                           count(d.memory_bytes - statics / devices, each)}});
  }
  table.formulas = {
      "(M - bytes of weights, gradients and state) / bytes of activations of a token; by N: without norms. "
      "Sequences of S tokens. With the rest: less context, workspace and logits, and temporaries of each "
      "token.",
      fmt::format(
          "{}Sluice moves weights, gradients and state to host memory, too: --plan says what fits then, "
          "and how fast.",
          b.in.devices > 1 ? fmt::format("Each of {}: they are sharded over all. ", b.in.devices)
                           : std::string())};
  return table;
}

// Activations of other programs, which hold all scores and logits, for batches and lengths around the given
// ones. `naive`: numbers of a token and layer at length 0. A score tensor adds `heads` for each token of the
// length.
Table naive_steps(const Basis& b, double naive, double heads, double size) {
  Table table{"naive_steps",
              fmt::format("A whole step with {} where scores and logits are materialised", b.in.recipe->name),
              "B",
              {}};
  const auto layers = double(b.spec->layers.size());
  std::vector<int64_t> lengths;
  for (const int64_t quarters : {1, 2, 4, 8, 16}) {
    const int64_t length = std::max<int64_t>(1, b.in.batch.seq_len * quarters / 4);
    if (!lengths.empty() && length == lengths.back()) continue;
    lengths.push_back(length);
    table.columns.push_back({fmt::format("s_{}", length), fmt::format("S = {}", length), Form::Bytes});
  }
  for (const int64_t times : {1, 2, 4, 8}) {
    const int64_t batch = b.in.batch.rows * times;
    Row row{.name = fmt::format("{}", batch)};
    for (const int64_t length : lengths) {
      const double of_token =
          layers * (naive + 2 * heads * double(length)) * size + 4 * double(b.spec->vocab);
      row.values.emplace_back(b.statics.all() + of_token * double(batch * length));
    }
    table.rows.push_back(std::move(row));
  }
  table.formulas = {"s P + B S (activations of a token at S, as above, + 4 V of logits)."};
  return table;
}

}  // namespace

std::optional<Section> memory_section(const Basis& b) {
  Section s{"memory", "Training memory"};
  const double statics = b.statics.all();
  s.facts.push_back({"per_parameter", "bytes of a parameter", statics / b.params, Form::Number,
                     fmt::format("{}: {}", b.in.recipe->name, b.in.recipe->meaning)});
  s.facts.push_back({"static", "weights, gradients, state", statics, Form::Bytes, "the same x P",
                     Rule{statics / b.params * b.matrices, "the same x N"}});
  if (b.in.device) {
    const double left = b.in.device->memory_bytes - statics;
    s.facts.push_back({"left", left < 0 ? "does not fit: missing" : "left for activations", std::abs(left),
                       Form::Bytes, left < 0 ? "the same - M" : "M - the same"});
    if (left < 0) {
      s.notes.push_back(
          "With Sluice they may lie in host memory: --plan finds whether caps on both hold, and the speed.");
    }
  }
  s.tables.push_back(anatomy(b));
  s.tables.push_back(table_of_recipes(b));
  return s;
}

std::optional<Section> activations_section(const Basis& b) {
  if (b.spec == nullptr) return std::nullopt;
  const ModelSpec& spec = *b.spec;
  const LayerSpec& layer = spec.layers.front();
  const auto layers = double(spec.layers.size()), d = double(spec.dim);
  const auto q = double(spec.attention().q_dim()), k = double(spec.attention().kv_dim());
  const double heads = double(spec.attention().heads);
  // Counts all MLPs that a token meets.
  const Experts* const experts = layer.experts();
  const int64_t ffn = layer.mlp().ffn;
  const double f = experts == nullptr ? double(ffn) : double(ffn * experts->top_k + experts->shared);
  const double up = layer.mlp().gated ? 2 * f : f;
  const double length = double(b.in.batch.seq_len);
  const double size = double(size_of(numerics_of(*b.in.recipe).compute));
  const auto of_token = [&](const Kept& kept) { return double(kept.bytes) / b.tokens(); };

  Section s{"activations", "Activations of a token, kept from the forward to the backward pass"};
  const TrainingCounts& t = b.training;
  s.facts.push_back(
      {"everything", "nothing recomputed", of_token(t.everything), Form::Bytes,
       "objects that the backward pass reads, below; logits only in pieces",
       Rule{layers * size * (4 * d + 2 * q + 2 * k + up),
            layer.mlp().gated ? "L (4 D + 2 Q + 2 K + 2 F) x bytes" : "L (4 D + 2 Q + 2 K + F) x bytes"}});
  s.facts.push_back({"sublayers", "input of each attention and FFN kept", of_token(t.sublayers), Form::Bytes,
                     "objects x and x_mid; x of the head, too",
                     Rule{2 * layers * d * size, "2 L D x bytes"}});
  s.facts.push_back({"blocks", "input of each layer kept", of_token(t.blocks), Form::Bytes,
                     "objects x; that of the head, too", Rule{layers * d * size, "L D x bytes"}});
  const double naive_0 = 3 * d + 2 * q + 2 * k + up + f;
  const double naive = naive_0 + 2 * heads * length;
  s.facts.push_back(
      {"naive", "scores materialised, by other programs", layers * naive * size, Form::Bytes,
       layer.mlp().gated
           ? "L (3 D + 2 Q + 2 K + 3 F + 2 H S) x bytes: two score tensors, nothing in pieces"
           : "L (3 D + 2 Q + 2 K + 2 F + 2 H S) x bytes: two score tensors, nothing in pieces"});
  s.facts.push_back(
      {"naive_batch", "the same of the whole batch", layers * naive * size * b.tokens(), Form::Bytes, "x T"});
  s.facts.push_back(
      {"naive_f32_batch", "the same in f32", layers * naive * 4 * b.tokens(), Form::Bytes, "4 bytes each"});
  for (const auto& [key, what, kept] :
       {std::tuple{"again_sublayers", "recomputed per attention and FFN", &t.sublayers},
        {"again_blocks", "recomputed per layer", &t.blocks}}) {
    s.facts.push_back({key, std::string(what) + ": more FLOPs", kept->again_flops / t.flops, Form::Share,
                       "tasks that run again / FLOPs of the step", Rule{1.0 / 3, "2 N of 6 N"}});
  }
  Table roles{"roles",
              "Objects between the passes, of a token, all layers",
              "role",
              {{"objects", "objects", Form::Count}, {"bytes", "bytes", Form::Bytes}}};
  for (const KeptRole& r : t.roles) {
    roles.rows.push_back({r.role, {double(r.objects), double(r.bytes) / b.tokens()}});
  }
  roles.formulas = {
      "x, x_mid: the stream; h1, h2: behind the norms; q, kv, o: attention, lse: its log-sum-exp, f32; gu: "
      "gate "
      "and up. The gate's result is made again in passing and not kept. What is kept, moved or computed "
      "again "
      "is the planner's to decide, object by object: `sluice plan`."};
  s.tables.push_back(std::move(roles));
  s.tables.push_back(naive_steps(b, naive_0, heads, size));
  if (b.in.device) s.tables.push_back(lengths(b));
  return s;
}

}  // namespace sluice::core
