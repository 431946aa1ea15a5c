// SPDX-License-Identifier: Apache-2.0
// Runs single ops on a CPU backend, with operands given and returned as doubles.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "backend/cpu/cpu_backend.h"
#include "base/bytes.h"
#include "ops/op.h"
#include "support/one_device.h"

namespace sluice::core::testing {

using Values = std::vector<double>;

// Uniform in [-1, 1), always the same for one seed.
inline Values random_values(int64_t count, uint32_t seed) {
  std::mt19937 engine(seed);
  std::uniform_real_distribution<double> uniform(-1, 1);
  Values values(static_cast<size_t>(count));
  for (double& v : values) v = uniform(engine);
  return values;
}

inline void encode(DType type, const Values& values, std::byte* to) {
  for (size_t i = 0; i < values.size(); ++i) {
    const double v = values[i];
    const auto put = [&](auto x) { std::memcpy(to + i * sizeof x, &x, sizeof x); };
    switch (type) {
      case DType::F32:
        put(static_cast<float>(v));
        break;
      case DType::BF16:
        put(Bf16(static_cast<float>(v)));
        break;
      case DType::F64:
        put(v);
        break;
      case DType::I32:
        put(static_cast<int32_t>(v));
        break;
      case DType::U8:
        put(static_cast<uint8_t>(v));
        break;
      case DType::F8E4M3:
      case DType::F4E2M1:
      case DType::I8:
      case DType::F8E8M0:
      case DType::NF4:
      case DType::F8E5M2:
        not_a_float(type);
    }
  }
}

inline Values decode(DType type, const std::byte* from, int64_t elements) {
  Values values(static_cast<size_t>(elements));
  for (size_t i = 0; i < values.size(); ++i) {
    const auto get = [&](auto x) {
      std::memcpy(&x, from + i * sizeof x, sizeof x);
      return x;
    };
    switch (type) {
      case DType::F32:
        values[i] = double{get(float{})};
        break;
      case DType::BF16:
        values[i] = double{float(get(Bf16{}))};
        break;
      case DType::F64:
        values[i] = get(double{});
        break;
      case DType::I32:
        values[i] = get(int32_t{});
        break;
      case DType::U8:
        values[i] = get(uint8_t{});
        break;
      case DType::F8E4M3:
      case DType::F4E2M1:
      case DType::I8:
      case DType::F8E8M0:
      case DType::NF4:
      case DType::F8E5M2:
        not_a_float(type);
    }
  }
  return values;
}

// What a value becomes when stored as `type`.
inline Values rounded(DType type, const Values& values) {
  std::vector<std::byte> bytes(values.size() * static_cast<size_t>(size_of(type)));
  encode(type, values, bytes.data());
  return decode(type, bytes.data(), static_cast<int64_t>(values.size()));
}

inline Values as_values(const StepArgs& args) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(&args);
  return Values(bytes, bytes + sizeof args);
}

// Operand contents in the op's order; an empty one starts as NaN (or zero where there is none).
using Contents = std::vector<Values>;

// Runs `op` once and returns all operands as they are afterwards; a fault is left in `fault`.
inline Contents run_op(const Op& op, const Contents& contents, const CpuOptions& options = {.threads = 2},
                       std::optional<Fault>* fault_out = nullptr) {
  const auto backend = make_cpu_backend(options);
  const Operands schema = operands(op);
  const int64_t align = backend->alignment(), workspace = backend->workspace_bytes(op);
  int64_t total = align_up(workspace, align);
  for (const Operand& o : schema) total += align_up(o.bytes(), align);
  auto arenas = backend->reserve({{kDevice, total}});
  EXPECT_TRUE(arenas.ok());
  const std::vector<SharedOp> ops{op};
  const Status prepared = backend->prepare(ops);
  EXPECT_TRUE(prepared.ok()) << prepared.message();
  std::byte* next = (*arenas)[kDevice];
  // Nothing may depend on what the workspace held.
  std::memset(next, 0xff, static_cast<size_t>(total));
  const Buffer scratch{next, workspace};
  next += align_up(workspace, align);
  std::vector<Buffer> buffers;
  for (size_t i = 0; i < schema.size(); ++i) {
    buffers.push_back({next, schema[i].bytes()});
    next += align_up(schema[i].bytes(), align);
    if (i < contents.size() && !contents[i].empty()) {
      EXPECT_EQ(static_cast<int64_t>(contents[i].size()), schema[i].elements) << schema[i].name;
      encode(schema[i].format.type, contents[i], buffers[i].data);
    }
  }
  EXPECT_TRUE(backend->begin(1, true).ok());
  EXPECT_TRUE(backend->submit({0, kCompute, {}, Launch{&*ops[0], buffers, scratch}, 0}).ok());
  const std::optional<Fault> fault = backend->finish(nullptr);
  if (fault_out) {
    *fault_out = fault;
  } else {
    EXPECT_FALSE(fault.has_value()) << fault->error.message;
  }
  Contents after;
  for (size_t i = 0; i < schema.size(); ++i) {
    after.push_back(decode(schema[i].format.type, buffers[i].data, schema[i].elements));
  }
  return after;
}

// max |a - b| / max |b|
inline double relative_error(const Values& a, const Values& b) {
  double difference = 0, size = 1e-30;
  for (size_t i = 0; i < b.size(); ++i) {
    if (!(std::abs(a[i] - b[i]) <= 1e300)) return INFINITY;
    difference = std::max(difference, std::abs(a[i] - b[i]));
    size = std::max(size, std::abs(b[i]));
  }
  return difference / size;
}

// Tolerance of results stored as `type`: a few roundings to it.
inline double tolerance(DType type) {
  return type == DType::BF16 ? 8e-3 : 4e-6;
}

}  // namespace sluice::core::testing
