// SPDX-License-Identifier: Apache-2.0
#include "cost/presets.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "base/nearest.h"
#include "ops/gpu_workspace.h"

namespace sluice::core {
namespace {

struct Gpu {
  std::string_view name;
  double peak_flops;     // dense bf16 with fp32 accumulation, data sheet
  double memory_bytes;   // per second, data sheet
  double link_bytes;     // per second and direction, both busy
  double product_share;  // of the peak that products reach under sustained load
  double attention_forward_share, attention_backward_share;  // the same within attention
  int cc_major;                                              // of the compute capability
};

// H200: measured within training steps of 1B and 8B, which its limit on power slows down (large products 687
// to 767 TFLOP/s, those of 2,048 x 2,048 526 to 680, cuDNN attention 502 and 420 with heads of 128 columns
// and 439 and 376 with 64), copies on the device 4,256 GB/s and links 50.8 GB/s each way. H100: the same
// chip. The others: data sheet rates with shares that were never measured; consumer cards hold a larger share
// of a lower peak.
constexpr std::array<Gpu, 6> kGpus{{
    {"h200", 989.5e12, 4.8e12, 50.8e9, 0.69, 0.59, 0.49, 9},
    {"h100", 989.5e12, 3.35e12, 50.0e9, 0.66, 0.59, 0.49, 9},
    {"a100", 312e12, 2.0e12, 23.0e9, 0.80, 0.69, 0.58, 8},
    {"rtx3090", 71e12, 0.936e12, 23.0e9, 0.85, 0.81, 0.69, 8},
    {"rtx4090", 165e12, 1.008e12, 23.0e9, 0.90, 0.87, 0.75, 8},
    {"rtx5090", 209.5e12, 1.79e12, 45.0e9, 0.90, 0.87, 0.75, 12},
}};

// Total memory as nvidia-smi prints it for these cards (the RTX 4090's is unchecked); 24, 32, 40, 80 and 141
// GB are rounded names. The A100 with 40 GB is planned with the other's memory rate, 2.0 instead of the 1.555
// TB/s of its data sheet.
constexpr std::array<Card, 7> kCards{{
    {"RTX 4090 24 GB", "rtx4090", 24564 * kMiB, 1.008e12, 128},
    {"RTX 3090 24 GB", "rtx3090", 24576 * kMiB, 0.936e12, 82},
    {"RTX 5090 32 GB", "rtx5090", 32607 * kMiB, 1.792e12, 170},
    {"A100 40 GB", "a100", 40960 * kMiB, 1.555e12, 108},
    {"H100 80 GB", "h100", 81559 * kMiB, 3.35e12, 132},
    {"A100 80 GB", "a100", 81920 * kMiB, 2.039e12, 108},
    {"H200 141 GB", "h200", 143771 * kMiB, 4.8e12, 132},
}};

}  // namespace

std::vector<std::string_view> machine_presets() {
  std::vector<std::string_view> names;
  for (const Gpu& gpu : kGpus) names.push_back(gpu.name);
  return names;
}

std::span<const Card> cards() {
  return kCards;
}

Result<Card> find_card(std::string_view name) {
  std::string plain = plain_name(name);
  for (const std::string_view maker : {"nvidia", "geforce"}) {
    if (plain.starts_with(maker)) plain.erase(0, maker.size());
  }
  const Card* found = nullptr;
  for (const Card& card : kCards) {  // the last of a preset is its largest
    if (plain == plain_name(card.name) || plain == card.machine) found = &card;
  }
  if (found == nullptr) return error("machine '{}': known are {}", name, fmt::join(machine_presets(), ", "));
  return *found;
}

Result<Profile> machine_preset(std::string_view name) {
  SLUICE_ASSIGN(const Card card, find_card(name));
  const auto* gpu =
      std::find_if(kGpus.begin(), kGpus.end(), [&](const Gpu& g) { return g.name == card.machine; });
  Profile p;
  p.name = gpu->name;
  p.peak_flops = gpu->peak_flops;
  p.rates.product_flops = gpu->peak_flops * gpu->product_share;
  p.rates.attention_forward_flops = gpu->peak_flops * gpu->attention_forward_share;
  p.rates.attention_backward_flops = gpu->peak_flops * gpu->attention_backward_share;
  p.rates.memory_bytes = gpu->memory_bytes * 0.88;  // what a copy reaches of the data sheet
  p.rates.launch_ns = 4000;
  p.set_bytes_per_s(gpu->link_bytes);
  p.transfer_latency_ns = 10000;
  p.alignment = 256;
  // On the device: context, kernels and library handles, measured on the H200.
  p.overhead_bytes = {{kDevice, 600 * kMiB}, {kHost, kGiB}};
  const GpuLibraries libraries{.cc_major = gpu->cc_major};
  p.workspace_bytes = [libraries](const Op& op) { return workspace_bytes(op, libraries); };
  return p;
}

}  // namespace sluice::core
