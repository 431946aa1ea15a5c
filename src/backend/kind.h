// SPDX-License-Identifier: Apache-2.0
// What is known of a kind of backend without making one: what it is like, what it finds on this machine, and
// how one is made. Whoever plans, measures or configures asks for these, never for a name.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "backend/backend.h"
#include "base/bytes.h"
#include "base/host_growth.h"
#include "base/network.h"

namespace sluice::core {

struct BackendTraits {
  bool runs_models = true;  // false: steps are planned for it and predicted, nothing more
  bool shares_cores =
      false;  // copies take cores and memory bandwidth from ops, so that transfers hide nowhere
  bool compact_state = true;  // bf16 gradients and moments by default: memory and links bind before compute
  bool repeats = false;       // runs have equal bits, whatever BackendOptions::deterministic says
  bool takes_f32 = true;   // runs may have f32 weights and activations: there are ops for all that they need
  bool fast = true;        // large models are worth running, not just simulating
  double settle_ns = 1e8;  // for how long ops run until their speed is that of a long run
  // A device finds a host arena by tables of its own: so many bytes of the arena take one byte of every
  // device. 0: none.
  int64_t host_bytes_per_table_byte = 0;
};

// Bytes of a device in use, and those of processes that the driver names.
struct DeviceUse {
  int64_t used_bytes = 0, named_bytes = 0;
  int64_t unnamed() const { return used_bytes - named_bytes; }
};

// Each backend takes what concerns it.
struct BackendOptions {
  int device = 0;            // which one, where there are several
  int place_here = 0;        // with `device` alone: the one so many behind it, in turn over all there are
  std::vector<int> devices;  // those that share a step; empty: `device` alone
  bool all_devices = false;  // all that find() finds, instead
  std::vector<DeviceUse> before = {};  // of each of them, as find() saw it; empty: unknown
  bool joined = true;           // devices copy to each other where they can; otherwise by way of the host
  int threads = 0;              // that compute; 0: all cores
  std::string instruction_set;  // of the CPU, as run.instruction_set names it; empty: the best that it has
  bool deterministic = false;   // equal bits in every run
  // Passes that generate text compute with the bits of training, however many rows they have. Products are
  // summed up in one order, and attention goes over blocks of keys from a document's beginning on. That is
  // not so of attention between pieces of a sequence.
  bool exact = false;
  std::string cache;                        // a folder that is kept from one start to the next; empty: none
  bool reads_disk = false;                  // every device has a lane from the disk
  Network* network = nullptr;               // the processes that share a step; borrowed. Null: this one alone
  DeviceNetwork* device_network = nullptr;  // as join() made it; borrowed. Null: by way of the host
};

// The devices of several processes, or why what they exchange passes through the host.
struct JoinedDevices {
  std::unique_ptr<DeviceNetwork> network;
  std::string why_not;
};

// The machine as a backend finds it.
struct FoundMachine {
  std::string name;         // hardware and versions: all that costs depend on
  std::string description;  // one line for people
  std::string model;        // of the accelerator, as its driver calls it; empty: none
  std::string uuid;         // of this very device; empty: unknown
  // Several devices: those that make() takes, and whether they copy to each other.
  std::vector<int> devices;
  bool joined = false;
  std::vector<DeviceUse> before;            // each of those that make() takes
  bool fast_bf16 = false;                   // products of bf16 matrices are faster than those of f32
  int64_t device_total_bytes = kUnlimited;  // what the device has to give
  int64_t host_margin_bytes = 0;            // by how much the process grows once it runs,
  HostGrowth host_growth;                   // and what comes on top of that
};

struct BackendKind {
  std::string_view name;
  BackendTraits traits;
  // Errors say what is missing and how to get it; so do those of make(). REQUIRES for both: runs_models.
  Result<FoundMachine> (*find)(const BackendOptions&) = nullptr;
  Result<std::unique_ptr<Backend>> (*make)(const BackendOptions&) = nullptr;
  std::string (*report)() = nullptr;  // lines for `doctor`: what there is, and what is missing
  bool (*is_built)() = nullptr;       // whether this program has it; null: it has
  // Joins the device that make() would take to those of the other processes of options.network, each of which
  // has to call it; null: the kind has no such way. After an error the others may wait for ever.
  Result<JoinedDevices> (*join)(const BackendOptions&) = nullptr;
};

}  // namespace sluice::core
