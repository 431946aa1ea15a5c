// SPDX-License-Identifier: Apache-2.0
#include "setup/narrow.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>

#include "ops/op.h"

namespace sluice::core {
namespace {

constexpr int64_t kGainTokens = 8192;  // of a chunk: enough that no op's start counts

// "model.layers.3.self_attn.k_proj.weight" -> "*.self_attn.k_proj.weight": the tensor of every layer.
std::string of_all_layers(const std::string& tensor, int layer) {
  const std::string number = fmt::format(".{}.", layer);
  const size_t at = tensor.find(number);
  return at == std::string::npos ? tensor : "*" + tensor.substr(at + number.size() - 1);
}

}  // namespace

std::vector<NarrowGain> narrow_gains(const ModelSpec& model, const Profile& profile,
                                     int64_t tokens_per_step) {
  Profile rates = profile;
  rates.measured_ns.clear();
  const auto ns = [&](const Op& op) { return rates.cost(op).ns; };
  std::vector<NarrowGain> out;
  const std::vector<Weight> weights = weights_of(model);
  for (const Weight& w : weights) {
    if (!may_be_narrow(w)) continue;
    const int64_t cols = w.sources.front().cols, rows = w.elements() / cols;
    const bool known = std::ranges::any_of(
        out, [&](const NarrowGain& g) { return g.role == w.role && g.in == cols && g.out == rows; });
    if (known) continue;
    // Products of one input share its copies.
    const auto sharing = std::ranges::count_if(weights, [&](const Weight& other) {
      return other.layer == w.layer && other.part == w.part && w.part == ModelPart::Projection;
    });
    const NumberFormat x = kFloat8.over(cols), dy = kFloat8.over(rows), turned = kFloat8.over(kGainTokens);
    Linear linear{.tokens = kGainTokens, .in = cols, .out = rows, .dtype = DType::BF16};
    LinearDgrad dgrad{
        .tokens = kGainTokens, .in = cols, .out = rows, .dtype = DType::BF16, .accumulate = false};
    LinearWgrad wgrad{
        .tokens = kGainTokens, .in = cols, .out = rows, .dtype = DType::BF16, .grad_dtype = DType::BF16};
    const double wide = ns(linear) + ns(dgrad) + (w.trainable ? ns(wgrad) : 0);
    linear.x_format = linear.weight_format = x;
    dgrad.dy_format = dgrad.weight_format = dy;
    wgrad.dy_format = wgrad.x_format = turned;
    const double products = ns(linear) + ns(dgrad) + (w.trainable ? ns(wgrad) : 0);
    const auto copies = [&](int64_t of_rows, int64_t of_cols, bool by_column) {
      return ns(Quantize{of_rows, of_cols, DType::BF16, kFloat8, true, by_column});
    };
    const double once = double(kGainTokens) / double(std::max(tokens_per_step, kGainTokens));
    const double narrow = products +
                          copies(kGainTokens, cols, w.trainable) / double(std::max<int64_t>(1, sharing)) +
                          copies(kGainTokens, rows, w.trainable) + once * copies(rows, cols, true);
    NarrowGain gain{w.role, cols, rows, {}, wide / narrow - 1};
    for (const WeightSource& source : w.sources) {
      std::string pattern = of_all_layers(source.tensor, w.layer);
      if (std::ranges::find(gain.patterns, pattern) == gain.patterns.end())
        gain.patterns.push_back(std::move(pattern));
    }
    out.push_back(std::move(gain));
  }
  return out;
}

// A CPU gains nothing, and shows what a GPU would do.
Status choose_narrow(const RunConfig& config, const Machine& machine, ModelSpec& model) {
  constexpr std::string_view kKey = "train.fp8_except", kAuto = "auto";
  std::vector<std::string> patterns = config.train.fp8_except;
  const bool chosen = std::ranges::find(patterns, kAuto) != patterns.end();
  const bool fp8 = config.train.compute == DType::F8E4M3;
  if (chosen && patterns.size() > 1) return error("{}: {} stands alone", kKey, kAuto);
  if (!chosen && !patterns.empty() && !fp8)
    return error("{} = [{}]: products read 8 bits with train.compute = fp8 alone", kKey,
                 fmt::join(patterns, ", "));
  if (!fp8 && config.train.fp8_gradients != TrainKeys().fp8_gradients)
    return error("train.fp8_gradients = {}: products read 8 bits with train.compute = fp8 alone",
                 config.train.fp8_gradients);
  if (!fp8 && config.train.fp8_head)
    return error("train.fp8_head = true: products read 8 bits with train.compute = fp8 alone");
  model.wide.clear();
  if (!fp8) return {};
  if (chosen) patterns.clear();
  if (chosen && !machine.traits().shares_cores) {
    for (NarrowGain& gain : narrow_gains(model, machine.profile, config.train.tokens_per_step)) {
      if (gain.gain < kLeastNarrowGain) std::ranges::move(gain.patterns, std::back_inserter(patterns));
    }
  }
  return keep_wide(model, std::move(patterns), kKey);
}

}  // namespace sluice::core
