// SPDX-License-Identifier: Apache-2.0
// Copies over several links at once, and when each ran.
#pragma once

#include <span>
#include <vector>

#include "backend/backend.h"

namespace sluice::core {

constexpr int64_t kLeastLinkBytes = 4096;

// How much a copy moves whose rate is measured, in bytes: a lot, as a step's copies do, but a part of a small
// device. It is no more than there is room for on both sides beside what else is in the arenas. Each of the
// devices reads and writes that much of the host's. A multiple of kLeastLinkBytes.
int64_t link_copy_bytes(const BytesByTier& most, size_t devices);

// How many pairs of copies of so many bytes go through the host for each device, one after the other, where
// copies take no cores. They take half of `host_bytes` at most. A step's copies touch more memory, and more
// of the addresses that devices use, than caches hold. In 128 MiB for each of two H200 rates were a quarter
// too high.
int64_t link_places(int64_t host_bytes, size_t devices, int64_t bytes);

// One copy, done again and again. REQUIRES: the lane joins its tiers.
struct LinkCopy {
  Lane lane;
  Copy copy;
  // Each time at the next of so many places on the host, so many bytes apart.
  int64_t places = 1, apart = 0;

  Copy at(int64_t turn) const;
};

// Runs every copy `times` times, the lanes beside each other, and beside them `launches` of `busy` on the
// first device. When each ran, by lane in order. The arenas are reserved.
Result<ByLane<std::vector<Interval>>> run_copies(Backend& backend, std::span<const LinkCopy> copies,
                                                 uint32_t times, const Launch& busy = {},
                                                 uint32_t launches = 0);

// Runs of each lane within the time in which every lane with work was at it, without their first ones, which
// warm up. All runs where lanes did not meet, as on a busy machine.
ByLane<std::vector<Interval>> while_all_work(const ByLane<std::vector<Interval>>& runs);

// Mean length, at least 1 ns. REQUIRES: not empty.
double mean_ns(std::span<const Interval> runs);

}  // namespace sluice::core
