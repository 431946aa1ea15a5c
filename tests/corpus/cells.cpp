// SPDX-License-Identifier: Apache-2.0
#include "cells.h"

#include <fmt/format.h>

#include "base/bytes.h"
#include "cost/card.h"
#include "model/families/families.h"

namespace sluice::core::corpus {
namespace {

enum class Updates { AtTheEnd, Deferred, LateMoments };

// Caps are given as what was needed at least, and about what goes to the host when half of it all stays on
// the device, as this was written; the factors below do the rest.
struct Subject {
  const char* model;
  StepShape step;
  Updates updates;
  std::vector<const char*> machines;
  int64_t least_device_kib, host_kib;
};

constexpr double kDeviceFactors[] = {0.9, 1.1, 1.4, 1.8, 2.5, 4};
constexpr double kHostFactors[] = {1, 2};
constexpr double kDeviceUnderHost[] = {1.4, 2.5};

// Few layers of the presets' shapes, and an eighth of the vocabulary, so that layers and head keep something
// like the proportions of the whole model.
ModelSpec model_named(std::string_view name) {
  const auto layers = [](const char* preset, int64_t count) {
    ModelSpec model = *model_preset(preset);
    model.layers.resize(size_t(count), model.layers.front());
    if (model.vocab > 1000) model.vocab /= 8;
    return model;
  };
  if (name == "small") return model_of({32, 2, 4, 2, 8, 48, 61});
  if (name == "tinyx2") return layers("tiny", 2);
  if (name == "1Bx2") return layers("1", 2);
  if (name == "1Bx4") return layers("1", 4);
  if (name == "8Bx2") return layers("8", 2);
  if (name == "8Bx3") return layers("8", 3);
  if (name == "8Bx4") return layers("8", 4);
  return *model_preset(name);
}

std::string_view name_of(Updates updates) {
  return updates == Updates::AtTheEnd   ? "at_the_end"
         : updates == Updates::Deferred ? "deferred"
                                        : "late_moments";
}

std::vector<Caps> caps_of(const Subject& s) {
  const auto bytes = [](int64_t kib, double factor) {
    return align_up(int64_t(double(kib) * factor), 4) * kKiB;
  };
  std::vector<Caps> out;
  for (const double f : kDeviceFactors) out.push_back({bytes(s.least_device_kib, f), kUnlimited});
  for (const double h : kHostFactors) {
    for (const double f : kDeviceUnderHost)
      out.push_back({bytes(s.least_device_kib, f), bytes(s.host_kib, h)});
  }
  return out;
}

Group group_of(const Subject& s, const char* machine) {
  Group g{s.model, "", std::string(name_of(s.updates)), machine, model_named(s.model), s.step};
  g.shape = fmt::format("{} of {}x{}x{}{}", s.step.seq_len, s.step.chunk_tokens, s.step.chunks_per_round,
                        s.step.rounds, s.step.packed ? " packed" : "");
  // What a configuration that leaves it to the machine gets.
  if (g.machine != "cpu") g.numerics = {DType::BF16, DType::BF16, DType::BF16, MasterWeights::Off, true};
  g.optimizer.deferred = s.updates != Updates::AtTheEnd;
  g.optimizer.late_moments = s.updates == Updates::LateMoments;
  if (s.model == std::string_view("small")) g.optimizer.part_elements = 1000;
  g.caps = caps_of(s);
  return g;
}

}  // namespace

Profile profile_of(const Group& group) {
  Profile p;
  if (group.machine == "cpu") {
    p.name = "cpu";
    p.rates = {2e11, 1e11, 1e11, 1e10, 1000};
    p.set_bytes_per_s(5e9);
    p.transfer_latency_ns = 1000;
    p.copy_slowdown = 0.2;
    p.alignment = 64;
  } else {
    p = *profile_of(*find_card(group.machine), DType::BF16);
  }
  p.overhead_bytes[kDevice] = p.overhead_bytes[kHost] = 0;
  p.host_growth = {};
  return p;
}

std::vector<Group> groups(bool whole_models) {
  using enum Updates;
  constexpr int64_t kMi = 1024;  // in KiB
  const std::vector<Subject> few_layers = {
      {"small", {16, 32, 1, 2, 16}, AtTheEnd, {"cpu"}, 54, 440},
      {"small", {16, 8, 4, 1, 8, true}, LateMoments, {"cpu"}, 52, 400},
      {"tinyx2", {256, 2048, 1, 1, 1024}, AtTheEnd, {"cpu"}, 44 * kMi, 40 * kMi},
      {"tinyx2", {1024, 512, 4, 1, 512}, Deferred, {"cpu"}, 11 * kMi, 60 * kMi},
      {"tinyx2", {256, 8192, 1, 2, 1024}, Deferred, {"rtx3090"}, 160 * kMi, 160 * kMi},
      {"1Bx2", {1024, 16384, 1, 1, 1024}, Deferred, {"h200", "rtx4090"}, 1200 * kMi, 1200 * kMi},
      {"1Bx2", {512, 8192, 1, 4, 1024}, LateMoments, {"h200", "rtx5090"}, 600 * kMi, 1400 * kMi},
      {"1Bx2", {16384, 4096, 4, 1, 1024}, AtTheEnd, {"h200", "rtx4090"}, 401 * kMi, 1600 * kMi},
      {"1Bx4", {2048, 16384, 1, 1, 1024}, LateMoments, {"h100", "rtx5090"}, 1200 * kMi, 2400 * kMi},
      {"8Bx2", {4096, 16384, 1, 3, 1024}, Deferred, {"h200", "a100"}, 2824 * kMi, 4400 * kMi},
      {"8Bx2", {8192, 8192, 2, 2, 1024}, LateMoments, {"h200", "rtx4090"}, 1412 * kMi, 6000 * kMi},
      {"8Bx2", {16384, 8192, 2, 1, 1024, true}, AtTheEnd, {"h200", "rtx5090"}, 1412 * kMi, 6000 * kMi},
      {"8Bx3", {2048, 8192, 1, 1, 1024}, LateMoments, {"h200", "a100"}, 1412 * kMi, 7000 * kMi},
      {"8Bx4", {8192, 32768, 1, 1, 1024}, Deferred, {"h200", "h100"}, 5648 * kMi, 9000 * kMi},
  };
  const std::vector<Subject> whole = {
      {"1", {1024, 16384, 1, 2, 1024}, LateMoments, {"h200", "rtx4090"}, 1800 * kMi, 9000 * kMi},
      {"1", {32768, 8192, 4, 2, 1024}, LateMoments, {"h200"}, 1500 * kMi, 16000 * kMi},
      {"8", {8192, 16384, 1, 4, 1024}, LateMoments, {"h200"}, 5800 * kMi, 72000 * kMi},
  };
  std::vector<Group> out;
  for (const Subject& s : whole_models ? whole : few_layers) {
    for (const char* machine : s.machines) out.push_back(group_of(s, machine));
  }
  return out;
}

}  // namespace sluice::core::corpus
