// SPDX-License-Identifier: Apache-2.0
// Cases of what follows a backward pass.
#include <cmath>

#include "conformance/case_list.h"

namespace sluice::core::conformance {
namespace {

void add_exchange(List& list) {
  for (const DType left : kDTypes) {
    for (const DType right : kDTypes) {
      for (const DType sum : kDTypes) {
        for (const int64_t n : {1, 77}) list.add(AddGradients{n, left, right, sum});
      }
    }
  }
  list.add(AddGradients{33003, kBf16, kF32, kBf16});  // of more than one block
  for (const DType dtype : kDTypes) {
    for (const bool apart : {false, true}) {
      for (const bool first : {false, true}) {
        list.add(SumOverProcesses{1, 1, 0, 1, dtype, first, apart});
        list.add(SumOverProcesses{1003, 1, 2, 5, dtype, first, apart});
      }
    }
    for (const int64_t n : {1, 1003}) list.add(ShareWeight{n, 1, 0, dtype});
  }
}

void add_norm_clipping(List& list) {
  for (const DType dtype : kDTypes) {
    for (const bool first : {false, true}) {
      list.add(SumSq{1, 0, 1, dtype, first});
      list.add(SumSq{77, 2, 5, dtype, first});
      list.add(SumSq{5003, 0, 3, dtype, first});
      list.add(SumSq{33, 1, 3, dtype, first}, "nan", {.special = kNan});
      list.add(SumSq{33, 1, 3, dtype, first}, "inf", {.special = INFINITY});
    }
    list.add(SumSq{33, 1, 3, dtype, false}, "beyond_f32", {.special = 1e25});
  }
  for (const float limit : {0.0f, 1.0f, 1e9f}) {
    for (const int64_t slots : {1, 5, 100}) list.add(ClipScale{slots, limit});
    list.add(ClipScale{5, limit}, "nan", {.special = kNan});
    list.add(ClipScale{5, limit}, "inf", {.special = INFINITY});
  }
}

constexpr MasterWeights kNoMaster = MasterWeights::Off;

// Whether state_of() is for it.
bool is_separable(const auto& op) {
  if constexpr (requires { op.nesterov; }) return op.weight_decay == 0;
  return true;
}

// Sizes and places of one optimizer's update, and its situations, in the types given.
template <class Update>
class Updates {
 public:
  Updates(List& list, Update op) : list_(&list), op_(op) {}

  void types(DType dtype, DType grad, DType state, MasterWeights master, bool stochastic) {
    op_.dtype = dtype, op_.grad_dtype = grad, op_.state_dtype = state, op_.master = master,
    op_.stochastic = stochastic;
  }
  void sizes(const std::string& note = "", const Data& data = {}) {
    struct Part {
      int64_t elements, first;
    };
    for (const auto [elements, first] : {Part{1, 0}, {77, 3}, {1000, 128}, {4099, 0}}) {
      op_.elements = elements, op_.first = first, op_.moments = true;
      list_->add(op_, note, data);
      op_.moments = false;
      list_->add(op_, note, data);
      // Of the weights and of a master copy the state knows nothing.
      if (op_.dtype == kF32 || op_.master != kNoMaster || !is_separable(op_)) continue;
      list_->add(state_of(op_), note, data);
    }
  }
  void all_types() {
    for (const DType grad : kDTypes) {
      for (const bool stochastic : {false, true}) {
        types(kF32, grad, kF32, kNoMaster, stochastic), sizes();
        types(kBf16, grad, kF32, MasterWeights::F32, stochastic), sizes();
        types(kBf16, grad, kF32, kNoMaster, stochastic), sizes();
        types(kBf16, grad, kBf16, kNoMaster, stochastic), sizes();
        types(kBf16, grad, kBf16, MasterWeights::F32, stochastic), sizes();
        types(kBf16, grad, DType::I8, stochastic ? kNoMaster : MasterWeights::F32, stochastic), sizes();
      }
      types(kF32, grad, DType::I8, kNoMaster, false), sizes();
      types(kBf16, grad, DType::I8, MasterWeights::I8, false), sizes();
      types(kBf16, grad, kF32, MasterWeights::I8, false), sizes();
    }
  }
  void situations() {
    for (const MasterWeights master : {kNoMaster, MasterWeights::F32, MasterWeights::I8}) {
      types(kBf16, kBf16, kBf16, master, master == kNoMaster);
      sizes("no_update", {.update = false});
      sizes("clip_0", {.clip = 0});
      sizes("unclipped", {.clip = 1});
    }
    types(kF32, kF32, kF32, kNoMaster, false), sizes("clip_0", {.clip = 0});
    types(kBf16, kBf16, DType::I8, kNoMaster, true);
    sizes("no_update", {.update = false}), sizes("clip_0", {.clip = 0});
  }

 private:
  List* list_;
  Update op_;
};

void add_update(List& list) {
  Updates adamw(list,
                AdamW{.object = 11, .beta1 = 0.9f, .beta2 = 0.999f, .eps = 1e-8f, .weight_decay = 0.1f});
  adamw.all_types(), adamw.situations();
  Updates lion(list, Lion{.object = 11, .beta1 = 0.9f, .beta2 = 0.99f, .weight_decay = 0.1f});
  lion.all_types(), lion.situations();

  SgdMomentum op{.object = 11, .momentum = 0.9f, .weight_decay = 0, .nesterov = false};
  Updates sgd(list, op);
  sgd.all_types(), sgd.situations();
  for (const auto& [decay, nesterov] : {std::pair{0.1f, false}, {0.0f, true}, {0.1f, true}}) {
    op.weight_decay = decay, op.nesterov = nesterov;
    Updates other(list, op);
    other.types(kF32, kF32, kF32, kNoMaster, false), other.sizes();
    other.types(kBf16, kF32, kF32, MasterWeights::F32, false), other.sizes();
    other.types(kBf16, kBf16, kBf16, nesterov ? MasterWeights::F32 : kNoMaster, true), other.sizes();
  }
}

void add_adafactor(List& list) {
  Adafactor op{.object = 11,
               .decay_rate = -0.8,
               .eps = 1e-30f,
               .eps_scale = 1e-3f,
               .clip_threshold = 1,
               .weight_decay = 0.1f};
  struct Matrix {
    int64_t rows, cols, first;
  };
  const auto sizes = [&](const std::string& note = "", const Data& data = {}) {
    // Vectors, columns, more rows than blocks, more columns than a block has threads; odd places.
    for (const auto [rows, cols, first] :
         {Matrix{1, 1, 0}, {1, 77, 3}, {33, 1, 0}, {5, 19, 7}, {67, 130, 128}, {3, 1037, 1}}) {
      op.rows = rows, op.cols = cols, op.first = first;
      list.add(op, note, data);
    }
  };
  const auto types = [&](DType dtype, DType grad, MasterWeights master, bool stochastic) {
    op.dtype = dtype, op.grad_dtype = grad, op.master = master, op.stochastic = stochastic;
  };
  for (const DType grad : kDTypes) {
    types(kF32, grad, kNoMaster, false), sizes();
    for (const bool stochastic : {false, true}) types(kBf16, grad, kNoMaster, stochastic), sizes();
    types(kBf16, grad, MasterWeights::F32, false), sizes();
    types(kBf16, grad, MasterWeights::I8, false), sizes();
  }
  for (const DType dtype : kDTypes) {
    types(dtype, dtype, kNoMaster, dtype == kBf16);
    sizes("no_update", {.update = false}), sizes("clip_0", {.clip = 0}), sizes("unclipped", {.clip = 1});
    op.scale_parameter = true, sizes();
    op.relative_step = true, sizes();
    op.warmup_init = true, sizes();
    op.scale_parameter = op.relative_step = op.warmup_init = false;
    op.clip_threshold = 1e-2f, sizes();
    op.clip_threshold = 1e3f, sizes();
    op.clip_threshold = 1;
    op.weight_decay = 0, sizes();
    op.weight_decay = 0.1f;
  }
  types(kBf16, kF32, MasterWeights::F32, false);
  op.scale_parameter = true, sizes("", {.update = true});
}

void add_muon(List& list) {
  Muon op{.object = 11, .momentum = 0.95f, .scale = 1.5f, .weight_decay = 0.1f, .nesterov = true};
  struct Matrix {
    int64_t rows, cols, first;
  };
  const auto sizes = [&](const std::string& note = "", const Data& data = {}) {
    // Wide, tall and square, a single row and column, odd sides and places.
    for (const auto [rows, cols, first] :
         {Matrix{1, 5, 0}, {7, 1, 3}, {5, 19, 7}, {33, 12, 0}, {8, 8, 0}, {8, 40, 64}, {72, 24, 0}}) {
      op.rows = rows, op.cols = cols, op.first = first;
      list.add(op, note, data);
    }
  };
  const auto types = [&](DType dtype, DType grad, DType state, MasterWeights master, bool stochastic) {
    op.dtype = dtype, op.grad_dtype = grad, op.state_dtype = state, op.master = master,
    op.stochastic = stochastic;
  };
  for (const DType grad : kDTypes) {
    types(kF32, grad, kF32, kNoMaster, false), sizes();
    types(kF32, grad, DType::I8, kNoMaster, false), sizes();
    for (const bool stochastic : {false, true}) {
      types(kBf16, grad, kF32, kNoMaster, stochastic), sizes();
      types(kBf16, grad, kBf16, kNoMaster, stochastic), sizes();
      types(kBf16, grad, DType::I8, kNoMaster, stochastic), sizes();
    }
    types(kBf16, grad, kF32, MasterWeights::F32, false), sizes();
    types(kBf16, grad, DType::I8, MasterWeights::I8, false), sizes();
  }
  for (const DType dtype : kDTypes) {
    types(dtype, dtype, dtype, kNoMaster, dtype == kBf16);
    sizes("no_update", {.update = false}), sizes("clip_0", {.clip = 0}), sizes("unclipped", {.clip = 1});
    op.nesterov = false, sizes();
    op.weight_decay = 0, sizes();
    op.nesterov = true, op.weight_decay = 0.1f;
  }
}

}  // namespace

AdamWMoments state_of(const AdamW& op) {
  return {op.elements, op.first, op.object, op.beta1, op.beta2, op.grad_dtype, op.state_dtype, op.stochastic};
}
SgdMomentumState state_of(const SgdMomentum& op) {
  return {op.elements, op.first, op.object, op.momentum, op.grad_dtype, op.state_dtype, op.stochastic};
}
LionState state_of(const Lion& op) {
  return {op.elements, op.first, op.object, op.beta2, op.grad_dtype, op.state_dtype, op.stochastic};
}

void add_updates(List& list) {
  add_exchange(list);
  add_norm_clipping(list);
  add_update(list);
  add_adafactor(list);
  add_muon(list);
}

}  // namespace sluice::core::conformance
