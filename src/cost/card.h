// SPDX-License-Identifier: Apache-2.0
// A machine as data: what it has by its data sheet, and what steps were seen or are guessed to reach of it.
// What plans for machines that are not here, and arithmetic without a plan, go by.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/compute_capability.h"
#include "base/dtype.h"
#include "cost/profile.h"

namespace sluice::core {

// Floating-point operations per second of dense products with f32 sums, by the number format of what is
// multiplied. 0: the machine has none, or nobody says. No rate is ever made from that of another format.
struct PeakRates {
  double f32 = 0, tf32 = 0, bf16 = 0, f16 = 0, f8 = 0;
};

// Rates of steps in one number format, FLOPs per second. All are 0 where unknown.
struct ReachedRates {
  double products = 0, attention_forward = 0, attention_backward = 0;

  bool known() const { return products > 0; }
};

// Memory of a process beside its arenas, by default: context, kernels and library handles on the device,
// measured on an H200; on the host what runs mostly held. A process sets some more aside, for the most that
// one of them held (base/host_growth.h).
constexpr int64_t kHeldByDevice = 600 * kMiB, kHeldByHost = 686 * kMiB;

// Bytes per second that an NVMe drive on four lanes of PCIe 3 reads, about.
constexpr double kDiskRate = 3e9;

struct Card {
  std::string key;           // as --machine takes it: "rtx4090"
  std::string name;          // "RTX 4090 24 GB"
  int64_t memory_bytes = 0;  // what the driver reports in all
  double memory_rate = 0;    // data sheet, bytes per second
  int multiprocessors = 0;   // 0: unknown
  ComputeCapability compute_capability;
  PeakRates peak;
  // By the formats that Sluice computes in. With neither the machine serves arithmetic only.
  ReachedRates bf16, f32;
  double memory_reached = 0;             // bytes per second, read + write
  double load_rate = 0, store_rate = 0;  // bytes per second from the host and to it, both busy
  // All that the devices of one host load together, and as much that they store; 0: each has the rates above.
  double host_rate = 0;
  double peer_rate = 0;      // from one of several to the next, both ways busy; 0: by way of the host
  double disk_rate = 0;      // bytes per second that are read from files; 0: kDiskRate
  double copy_slowdown = 0;  // as in Profile
  BytesByTier held_bytes;    // by the process beside its arenas
  HostGrowth host_growth;    // as in Profile
  // Where numbers come from, in words: "data sheet", "measured", "estimated".
  std::string peak_source, reached_source, link_source;
  // Speeds planned for it were compared with measured or published ones: docs/machines.md says how far off.
  bool compared = false;

  // The largest cap to plan for: the driver and other processes keep some.
  int64_t usable_bytes() const { return memory_bytes - kGiB; }
  bool can_be_planned() const { return bf16.known() || f32.known(); }
};

// How far speeds planned for a card were from measured or published ones: |planned / theirs - 1|.
struct OffBy {
  bool measured = false;  // by us; else others published them, of programs with schedules of their own
  double mean = 0, worst = 0;
  int speeds = 0;  // that were compared
};
// Nothing: no speed planned for it was compared.
std::optional<OffBy> off_by(const Card& card);
std::string to_text(const OffBy& off_by);

// From the smallest memory to the largest.
std::span<const Card> cards();
// The keys of cards(): those that plans can be made for first.
std::vector<std::string_view> card_names();

// The card of a key or name; case, spaces and hyphens do not matter: RTX4090, "rtx 4090", "A100 40 GB",
// a100-40gb.
Result<Card> find_card(std::string_view name);
// The card whose key a driver's name of a device contains, the longest such key: that of "NVIDIA GeForce RTX
// 4090"; null: none.
const Card* card_called(std::string_view driver_name);

// The profile for plans, in the format that the steps compute in. The error of a format without rates names
// those that there are.
Result<Profile> profile_of(const Card& card, DType compute);

// The card with keys of a machine file set otherwise; its name says which. Errors begin with "machine.KEY".
Result<Card> changed(Card card, std::span<const std::pair<std::string, std::string>> settings);

// A machine file: TOML that parse_card() reads back. docs/machines.md has its keys.
std::string to_toml(const Card& card);
// `name` stands for the file in errors; its stem is the card's key, and its name where the text has none.
Result<Card> parse_card(std::string_view text, const std::string& name);

}  // namespace sluice::core
