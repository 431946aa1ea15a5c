// SPDX-License-Identifier: Apache-2.0
#include "random_program.h"
#include "ops/op.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/philox.h"

namespace sluice::core::exhaustive {
namespace {

constexpr int64_t kTokens = 16;
constexpr int64_t kAlignment = 64;
constexpr size_t kMostTasks = 8;

class Random {
 public:
  explicit Random(uint64_t seed) : seed_(seed) {}
  // A whole number from `least` to `most`.
  int64_t in(int64_t least, int64_t most) {
    return least + int64_t(philox(seed_, counter_++, 0).v[0] % uint64_t(most - least + 1));
  }
  bool chance(int percent) { return in(1, 100) <= percent; }

 private:
  const uint64_t seed_;
  uint64_t counter_ = 0;
};

class Builder {
 public:
  explicit Builder(Random& random) : random_(random) {}

  Program build() {
    const int chunks = random_.chance(25) ? 2 : 1;
    const int layers = chunks == 2 ? 1 : int(random_.in(1, 3));
    deferred_ = random_.chance(40);
    for (int l = 0; l <= layers; ++l) widths_.push_back(random_.in(2, 12));
    layers_.resize(size_t(layers));
    for (int l = layers - 1; l > 0; --l) {
      layers_[size_t(l)].gated = !(l + 1 < layers && layers_[size_t(l) + 1].gated) && random_.chance(30);
      if (layers_[size_t(l)].gated) widths_[size_t(l)] = 2 * widths_[size_t(l) + 1];
    }
    for (int l = 0; l < layers; ++l) add_weights(l);
    if (deferred_) add_updates();
    std::vector<std::vector<ObjectId>> acts(static_cast<size_t>(chunks));
    for (int c = 0; c < chunks; ++c) acts[size_t(c)] = forward(c);
    for (int c = chunks - 1; c >= 0; --c) backward(c, acts[size_t(c)]);
    if (!deferred_) add_updates();
    return std::move(program_);
  }

 private:
  struct Layer {
    bool gated = false;  // an activation without a weight, of half its input's width
    bool trained = false;
    ObjectId weight, grad;
    int64_t weight_elements = 0;
    bool grad_written = false;
  };

  ObjectId object(std::string role, ObjectKind kind, int64_t elements, int layer, int chunk,
                  bool persistent = false) {
    std::string name = fmt::format("{}.L{}.c{}", role, layer, chunk);
    return program_.add(
        {std::move(name), std::move(role), kind, DType::F32, 4 * elements, layer, -1, chunk, persistent});
  }
  void task(std::string_view what, Op op, std::vector<ObjectId> uses, Phase phase, int layer, int chunk) {
    program_.add(fmt::format("{}.L{}.c{}", what, layer, chunk), std::move(op), uses, phase, layer, -1, chunk);
  }

  void add_weights(int l) {
    Layer& layer = layers_[size_t(l)];
    if (layer.gated) return;
    layer.weight_elements = widths_[size_t(l)] * widths_[size_t(l) + 1];
    layer.trained = random_.chance(75);
    layer.weight = object("w", ObjectKind::Param, layer.weight_elements, l, 0, true);
    if (layer.trained) layer.grad = object("dw", ObjectKind::Grad, layer.weight_elements, l, 0, deferred_);
  }

  void add_updates() {
    for (size_t l = 0; l < layers_.size(); ++l) {
      const Layer& layer = layers_[l];
      if (!layer.trained) continue;
      // The weight's new content from its old one and its gradient. What is computed does not matter here.
      const SumSq op{layer.weight_elements, 0, std::max<int64_t>(1, layer.weight_elements / 2), DType::F32,
                     false};
      task("update", op, {layer.grad, layer.weight}, Phase::Update, int(l), 0);
    }
  }

  std::vector<ObjectId> forward(int c) {
    std::vector<ObjectId> x = {object("batch", ObjectKind::Input, kTokens * widths_[0], -1, c)};
    for (size_t l = 0; l < layers_.size(); ++l) {
      // What recomputation starts from is never computed again; see recompute_units().
      const bool stream = l + 1 < layers_.size() && random_.chance(30);
      x.push_back(object(stream ? "x" : "y", ObjectKind::Activation, kTokens * widths_[l + 1], int(l), c));
      if (layers_[l].gated) {
        task("gate", Swiglu{kTokens, widths_[l + 1], DType::F32}, {x[l], x[l + 1]}, Phase::Forward, int(l),
             c);
      } else {
        task("product", Linear{kTokens, widths_[l], widths_[l + 1], DType::F32},
             {x[l], layers_[l].weight, x[l + 1]}, Phase::Forward, int(l), c);
      }
    }
    return x;
  }

  void backward(int c, const std::vector<ObjectId>& x) {
    size_t l = layers_.size();
    ObjectId dy = object("dy", ObjectKind::ActGrad, kTokens * widths_[l], int(l), c);
    task("loss", Cast{kTokens * widths_[l], DType::F32, DType::F32}, {x[l], dy}, Phase::Backward, int(l) - 1,
         c);
    while (l-- > 0) {
      Layer& layer = layers_[l];
      if (layer.trained) {
        const LinearWgrad op{kTokens, widths_[l], widths_[l + 1], DType::F32, DType::F32, layer.grad_written};
        task("wgrad", op, {dy, x[l], layer.grad}, Phase::Backward, int(l), c);
        layer.grad_written = true;
      }
      const bool wanted =
          std::any_of(layers_.begin(), layers_.begin() + long(l), [](const Layer& b) { return b.trained; });
      if (!wanted) break;
      const ObjectId dx = object("dy", ObjectKind::ActGrad, kTokens * widths_[l], int(l), c);
      if (layer.gated) {
        const ObjectId again = object("y_again", ObjectKind::ActGrad, kTokens * widths_[l + 1], int(l), c);
        task("gate_bwd", SwigluBwd{kTokens, widths_[l + 1], DType::F32}, {x[l], dy, dx, again},
             Phase::Backward, int(l), c);
      } else {
        task("dgrad", LinearDgrad{kTokens, widths_[l], widths_[l + 1], DType::F32, false},
             {dy, layer.weight, dx}, Phase::Backward, int(l), c);
      }
      dy = dx;
    }
  }

  Random& random_;
  Program program_;
  bool deferred_ = false;
  std::vector<int64_t> widths_;
  std::vector<Layer> layers_;
};

// The largest working set, and the bytes at the fullest moment when nothing ever leaves the device.
std::pair<int64_t, int64_t> room_of(const Program& program) {
  const size_t n = program.tasks().size();
  std::vector<int64_t> live(n, 0), working(n, 0);
  for (uint32_t o = 0; o < program.objects().size(); ++o) {
    const int64_t bytes = align_up(program.objects()[o].bytes, kAlignment);
    size_t first = n, last = 0;
    for (size_t t = 0; t < n; ++t) {
      const auto& uses = program.tasks()[t].uses;
      if (std::none_of(uses.begin(), uses.end(), [&](const Use& u) { return u.object.value == o; })) continue;
      working[t] += bytes;
      first = std::min(first, t);
      last = t;
    }
    if (program.objects()[o].persistent) first = 0, last = n - 1;
    for (size_t t = first; t <= last && t < n; ++t) live[t] += bytes;
  }
  return {*std::max_element(working.begin(), working.end()), *std::max_element(live.begin(), live.end())};
}

}  // namespace

Instance random_instance(uint64_t seed) {
  Random random(seed);
  Instance out;
  do {
    out.program = Builder(random).build();
  } while (out.program.tasks().size() > kMostTasks);
  Profile& p = out.profile;
  p.name = "random";
  p.alignment = kAlignment;
  for (const Op& op : distinct_ops(out.program)) p.measured_ns[cost_key(op)] = double(random.in(200, 4000));
  // An object of 400 bytes takes from a tenth to four times as long as an average op.
  p.set_bytes_per_s(1e9 * 400 / double(random.in(200, 8000)));
  if (!random.chance(50)) p.set_bytes_per_s(kDevice, kHost, 1e9 * 400 / double(random.in(200, 8000)));
  p.transfer_latency_ns = double(random.in(0, 1) * 100);
  const auto [least, most] = room_of(out.program);
  const int64_t percent = random.chance(20) ? 0 : random.in(0, 100);
  out.device_bytes = align_up(least + (most - least) * percent / 100, kAlignment);
  return out;
}

}  // namespace sluice::core::exhaustive
