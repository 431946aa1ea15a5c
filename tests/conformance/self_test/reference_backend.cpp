// SPDX-License-Identifier: Apache-2.0
#include "conformance/self_test/reference_backend.h"

#include <bit>

#include "ops/rounding.h"

namespace sluice::core::conformance {

std::vector<Tensor> ReferenceBackend::read(const Launch& launch) {
  const Operands schema = operands(*launch.op);
  std::vector<Tensor> tensors;
  for (size_t i = 0; i < schema.size(); ++i) {
    const Buffer& buffer = launch.operands[i];
    tensors.push_back({schema[i].format, {buffer.data, buffer.data + buffer.bytes}});
  }
  return tensors;
}

std::vector<Tensor> ReferenceBackend::results(const Op& op, std::vector<Tensor> operands) {
  for (const Expected& expected : reference(op, operands)) {
    Tensor& tensor = operands[static_cast<size_t>(expected.operand)];
    std::vector<double> values;
    for (const Approx& value : expected.values) values.push_back(value.value);
    if (expected.residual >= 0) {
      for (double& x : values) x = rounded_master(double{static_cast<float>(x)});
      set_masters(values, tensor, operands[static_cast<size_t>(expected.residual)]);
      continue;
    }
    if (tensor.format.block > 0) {
      // What was not computed stays as it was: rounding it anew may change it.
      std::vector<double> before = tensor.values();
      before.resize(values.size());
      if (values != before) tensor = make_tensor(tensor.format, values);
      continue;
    }
    for (size_t i = 0; i < expected.values.size(); ++i) {
      const double value = expected.values[i].value;
      if (expected.draws.empty()) {
        tensor.set(static_cast<int64_t>(i), value);
      } else {
        const auto bits = std::bit_cast<uint32_t>(static_cast<float>(value));
        tensor.as<Bf16>()[i].bits = round_stochastic(bits, expected.draws[i]);
      }
    }
  }
  return operands;
}

void ReferenceBackend::write(const Launch& launch, const std::vector<Tensor>& operands) {
  for (size_t i = 0; i < operands.size(); ++i) {
    std::memcpy(launch.operands[i].data, operands[i].bytes.data(), operands[i].bytes.size());
  }
}

void ReferenceBackend::run(const Launch& launch) {
  write(launch, results(*launch.op, read(launch)));
}

}  // namespace sluice::core::conformance
