// SPDX-License-Identifier: Apache-2.0
// Machines that are known by name.
#include <fmt/ranges.h>

#include <algorithm>
#include <tuple>

#include "base/nearest.h"
#include "cost/card.h"
#include "ops/gpu_workspace.h"

namespace sluice::core {
namespace {

// Shares of the bf16 peak that products and attention reach within steps; none: unknown, or Sluice does not
// run there.
struct Shares {
  double products = 0, attention_forward = 0, attention_backward = 0;
  std::string_view source;
};
// H200: measured within training steps of 1B and 8B, which its limit on power slows down. (Large products 687
// to 767 TFLOP/s, those of 2,048 x 2,048 526 to 680, cuDNN attention 502 and 420 with heads of 128 columns
// and 439 and 376 with 64.) H100: the same chip. The others were never measured; consumer cards hold a larger
// share of a lower peak, and those whose limit on power is low beside their peak a smaller one.
constexpr Shares kH200{0.69, 0.59, 0.49, "measured"};
constexpr Shares kH100{0.66, 0.59, 0.49, "attention as the H200's, the rest estimated"};
constexpr Shares kA100{0.80, 0.69, 0.58, "estimated"};
constexpr Shares kAmpere{0.85, 0.81, 0.69, "estimated"};
constexpr Shares kGeForce{0.90, 0.87, 0.75, "estimated"};
constexpr Shares kLikeHopper{0.66, 0.59, 0.49, "estimated, as the H100"};
constexpr Shares kLikeA100{0.80, 0.69, 0.58, "estimated, as the A100"};
constexpr Shares kNone{};

struct Row {
  const char *key, *name;
  int64_t memory_mib;   // as nvidia-smi prints it where known; see docs/machines.md
  double memory_rate;   // bytes per second
  double memory_basis;  // the same, of which copies reach 88 %
  int multiprocessors;
  ComputeCapability compute_capability;
  PeakRates peak;
  const char* peak_source;
  Shares shares;
  double link;  // bytes per second each way, both busy
  const char* link_source;
  bool compared;
  double peer = 0;  // bytes per second from one card to the next, both ways busy; 0: by way of the host
};

// Dense rates with f32 sums; those that data sheets give with sparsity are halved. GeForce cards of Ada and
// Blackwell: 512 FLOPs of bf16 and 1,024 of fp8 a clock and multiprocessor, f32 and tf32 as the white papers
// of their architectures have them. Links: PCIe 4 and 5 of 16 lanes sustain 23 and 45 to 50 GB/s each way
// with both busy, of 8 lanes half. Two thirds of NVLink-C2C's 450 GB/s are a guess. Between cards: 335 of
// NVLink 4's 450 GB/s each way with both busy were measured between two H100; the others get the same part of
// theirs.
// clang-format off
const Row kRows[] = {
    {"rtx4060ti-8gb", "RTX 4060 Ti 8 GB", 8188, 0.288e12, 0.288e12, 34, {8, 9},
     {22.06e12, 22.06e12, 44.1e12, 44.1e12, 88.3e12}, "architecture x clock", kGeForce, 11.5e9, "estimated", false},
    {"laptop", "RTX 4060 Laptop 8 GB", 8188, 0.256e12, 0.256e12, 24, {8, 9},
     {14.6e12, 14.6e12, 29.1e12, 29.1e12, 58.2e12}, "architecture x clock", kGeForce, 11.5e9, "estimated", false},
    {"rtx3080", "RTX 3080 10 GB", 10240, 0.76e12, 0.76e12, 68, {8, 6},
     {29.8e12, 29.8e12, 59.5e12, 59.5e12, 0}, "white paper", kAmpere, 23e9, "estimated", false},
    {"rtx4070ti", "RTX 4070 Ti 12 GB", 12282, 0.5042e12, 0.5042e12, 60, {8, 9},
     {40.1e12, 40.1e12, 80.2e12, 80.2e12, 160.4e12}, "architecture x clock", kGeForce, 23e9, "estimated", false},
    {"rtx3060", "RTX 3060 12 GB", 12288, 0.36e12, 0.36e12, 28, {8, 6},
     {12.7e12, 12.7e12, 25.5e12, 25.5e12, 0}, "architecture x clock", kAmpere, 23e9, "estimated", false},
    {"v100-16gb", "V100 16 GB", 16160, 0.9e12, 0.9e12, 80, {7, 0},
     {15.7e12, 0, 0, 125e12, 0}, "data sheet", kNone, 0, "", false},
    {"rtx5070ti", "RTX 5070 Ti 16 GB", 16303, 0.896e12, 0.896e12, 70, {12, 0},
     {43.9e12, 43.9e12, 87.9e12, 87.9e12, 175.8e12}, "white paper", kGeForce, 45e9, "estimated", false},
    {"rtx5080", "RTX 5080 16 GB", 16303, 0.96e12, 0.96e12, 84, {12, 0},
     {56.3e12, 56.3e12, 112.6e12, 112.6e12, 225.1e12}, "white paper", kGeForce, 45e9, "estimated", false},
    {"rtx5060ti", "RTX 5060 Ti 16 GB", 16311, 0.448e12, 0.448e12, 36, {12, 0},
     {23.7e12, 23.7e12, 47.4e12, 47.4e12, 94.8e12}, "architecture x clock", kGeForce, 23e9, "estimated", false},
    {"rtx4080", "RTX 4080 16 GB", 16376, 0.7168e12, 0.7168e12, 76, {8, 9},
     {48.7e12, 48.7e12, 97.5e12, 97.5e12, 194.9e12}, "white paper", kGeForce, 23e9, "estimated", false},
    {"rtx4060ti", "RTX 4060 Ti 16 GB", 16380, 0.288e12, 0.288e12, 34, {8, 9},
     {22.06e12, 22.06e12, 44.1e12, 44.1e12, 88.3e12}, "architecture x clock", kGeForce, 11.5e9, "estimated", false},
    {"a10", "A10 24 GB", 23028, 0.6e12, 0.6e12, 72, {8, 6},
     {31.2e12, 62.5e12, 125e12, 125e12, 0}, "data sheet", {0.55, 0.5, 0.42, "estimated"}, 23e9, "estimated", false},
    {"l4", "L4 24 GB", 23034, 0.3e12, 0.3e12, 58, {8, 9},
     {30.3e12, 60e12, 121e12, 121e12, 242e12}, "data sheet", {0.55, 0.5, 0.42, "estimated, as the A10"}, 23e9, "estimated", false},
    {"a5000", "RTX A5000 24 GB", 24564, 0.768e12, 0.768e12, 64, {8, 6},
     {27.8e12, 55.6e12, 111.1e12, 111.1e12, 0}, "data sheet", kLikeA100, 23e9, "estimated", false},
    {"rtx4090", "RTX 4090 24 GB", 24564, 1.008e12, 1.008e12, 128, {8, 9},
     {82.6e12, 82.6e12, 165e12, 165e12, 330.3e12}, "white paper", kGeForce, 23e9, "estimated", true},
    {"rtx3090", "RTX 3090 24 GB", 24576, 0.936e12, 0.936e12, 82, {8, 6},
     {35.6e12, 35.6e12, 71e12, 71e12, 0}, "white paper", kAmpere, 23e9, "estimated", true},
    {"v100", "V100 32 GB", 32510, 0.9e12, 0.9e12, 80, {7, 0},
     {15.7e12, 0, 0, 125e12, 0}, "data sheet", kNone, 0, "", false},
    {"rtx5090", "RTX 5090 32 GB", 32607, 1.792e12, 1.79e12, 170, {12, 0},
     {104.8e12, 104.8e12, 209.5e12, 209.5e12, 419e12}, "white paper", kGeForce, 45e9, "estimated", true},
    {"a100-40gb", "A100 40 GB", 40960, 1.555e12, 1.555e12, 108, {8, 0},
     {19.5e12, 156e12, 312e12, 312e12, 0}, "data sheet", kA100, 23e9, "estimated", true, 223e9},
    {"a40", "A40 48 GB", 46068, 0.696e12, 0.696e12, 84, {8, 6},
     {37.4e12, 74.8e12, 149.7e12, 149.7e12, 0}, "data sheet", kLikeA100, 23e9, "estimated", false},
    {"l40s", "L40S 48 GB", 46068, 0.864e12, 0.864e12, 142, {8, 9},
     {91.6e12, 183e12, 362e12, 362e12, 733e12}, "data sheet", kLikeHopper, 23e9, "estimated", false},
    {"a6000", "RTX A6000 48 GB", 49140, 0.768e12, 0.768e12, 84, {8, 6},
     {38.7e12, 77.4e12, 154.8e12, 154.8e12, 0}, "data sheet", kLikeA100, 23e9, "estimated", false},
    {"rtx6000ada", "RTX 6000 Ada 48 GB", 49140, 0.96e12, 0.96e12, 142, {8, 9},
     {91.1e12, 182.1e12, 364.2e12, 364.2e12, 728.5e12}, "data sheet", kLikeHopper, 23e9, "estimated", false},
    {"h100", "H100 80 GB", 81559, 3.35e12, 3.35e12, 132, {9, 0},
     {67e12, 494.7e12, 989.5e12, 989.5e12, 1979e12}, "data sheet", kH100, 50e9, "estimated", true, 335e9},
    {"a100", "A100 80 GB", 81920, 2.039e12, 2.0e12, 108, {8, 0},
     {19.5e12, 156e12, 312e12, 312e12, 0}, "data sheet", kA100, 23e9, "estimated", true, 223e9},
    {"tpuv5p", "TPU v5p 95 GB", 97280, 2.765e12, 2.765e12, 0, {},
     {0, 0, 459e12, 0, 0}, "data sheet", kNone, 0, "", false},
    {"gh200", "GH200 96 GB", 97871, 4.0e12, 4.0e12, 132, {9, 0},
     {67e12, 494.7e12, 989.5e12, 989.5e12, 1979e12}, "data sheet", kLikeHopper, 300e9, "estimated", false},
    {"h20", "H20 96 GB", 97871, 4.0e12, 4.0e12, 78, {9, 0},
     {44e12, 74e12, 148e12, 148e12, 296e12}, "data sheet", kLikeHopper, 50e9, "estimated", false, 335e9},
    {"rtxpro6000", "RTX PRO 6000 96 GB", 97887, 1.792e12, 1.792e12, 188, {12, 0},
     {125e12, 251.9e12, 503.8e12, 503.8e12, 1007.6e12}, "white paper", kLikeHopper, 45e9, "estimated", false},
    {"gb10", "GB10 128 GB", 122070, 0.273e12, 0.273e12, 48, {12, 1},
     {30.7e12, 30.7e12, 61.4e12, 61.4e12, 122.9e12}, "architecture x clock", kNone, 0, "", false},
    {"h200", "H200 141 GB", 143771, 4.8e12, 4.8e12, 132, {9, 0},
     {67e12, 494.7e12, 989.5e12, 989.5e12, 1979e12}, "data sheet", kH200, 50.8e9, "measured", true, 335e9},
    {"b200", "B200 180 GB", 183359, 7.7e12, 7.7e12, 148, {10, 0},
     {75e12, 1125e12, 2250e12, 2250e12, 4500e12}, "data sheet", kLikeHopper, 50e9, "estimated", false, 670e9},
    {"mi300x", "MI300X 192 GB", 196592, 5.3e12, 5.3e12, 304, {},
     {163.4e12, 653.7e12, 1307.4e12, 1307.4e12, 2614.9e12}, "data sheet", kNone, 0, "", false},
};
// clang-format on

Card card_of(const Row& r) {
  Card c;
  c.key = r.key, c.name = r.name;
  c.memory_bytes = r.memory_mib * kMiB;
  c.memory_rate = r.memory_rate;
  c.multiprocessors = r.multiprocessors, c.compute_capability = r.compute_capability;
  c.peak = r.peak;
  c.peak_source = r.peak_source;
  c.bf16 = {c.peak.bf16 * r.shares.products, c.peak.bf16 * r.shares.attention_forward,
            c.peak.bf16 * r.shares.attention_backward};
  c.reached_source = r.shares.source;
  if (c.can_be_planned()) {
    c.memory_reached = r.memory_basis * 0.88;  // what a copy reaches of the data sheet
    c.load_rate = c.store_rate = r.link;
    c.peer_rate = r.peer;
    c.link_source = r.link_source;
    c.held_bytes = {{kDevice, kHeldByDevice}, {kHost, kHeldByHost}};
    c.host_growth = kHostGrowthOnGpu;
  }
  c.compared = r.compared;
  return c;
}

}  // namespace

std::span<const Card> cards() {
  static const std::vector<Card> all = [] {
    std::vector<Card> out;
    for (const Row& row : kRows) out.push_back(card_of(row));
    return out;
  }();
  return all;
}

std::vector<std::string_view> card_names() {
  std::vector<std::string_view> names;
  for (const bool planned : {true, false}) {
    for (const Card& card : cards()) {
      if (card.can_be_planned() == planned) names.push_back(card.key);
    }
  }
  return names;
}

namespace {

// The words of a name in lower case, letters and digits together: "NVIDIA A100-SXM4-80GB" has four.
std::vector<std::string> words_of(std::string_view name) {
  std::vector<std::string> words;
  bool inside = false;
  for (const char c : name) {
    const std::string letter = plain_name(std::string_view(&c, 1));
    if (!letter.empty() && inside) {
      words.back() += letter;
    } else if (!letter.empty()) {
      words.push_back(letter);
    }
    inside = !letter.empty();
  }
  return words;
}

// "80gb", of a name that has its memory, whether or not a space stands in it; empty: it does not.
std::string memory_in(std::span<const std::string> words) {
  for (size_t w = 0; w < words.size(); ++w) {
    if (words[w] == "gb" && w > 0) return words[w - 1] + "gb";
    if (words[w].size() > 2 && words[w].ends_with("gb")) return words[w];
  }
  return {};
}

// A word behind the name of a card that makes it another card; `card` empty: behind any.
struct OtherCard {
  std::string_view card, word;
};
constexpr OtherCard kOtherCards[] = {{"", "ti"},   {"", "super"}, {"", "laptop"},  {"", "d"},
                                     {"", "maxq"}, {"", "nvl"},   {"h100", "pcie"}};

// How many words of a driver's name are the card's; 0: it is another card's name.
size_t words_in_common(std::span<const std::string> driver, std::span<const std::string> card) {
  const auto at = std::search(driver.begin(), driver.end(), card.begin(), card.end());
  if (at == driver.end()) return 0;
  const auto next = at + std::ssize(card);
  const bool other =
      next != driver.end() && std::any_of(std::begin(kOtherCards), std::end(kOtherCards), [&](const auto& o) {
        return *next == o.word && (o.card.empty() || o.card == card.back());
      });
  return other ? 0 : card.size();
}

}  // namespace

// The card of which most words stand in the driver's name; of several the one whose memory stands there, too,
// and then the one with the shorter name.
const Card* card_called(std::string_view driver_name) {
  const std::vector<std::string> driver = words_of(driver_name);
  const std::string memory = memory_in(driver);
  const Card* found = nullptr;
  std::tuple<size_t, bool, int64_t> best;
  for (const Card& card : cards()) {
    std::vector<std::string> own = words_of(card.name);
    const std::string own_memory = memory_in(own);
    own.resize(own.size() - 2);  // "80 GB"
    const size_t common = words_in_common(driver, own);
    const std::tuple score(common, own_memory == memory, -std::ssize(card.key));
    if (common > 0 && (found == nullptr || score > best)) found = &card, best = score;
  }
  return found;
}

Result<Card> find_card(std::string_view name) {
  const auto plain = [](std::string_view written) {
    std::string out = plain_name(written);
    for (const std::string_view maker : {"nvidia", "geforce", "rtx"}) {
      if (out.starts_with(maker)) out.erase(0, maker.size());
    }
    return out;
  };
  for (const Card& card : cards()) {
    if (plain(name) == plain(card.name) || plain(name) == plain(card.key)) return card;
  }
  if (const Card* card = card_called(name)) return *card;
  std::string near;
  size_t least = SIZE_MAX;
  for (const Card& card : cards()) {
    const size_t apart = edit_distance(plain(name), plain(card.key));
    if (apart < least) least = apart, near = card.key;
  }
  const bool meant = similar(plain_name(name), plain_name(near));
  return error("machine '{}': known are {}, and files that end in .toml{}", name,
               fmt::join(card_names(), ", "), meant ? fmt::format("; the nearest name is {}", near) : "");
}

Result<Profile> profile_of(const Card& card, DType compute) {
  const bool bf16 = compute == DType::BF16;
  const ReachedRates& reached = bf16 ? card.bf16 : card.f32;
  if (!reached.known()) {
    if (!card.can_be_planned()) {
      return error(
          "machine {}: nobody says what steps reach there, so nothing can be planned for it; sluice estimate "
          "takes "
          "its data sheet",
          card.key);
    }
    return error(
        "train.compute = {}: {} has rates of steps in {} only, and none is made from another format's",
        name_of(compute), card.key, name_of(bf16 ? DType::F32 : DType::BF16));
  }
  Profile p;
  p.name = card.key;
  p.peak_flops = bf16 ? card.peak.bf16 : card.peak.f32;
  p.narrow_peak_flops = card.peak.f8;
  p.rates.product_flops = reached.products;
  p.rates.attention_forward_flops = reached.attention_forward;
  p.rates.attention_backward_flops = reached.attention_backward;
  p.rates.memory_bytes = card.memory_reached;
  p.rates.launch_ns = 4000;
  // Hopper's own kernels for them, as measured on an H200.
  const bool hopper = card.compute_capability.major == 9;
  if (hopper) p.rates.grouped_share = 0.85;
  // Measured on an H200. Elsewhere own kernels compute scores several times: estimated.
  p.rates.wide_forward_share = hopper ? 0.78 : 0.35;
  p.rates.wide_backward_share = hopper ? 0.38 : 0.15;
  // Where a pass scales sums: of 8B's shapes on an H200 that was made to.
  if (card.compute_capability.known() && !scales_products(card.compute_capability))
    p.rates.narrow_share = 1.5;
  p.set_bytes_per_s(kHost, kDevice, card.load_rate);
  p.set_bytes_per_s(kDevice, kHost, card.store_rate);
  p.transfer_latency_ns = 10000;
  p.copy_slowdown = card.copy_slowdown;
  p.alignment = 256;
  p.overhead_bytes = card.held_bytes;
  p.host_growth = card.host_growth;
  const GpuLibraries libraries{.capability = card.compute_capability};
  p.workspace_bytes = [libraries](const Op& op) { return workspace_bytes(op, libraries); };
  return p;
}

}  // namespace sluice::core
