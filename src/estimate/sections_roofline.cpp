// SPDX-License-Identifier: Apache-2.0
// Arithmetic against memory traffic: which batches and models keep a device busy, and how large they may be.
#include <algorithm>
#include <cmath>

#include "base/counts.h"
#include "estimate/sections.h"

namespace sluice::core {
namespace {

constexpr int64_t kMostTokens = int64_t{1} << 20;

// At least `tokens` of them, as sequences of the input's length where that is shorter.
BatchShape shape_of(int64_t tokens, int64_t seq_len) {
  if (tokens <= seq_len) return {tokens, 1};
  return {seq_len, (tokens + seq_len - 1) / seq_len};
}

struct Times {
  double compute_s = 0, memory_s = 0;
  double full() const { return compute_s / std::max(compute_s, memory_s); }
};

// Times of passes, each op's operands moved once while others compute.
class Roofline {
 public:
  explicit Roofline(const Basis& b) : in_(b.in), device_(*b.in.device) {}

  Times evaluate(const ModelSpec& spec, const BatchShape& shape) const {
    const ForwardCounts c = count_forward(spec, shape, DType::BF16);
    return {c.flops / device_.peak_flops, c.traffic_bytes / device_.memory_rate};
  }
  Times train(const ModelSpec& spec, const BatchShape& shape) const {
    const Optimizer* optimizer = find_optimizer(in_.recipe->optimizer);
    const TrainingCounts c = count_training(spec, shape, numerics_of(*in_.recipe),
                                            optimizer != nullptr ? *optimizer : *optimizers().front());
    return {(c.flops + c.update_flops) / device_.peak_flops, c.traffic_bytes / device_.memory_rate};
  }

  // The fewest tokens from which `times` is not bound by memory; 0: none up to kMostTokens.
  template <class F>
  int64_t smallest_full(F times) const {
    const auto full = [&](int64_t tokens) { return times(shape_of(tokens, in_.batch.seq_len)).full() >= 1; };
    int64_t low = 0, high = 1;  // not full, full
    while (high <= kMostTokens && !full(high)) low = high, high *= 2;
    if (high > kMostTokens) return 0;
    while (high - low > 1) {
      const int64_t middle = (low + high) / 2;
      (full(middle) ? high : low) = middle;
    }
    return shape_of(high, in_.batch.seq_len).tokens();
  }

 private:
  const EstimateInput& in_;
  const Device& device_;
};

std::string model_text(const ModelSpec& spec) {
  return fmt::format("{} layers of {}", spec.layers.size(), spec.dim);
}

// The most layers, in proportion to which the model is as wide, with which `fits` holds; 0: not with one.
template <class F>
int64_t most_layers(F fits) {
  constexpr int64_t kMost = 2048;
  int64_t low = 0, high = 1;
  while (high <= kMost && fits(high)) low = high, high *= 2;
  while (high - low > 1) {
    const int64_t middle = (low + high) / 2;
    (fits(middle) ? low : high) = middle;
  }
  return low;
}

}  // namespace

std::optional<Section> roofline_section(const Basis& b) {
  if (b.spec == nullptr || !b.in.device) return std::nullopt;
  const Device& d = *b.in.device;
  const Roofline roofline(b);
  const double kept = double(b.training.everything.bytes) / b.tokens() / 2;  // numbers of a token
  const auto rule = [&](double tokens) {
    return Times{2 * b.active * tokens / d.peak_flops, (b.matrices + 2 * kept * tokens) * 2 / d.memory_rate};
  };
  Table table{"batches",
              "A batch, by compute and by memory",
              "tokens",
              {{"compute_s", "evaluate", Form::Seconds},
               {"memory_s", "memory", Form::Seconds},
               {"rule_compute_s", "rule", Form::Seconds},
               {"rule_memory_s", "memory", Form::Seconds},
               {"training_compute_s", "train", Form::Seconds},
               {"training_memory_s", "memory", Form::Seconds},
               {"evaluation_mfu", "most MFU: evaluate", Form::Share},
               {"training_mfu", "train", Form::Share}}};
  Plot plot{"Most MFU that memory allows, " + b.in.subject.name + " on " + d.name,
            "compute / max(compute, memory); transfers run beside compute",
            "tokens of a batch",
            "MFU, %",
            {{"training", {}, true}, {"evaluation", {}, true}},
            Scale::PowersOfTwo};
  int64_t before = 0;
  for (int power = 0; power <= 20; ++power) {
    const BatchShape shape = shape_of(int64_t{1} << power, b.in.batch.seq_len);
    const auto tokens = double(shape.tokens());
    if (shape.tokens() == before) continue;
    before = shape.tokens();
    const Times evaluate = roofline.evaluate(*b.spec, shape), train = roofline.train(*b.spec, shape);
    table.rows.push_back(
        {fmt::format("{}", shape.tokens()),
         {evaluate.compute_s, evaluate.memory_s, rule(tokens).compute_s, rule(tokens).memory_s,
          train.compute_s, train.memory_s, evaluate.full(), train.full()}});
    plot.series[0].points.push_back({tokens, 100 * train.full()});
    plot.series[1].points.push_back({tokens, 100 * evaluate.full()});
  }
  table.formulas = {
      "Compute: FLOPs of all tasks / C. Memory: operands of all tasks, each moved once, and logits, / W; "
      "training's update "
      "too. Rule: 2 N T / C, and (N + 2 A T) 2 / W with A numbers that a token leaves."};
  Section s{"roofline", "Roofline"};
  const double turn =
      2 * b.matrices / d.memory_rate / (2 * b.active / d.peak_flops - 4 * kept / d.memory_rate);
  const auto fact = [&](const char* key, const char* what, int64_t tokens, std::optional<Rule> rule_of) {
    const bool found = tokens > 0;
    s.facts.push_back({key, what, found ? double(tokens) : INFINITY, Form::Count,
                       found ? "tokens from which compute takes longer than memory, by search"
                             : "not up to 1,048,576 tokens",
                       std::move(rule_of)});
  };
  fact("smallest_evaluation_batch", "smallest batch at full MFU, evaluation",
       roofline.smallest_full([&](const BatchShape& shape) { return roofline.evaluate(*b.spec, shape); }),
       turn > 0 ? std::optional(Rule{std::ceil(turn), "2 N T / C = (N + 2 A T) 2 / W"}) : std::nullopt);
  fact("smallest_training_batch", "smallest batch at full MFU, training",
       roofline.smallest_full([&](const BatchShape& shape) { return roofline.train(*b.spec, shape); }),
       std::nullopt);
  // Where each curve ends to rise.
  const auto mark = [&](Series& series, double tokens) {
    if (!std::isfinite(tokens)) return;
    const auto after = std::find_if(series.points.begin(), series.points.end(),
                                    [&](const Point& p) { return p.x >= tokens; });
    series.points.insert(after, {tokens, 100});
    series.name += fmt::format(", full from {} tokens", to_text(tokens, Form::Count));
  };
  mark(plot.series[1], s.facts[0].value);
  mark(plot.series[0], s.facts[1].value);
  s.tables.push_back(std::move(table));
  s.plots.push_back(std::move(plot));
  return s;
}

std::optional<Section> scaling_section(const Basis& b) {
  if (b.spec == nullptr || !b.in.device) return std::nullopt;
  const Device& d = *b.in.device;
  const Roofline roofline(b);
  Section s{"scaling", "Models of the same depth to width"};
  constexpr int64_t kWidest = 64;
  int64_t layers = 1;
  const BatchShape large = shape_of(kMostTokens, b.in.batch.seq_len);
  while (layers <= kWidest && roofline.train(scaled_to(*b.spec, layers), large).full() < 1) ++layers;
  if (layers <= kWidest) {
    const ModelSpec spec = scaled_to(*b.spec, layers);
    s.facts.push_back({"smallest_model", "smallest at full MFU", double(spec.params()), Form::Count,
                       fmt::format("parameters; {}; training with a batch of {} tokens, by search",
                                   model_text(spec), to_text(double(large.tokens()), Form::Count))});
  }
  Table table{"largest",
              fmt::format("Largest that trains with {} and {} tokens on each device", b.in.recipe->name,
                          b.in.batch.tokens()),
              "on",
              {{"params", "parameters", Form::Count},
               {"layers", "layers", Form::Count},
               {"dim", "width", Form::Count},
               {"bytes", "of each device", Form::Bytes}}};
  const Optimizer* optimizer = find_optimizer(b.in.recipe->optimizer);
  const auto bytes_of = [&](const ModelSpec& spec, int64_t devices, bool recompute) {
    const Parts parts = parameter_parts(spec);
    const double statics =
        static_bytes(*b.in.recipe, double(parts.all()), double(parts.attention + parts.ffn), &spec).all();
    if (statics / double(devices) > d.memory_bytes) return statics / double(devices);
    const TrainingCounts c = count_training(spec, b.in.batch, numerics_of(*b.in.recipe),
                                            optimizer != nullptr ? *optimizer : *optimizers().front());
    return statics / double(devices) + double(recompute ? c.blocks.bytes : c.everything.bytes);
  };
  std::vector<int64_t> counts{1, 8};
  if (b.in.devices != 1 && b.in.devices != 8) counts.push_back(b.in.devices);
  for (const int64_t devices : counts) {
    for (const bool recompute : {false, true}) {
      const int64_t most = most_layers(
          [&](int64_t l) { return bytes_of(scaled_to(*b.spec, l), devices, recompute) <= d.memory_bytes; });
      const std::string name = fmt::format("{}, {}", counted(devices, "device"),
                                           recompute ? "layers recomputed" : "nothing recomputed");
      if (most == 0) {
        table.rows.push_back({name, {}, "not one layer"});
        continue;
      }
      const ModelSpec spec = scaled_to(*b.spec, most);
      table.rows.push_back(
          {name,
           {double(spec.params()), double(most), double(spec.dim), bytes_of(spec, devices, recompute)}});
    }
  }
  table.formulas = {
      "bytes x P / devices + activations of the tokens <= M, by search over the number of layers; the width "
      "follows it, heads and vocabulary stay. With host memory Sluice trains larger ones: --plan "
      "says how large."};
  s.tables.push_back(std::move(table));
  return s;
}

}  // namespace sluice::core
