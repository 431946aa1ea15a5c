// SPDX-License-Identifier: Apache-2.0
#include "host/host_pages.h"

#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>

#include "base/parallel.h"
#include "host/topology.h"

namespace sluice::core {
namespace {

// The piece that a thread populates at a time: some tens of milliseconds.
constexpr int64_t kPiece = 128 * kMiB;

bool stay_on(std::span<const int> cores) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int core : cores)
    if (core < CPU_SETSIZE) CPU_SET(core, &set);
  return sched_setaffinity(0, sizeof set, &set) == 0;
}

std::vector<int> cores_of_thread() {
  cpu_set_t set;
  std::vector<int> out;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return out;
  for (int core = 0; core < CPU_SETSIZE; ++core)
    if (CPU_ISSET(core, &set)) out.push_back(core);
  return out;
}

}  // namespace

OnCores::OnCores(std::span<const int> cores) : before_(cores_of_thread()) {
  if (before_.empty() || !stay_on(cores)) before_.clear();
}

OnCores::~OnCores() {
  if (!before_.empty()) stay_on(before_);
}

std::vector<NearPart> near_parts(std::span<const HostPart> parts, std::span<const std::string> addresses,
                                 const std::filesystem::path& root) {
  std::vector<NearPart> out;
  const std::vector<NumaNode> nodes = numa_nodes(root);
  if (nodes.size() < 2) return out;
  std::vector<std::vector<int>> cores;  // by device
  for (const std::string& address : addresses) {
    cores.emplace_back();
    const auto number = pci_place(address, root).node;
    const auto node = std::ranges::find_if(nodes, [&](const NumaNode& n) { return n.number == number; });
    if (node != nodes.end()) cores.back() = cores_in(node->cores);
  }
  for (const HostPart& part : parts) {
    const std::vector<int>& near = cores[part.device.index()];
    if (!near.empty()) out.push_back({part.begin, part.end, near});
  }
  return out;
}

void populate(std::byte* data, int64_t bytes) {
#ifdef MADV_POPULATE_WRITE
  if (madvise(data, size_t(bytes), MADV_POPULATE_WRITE) == 0) return;  // Linux 5.14
#endif
  const int64_t page = sysconf(_SC_PAGESIZE);
  for (int64_t at = 0; at < bytes; at += page) {
    std::atomic_ref(reinterpret_cast<unsigned char&>(data[at])).fetch_or(0, std::memory_order_relaxed);
  }
}

void populate_near(std::byte* arena, std::span<const NearPart> parts) {
  struct Piece {
    int64_t begin, bytes;
    const std::vector<int>* cores;
  };
  std::vector<Piece> pieces;
  for (const NearPart& part : parts) {
    for (int64_t at = part.begin; at < part.end; at += kPiece)
      pieces.push_back({at, std::min(kPiece, part.end - at), &part.cores});
  }
  for_each_parallel(std::ssize(pieces), search_threads(), [&](int64_t i) {
    const Piece& piece = pieces[size_t(i)];
    const OnCores on(*piece.cores);
    populate(arena + piece.begin, piece.bytes);
  });
}

}  // namespace sluice::core
