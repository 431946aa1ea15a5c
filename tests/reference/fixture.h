// SPDX-License-Identifier: Apache-2.0
// The committed PyTorch fixtures (tests/fixtures/README.md), and how far from them a result may be.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "checkpoint/weights.h"
#include "equivalence/rig/rig.h"
#include "io/file.h"
#include "io/safetensors.h"
#include "model/families/families.h"

namespace sluice::core {

struct Fixture {
  std::filesystem::path dir;
  ModelSpec config;
  TensorFiles expected;

  // `file` holds what is expected.
  explicit Fixture(const std::string& name, const std::string& file = "expected.safetensors")
      : dir(std::filesystem::path(SLUICE_FIXTURES) / name),
        config(rig::must(parse_model_config(rig::must(read_file(dir / "config.json"))))),
        expected(rig::must(TensorFiles::open(dir / file))) {}

  template <class T>
  std::vector<T> values(const std::string& tensor) const {
    const SafeTensor* t = rig::must(expected.get(tensor));
    std::vector<T> out(t->bytes.size() / sizeof(T));
    std::memcpy(out.data(), t->bytes.data(), t->bytes.size());
    return out;
  }
  // "" for the dense batch, "packed_" for the packed one.
  rig::Tokens tokens(const std::string& prefix, int64_t seq_len) const {
    rig::Tokens out{values<int32_t>(prefix + "tokens"), values<int32_t>(prefix + "targets"), {}};
    if (!prefix.empty()) {
      out.positions = values<int32_t>(prefix + "positions");
    } else {
      for (size_t i = 0; i < out.tokens.size(); ++i) out.positions.push_back(int32_t(i % size_t(seq_len)));
    }
    return out;
  }
};

// Updates that are deferred, so that gradients outlive the step.
inline OptimizerConfig deferred_updates() {
  OptimizerConfig out;
  out.deferred = true;
  return out;
}

// A training run on the fixture's weights.
inline std::unique_ptr<rig::Rig> open_fixture(const Fixture& fixture, const StepShape& shape,
                                              const Numerics& numerics,
                                              const OptimizerConfig& optimizer = deferred_updates()) {
  Question request;
  request.model = fixture.config;
  request.shape = shape;
  request.numerics = numerics;
  request.optimizer = optimizer;
  auto run = std::make_unique<rig::Rig>(request);
  run->initialize();
  rig::must(load_weights(run->model(), fixture.dir, run->training()));
  return run;
}

// ||a - b||
inline double length(const std::vector<float>& a, const std::vector<float>& b = {}) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double d = double(a[i]) - (b.empty() ? 0 : double(b[i]));
    sum += d * d;
  }
  return std::sqrt(sum);
}
// ||a - b|| / ||b|| and the cosine of the angle between them.
struct Distance {
  double relative = 0, cosine = 0, largest = 0;  // largest: max |a - b| / max |b|
};
inline Distance distance(const std::vector<float>& a, const std::vector<float>& b) {
  double aa = 0, bb = 0, ab = 0, dd = 0, worst = 0, top = 0;
  for (size_t i = 0; i < b.size(); ++i) {
    const double x = a[i], y = b[i];
    aa += x * x, bb += y * y, ab += x * y, dd += (x - y) * (x - y);
    worst = std::max(worst, std::abs(x - y)), top = std::max(top, std::abs(y));
  }
  return {std::sqrt(dd / bb), ab / std::sqrt(aa * bb), worst / top};
}

// Calls f(tensor name, values) for every checkpoint tensor that is trained, with its part of object `prefix`
// + weight.
template <class F>
void for_each_tensor(const ModelSpec& config, const Executor& executor, const std::string& prefix, F&& f) {
  std::map<std::string, std::vector<float>> tensors;  // of several weights, some
  for (const Weight& weight : weights_of(config)) {
    if (!weight.trainable) continue;
    const auto all = rig::read_floats(executor, rig::find(executor.program(), prefix + weight.object));
    for (const auto& [first, rows] : rows_in(saved_of(weights_of(config)), weight)) {
      const WeightSource& s = *rows;
      std::vector<float>& tensor = tensors[s.tensor];
      tensor.resize(size_t(s.all_rows() * s.cols), NAN);
      for (int64_t done = 0; done < s.elements();) {
        const auto [at, count] = s.stretch(done, s.elements());
        for (int64_t i = 0; i < count; ++i)
          tensor[size_t(s.in_tensor(at + i))] = all[size_t(first + done + i)];
        done += count;
      }
    }
  }
  for (const auto& [name, values] : tensors) f(name, values);
}

}  // namespace sluice::core
