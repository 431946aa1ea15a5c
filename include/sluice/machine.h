// SPDX-License-Identifier: Apache-2.0
// What runs the steps: this machine, or one that is only planned for.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "sluice/status.h"

namespace sluice {

namespace core {
struct Machine;
}

struct MachineOptions {
  std::string backend = "auto";  // or one that this build has: "cpu", "cuda"
  int device = 0;                // index of the GPU
  // Devices that share a step: "all", how many, or their indices, "0,2"; with "1" `device` says which. The
  // device cap is that of each. On a CPU as many arenas that share its cores.
  std::string devices = "1";
  bool peer_copies = true;     // devices copy to each other where they can; otherwise by way of the host
  int threads = 0;             // that compute on the CPU; 0: all cores
  bool deterministic = false;  // equal bits in every run on a GPU, too, at some speed
  // Log-probabilities of samples are, to the bit, those that steps compute, and routers choose the same
  // experts; at some speed. Sequences are not cut into pieces.
  bool exact = false;
  // Keeps measured costs and plans. Empty: they are made anew each time.
  std::filesystem::path cache;
};

// A value: copies share what they hold and never change.
class Machine {
 public:
  // Looks at the hardware; takes none of its memory.
  static Result<Machine> here(const MachineOptions& options = {});
  // One that need not be there: "rtx4090", or the path of a machine file, "mine.toml". The error of an
  // unknown name lists them. `devices` of them, up to 8, share a step.
  static Result<Machine> preset(std::string_view name, int devices = 1);
  static std::vector<std::string> presets();

  std::string description() const;  // one line
  int64_t device_bytes() const;     // that a device has to give; -1: unknown
  int devices() const;              // that share a step
  // Whether a Session can open here: false for presets.
  bool runs_models() const;

  const core::Machine& machine() const { return *machine_; }
  const MachineOptions& options() const { return options_; }

 private:
  Machine(std::shared_ptr<const core::Machine> machine, MachineOptions options)
      : machine_(std::move(machine)), options_(std::move(options)) {}

  std::shared_ptr<const core::Machine> machine_;
  MachineOptions options_;
};

}  // namespace sluice
