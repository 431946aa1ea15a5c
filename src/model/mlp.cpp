// SPDX-License-Identifier: Apache-2.0
// Layers whose second half is an MLP for every token.
#include <string>

#include "model/kinds.h"
#include "model/layers.h"
#include "model/weight_table.h"
#include "ops/op.h"

namespace sluice::core {

Status validate(const Mlp& mlp) {
  SLUICE_TRY(check_positive("intermediate_size", mlp.ffn));
  if (mlp.limit < 0 || (mlp.limit > 0 && !mlp.gated))
    return error("model: an MLP limited at {}; a positive limit, and gates, are needed", mlp.limit);
  return {};
}

double product_columns(const Mlp& mlp, int64_t) {
  return double(mlp.up_dim() + mlp.ffn);
}

void WeightTable::add(const Mlp& mlp) {
  const TensorNames& names = spec_.names;
  const int64_t d = spec_.dim, f = mlp.ffn;
  const auto gate_and_up = [&](const char* kind, int64_t cols) {
    using Sources = std::vector<WeightSource>;
    if (names.gate_up != nullptr) return Sources{{at(names.gate_up) + kind, 2 * f, cols}};
    if (!mlp.gated) return Sources{{at(names.up) + kind, f, cols}};
    return Sources{{at(names.gate) + kind, f, cols}, {at(names.up) + kind, f, cols}};
  };
  matrix("wgu", ModelPart::Mlp, gate_and_up(".weight", d));
  if (mlp.bias) bias("bgu", gate_and_up(".bias", 1));
  matrix_into_stream("wd", ModelPart::Mlp, {{at(names.down) + ".weight", d, f}});
  if (mlp.bias) bias("bd", {{at(names.down) + ".bias", d, 1}});
}

ObjectId Forward::feed_forward(const Mlp& mlp, ObjectId x, ObjectId stream, const Place& at) {
  const ObjectId act = gated(mlp, "", x, at);
  const ObjectId sum = stream_after(at);
  add_half({"down", "wd", mlp.bias ? "bd" : "", mlp.ffn, spec_.dim}, "mlp_out", "norm2_after", act, stream,
           sum, at);
  return sum;
}

ObjectId Forward::gated(const Mlp& mlp, std::string_view prefix, ObjectId x, const Place& at) {
  const auto named = [&](const char* name) { return std::string(prefix) + name; };
  const std::string gate_up = named("gate_up"), wgu = named("wgu");
  const ObjectId gu = activation(named("gu"), mlp.up_dim(), at);
  project({gate_up, wgu, mlp.bias ? "bgu" : "", spec_.dim, mlp.up_dim()}, x, gu, {}, at);
  record();
  const ObjectId act = activation(named("act"), mlp.ffn, at);
  task(named("swiglu"),
       Swiglu{{.tokens = tokens(at),
               .dim = mlp.ffn,
               .dtype = activations_,
               .activation = mlp.activation,
               .plain = !mlp.gated,
               .limit = float(mlp.limit)}},
       {gu, act}, at);
  record();
  return act;
}

}  // namespace sluice::core
