// SPDX-License-Identifier: Apache-2.0
// The CPU backend: a "device" is an arena of main memory, lanes are threads, copies are memcpy. Several
// devices are several arenas, each with its part of the threads.
#pragma once

#include <memory>
#include <string>

#include "backend/cpu/isa.h"
#include "backend/kind.h"
#include "base/network.h"

namespace sluice::core {

struct CpuOptions {
  int threads =
      0;  // that compute; 0: one per core this process may use. Copies have one more thread per direction.
  int devices = 1;              // each computes with an equal part of the threads, at least one
  bool joined = true;           // copies go from device to device; otherwise by way of the host
  bool reads_disk = false;      // each has a lane from the disk
  Network* network = nullptr;   // every device has a lane to it; null: there is none
  CpuIsa isa = best_cpu_isa();  // up to that
  bool exact = false;           // see BackendOptions
};

// Results depend neither on timing nor on the number of threads; they do depend on the instruction set, and
// on `exact`.
//
// Commands of a step may be any mix of launches (on the compute lane) and copies (on the others). A launch
// fails, and with it the step, when its op was not given to prepare() or its buffers have other sizes than
// the op asks for. So it does when ids or targets lie outside the vocabulary.
std::unique_ptr<Backend> make_cpu_backend(const CpuOptions& options = {});

const BackendKind& cpu_kind();

// Whether the backend can run the op. The error names the op and what is allowed.
Status cpu_supports(const Op& op);

// Products of bf16 matrices run on hardware made for them, and faster than f32.
bool cpu_has_fast_bf16(CpuIsa isa);

// The processor, the cores this process may use and the instruction set, in one line.
std::string cpu_description(CpuIsa isa = best_cpu_isa());

}  // namespace sluice::core
