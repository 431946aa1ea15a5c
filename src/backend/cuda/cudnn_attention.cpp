// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/cudnn_attention.h"

#include <array>
#include <cmath>
#include <limits>
#include <string_view>
#include <vector>

#include "backend/cuda/check.h"

namespace sluice::core::cuda {
namespace {

using Dims = std::array<int64_t, 4>;

// Tensors that a graph takes from outside; 0 marks a virtual one, which exists within the graph only.
enum Uid : int64_t {
  kVirtual,
  kQ,
  kK,
  kV,
  kO,
  kLse,
  kScale,
  kDo,
  kDq,
  kDk,
  kDv,
  kRowSum,
  kDqSum,
  kHidden,
  kOne,
  kWindow,
  kSoftcap,
  kUids
};

constexpr auto kIo = CUDNN_DATA_BFLOAT16;
constexpr auto kF32 = CUDNN_DATA_FLOAT;
constexpr auto kI32 = CUDNN_DATA_INT32;
constexpr auto kBool = CUDNN_DATA_BOOLEAN;

// A tensor of the graph under construction. Copies are cheap.
struct Tensor {
  cudnnBackendDescriptor_t descriptor = nullptr;
  Dims dims{}, strides{};
};

// Collects operations. The first error sticks; what follows it does nothing.
class GraphBuilder {
 public:
  const Status& status() const { return first_error_; }

  Tensor tensor(const Dims& dims, const Dims& strides, cudnnDataType_t type, int64_t uid = kVirtual,
                bool by_value = false) {
    const int64_t alignment = 16, id = uid == kVirtual ? next_virtual_++ : uid;
    const bool is_virtual = uid == kVirtual;
    const auto d = create(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    set(d, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, &type);
    set(d, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, dims.data(), 4);
    set(d, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, strides.data(), 4);
    set(d, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, &id);
    set(d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, &alignment);
    set(d, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, &is_virtual);
    set(d, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, &by_value);
    finalize(d);
    return {d, dims, strides};
  }
  Tensor like(const Tensor& t, cudnnDataType_t type = kF32) { return tensor(t.dims, t.strides, type); }
  Tensor scalar(int64_t uid) { return tensor({1, 1, 1, 1}, {1, 1, 1, 1}, kF32, uid, true); }

  Tensor product(const Tensor& a, const Tensor& b, const Tensor& c) {
    const auto kind = create(CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    set(kind, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, &kF32);
    finalize(kind);
    const auto op = create(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    refer(op, CUDNN_ATTR_OPERATION_MATMUL_ADESC, a.descriptor);
    refer(op, CUDNN_ATTR_OPERATION_MATMUL_BDESC, b.descriptor);
    refer(op, CUDNN_ATTR_OPERATION_MATMUL_CDESC, c.descriptor);
    refer(op, CUDNN_ATTR_OPERATION_MATMUL_DESC, kind);
    close_operation(op);
    return c;
  }

  struct Pointwise {
    const Tensor* second = nullptr;     // the other argument
    const Tensor* predicate = nullptr;  // BINARY_SELECT
    cudnnDataType_t compute = kF32;
    int64_t axis = -1;  // GEN_INDEX
  };
  Tensor pointwise(cudnnPointwiseMode_t mode, const Tensor& x, const Tensor& y, const Pointwise& options) {
    const auto op = create(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    refer(op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, pointwise_kind(mode, options));
    refer(op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x.descriptor);
    refer(op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y.descriptor);
    if (options.second) refer(op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, options.second->descriptor);
    if (options.predicate) refer(op, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, options.predicate->descriptor);
    close_operation(op);
    return y;
  }
  // A pointwise operation with two arguments and one with one, in f32, shaped like x.
  Tensor apply(cudnnPointwiseMode_t mode, const Tensor& x, const Tensor& b, cudnnDataType_t result = kF32) {
    return pointwise(mode, x, like(x, result), {.second = &b});
  }
  Tensor apply(cudnnPointwiseMode_t mode, const Tensor& x) { return pointwise(mode, x, like(x), {}); }
  // The gradient of such a one with one, at x, from dy.
  Tensor apply_backward(cudnnPointwiseMode_t mode, const Tensor& x, const Tensor& dy) {
    const Tensor dx = like(x);
    const auto op = create(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    refer(op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, pointwise_kind(mode, {}));
    refer(op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x.descriptor);
    refer(op, CUDNN_ATTR_OPERATION_POINTWISE_DYDESC, dy.descriptor);
    refer(op, CUDNN_ATTR_OPERATION_POINTWISE_DXDESC, dx.descriptor);
    close_operation(op);
    return dx;
  }

  Tensor reduce(cudnnReduceTensorOp_t how, const Tensor& x, const Tensor& y) {
    const auto kind = create(CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    set(kind, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, &kF32);
    set(kind, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, &how);
    finalize(kind);
    const auto op = create(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    refer(op, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x.descriptor);
    refer(op, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y.descriptor);
    refer(op, CUDNN_ATTR_OPERATION_REDUCTION_DESC, kind);
    close_operation(op);
    return y;
  }
  Tensor reshape(const Tensor& x, const Tensor& y) {
    const auto op = create(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
    refer(op, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x.descriptor);
    refer(op, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y.descriptor);
    close_operation(op);
    return y;
  }

  // The first plan that an engine offers and that can be built.
  Result<CudnnDescriptor> plan(const CudnnTarget& target) {
    const auto graph = create(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    set(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, operations_.data(),
        int64_t(operations_.size()));
    if (target.handle) set(graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, &target.handle);
    finalize(graph);
    const auto heuristic = create(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    const cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A;
    refer(heuristic, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
    set(heuristic, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, &mode);
    if (target.device) refer(heuristic, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, target.device);
    finalize(heuristic);
    SLUICE_TRY(first_error_);

    int64_t count = 0;
    SLUICE_CUDA_TRY(cudnnBackendGetAttribute(heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                             CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, &count, nullptr));
    std::vector<cudnnBackendDescriptor_t> configs;
    for (int64_t i = 0; i < count; ++i) configs.push_back(create(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR));
    if (count == 0) return error(ErrorKind::Device, "cuDNN offers no engine");
    SLUICE_CUDA_TRY(cudnnBackendGetAttribute(heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                             CUDNN_TYPE_BACKEND_DESCRIPTOR, count, &count, configs.data()));
    Error last = error(ErrorKind::Device, "cuDNN offers no engine");
    for (int64_t i = 0; i < count; ++i) {
      auto plan = finish_plan(target, configs[size_t(i)]);
      if (plan.ok()) return plan;
      last = plan.error();
    }
    return last;
  }

 private:
  static Result<CudnnDescriptor> finish_plan(const CudnnTarget& target, cudnnBackendDescriptor_t config) {
    CudnnDescriptor plan;
    SLUICE_CUDA_TRY(cudnnBackendCreateDescriptor(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, plan.receive()));
    SLUICE_CUDA_TRY(cudnnBackendSetAttribute(plan.get(), CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG,
                                             CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &config));
    if (target.handle) {
      SLUICE_CUDA_TRY(cudnnBackendSetAttribute(plan.get(), CUDNN_ATTR_EXECUTION_PLAN_HANDLE,
                                               CUDNN_TYPE_HANDLE, 1, &target.handle));
    }
    if (target.device) {
      SLUICE_CUDA_TRY(cudnnBackendSetAttribute(plan.get(), CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP,
                                               CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &target.device));
    }
    SLUICE_CUDA_TRY(cudnnBackendFinalize(plan.get()));
    return plan;
  }

  cudnnBackendDescriptor_t pointwise_kind(cudnnPointwiseMode_t mode, const Pointwise& options) {
    const auto kind = create(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    set(kind, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, &mode);
    set(kind, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, &options.compute);
    if (options.axis >= 0) set(kind, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, &options.axis);
    finalize(kind);
    return kind;
  }
  cudnnBackendDescriptor_t create(cudnnBackendDescriptorType_t type) {
    CudnnDescriptor d;
    note(cudnnBackendCreateDescriptor(type, d.receive()), "cudnnBackendCreateDescriptor");
    owned_.push_back(std::move(d));
    return owned_.back().get();
  }
  template <class T>
  void set(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
           const T* values, int64_t count = 1) {
    if (first_error_.ok())
      note(cudnnBackendSetAttribute(d, name, type, count, values), "cudnnBackendSetAttribute");
  }
  void refer(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name, cudnnBackendDescriptor_t to) {
    set(d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, &to);
  }
  void finalize(cudnnBackendDescriptor_t d) {
    if (first_error_.ok()) note(cudnnBackendFinalize(d), "cudnnBackendFinalize");
  }
  void close_operation(cudnnBackendDescriptor_t d) {
    finalize(d);
    operations_.push_back(d);
  }
  void note(cudnnStatus_t code, std::string_view call) {
    if (first_error_.ok()) first_error_ = check(code, call);
  }

  Status first_error_;
  std::vector<CudnnDescriptor> owned_;
  std::vector<cudnnBackendDescriptor_t> operations_;
  int64_t next_virtual_ = kUids;
};

// The tensors and steps that both directions share. Dimensions are always [rows, heads, sequence, head_dim].
class AttentionGraph {
 public:
  AttentionGraph(GraphBuilder& graph, const CudnnAttentionShape& shape) : g_(graph), s_(shape) {}

  void forward() {
    const Tensor q = query(kQ), scale = g_.scalar(kScale);
    const Tensor raw = g_.apply(CUDNN_POINTWISE_MUL, g_.product(q, key_transposed(kK), scores()), scale);
    const Tensor s = masked(capped(raw).scores);
    const Tensor top = g_.reduce(CUDNN_REDUCE_TENSOR_MAX, s, row_value());
    const Tensor e = g_.apply(CUDNN_POINTWISE_EXP, g_.apply(CUDNN_POINTWISE_SUB, s, top));
    const Tensor sum = g_.reduce(CUDNN_REDUCE_TENSOR_ADD, e, row_value());
    const Tensor log = g_.apply(CUDNN_POINTWISE_LOG, sum);
    g_.pointwise(CUDNN_POINTWISE_ADD, top, row_value(kLse), {.second = &log});
    const Tensor p = g_.apply(CUDNN_POINTWISE_DIV, e, sum, kIo);
    g_.product(p, key(kV), query(kO));
  }

  // As in FlashAttention: ds = p (do v^T - rowsum(do o)), with p from the saved log-sum-exp.
  void backward(bool deterministic) {
    const Tensor q = query(kQ), d_o = query(kDo), k_t = key_transposed(kK), scale = g_.scalar(kScale);
    const Tensor row_sum = row_sums(d_o);

    const Capped cap = capped(g_.apply(CUDNN_POINTWISE_MUL, g_.product(q, k_t, scores()), scale));
    const Tensor s = masked(g_.apply(CUDNN_POINTWISE_SUB, cap.scores, row_value(kLse)));
    const Tensor p = g_.apply(CUDNN_POINTWISE_EXP, s);
    key_gradient(p, d_o, kDv);

    Tensor ds = g_.product(d_o, key_transposed(kV), scores());
    ds = g_.apply(CUDNN_POINTWISE_SUB, ds, row_sum);
    ds = uncapped(cap, g_.apply(CUDNN_POINTWISE_MUL, ds, p));
    ds = g_.apply(CUDNN_POINTWISE_MUL, ds, scale);
    key_gradient(ds, q, kDk);

    const Tensor k = g_.reshape(k_t, g_.tensor(key_dims(), key_strides(), kF32));
    if (deterministic) {
      g_.product(ds, k, query(kDq));
      return;
    }
    const int64_t head = s_.q_len * s_.head_dim;
    const Tensor sum =
        g_.product(ds, k, g_.tensor(query_dims(), {s_.q_heads * head, head, s_.head_dim, 1}, kF32, kDqSum));
    g_.pointwise(CUDNN_POINTWISE_IDENTITY, sum, query(kDq), {});
  }

 private:
  Dims query_dims() const { return {s_.rows, s_.q_heads, s_.q_len, s_.head_dim}; }
  Dims query_strides() const {
    const int64_t row = s_.all_q_heads * s_.head_dim;
    return {s_.q_len * row, s_.head_dim, row, 1};
  }
  Dims key_dims() const { return {s_.rows, s_.kv_heads, s_.kv_len, s_.head_dim}; }
  Dims key_strides() const {
    const int64_t row = 2 * s_.all_kv_heads * s_.head_dim;
    return {s_.kv_len * row, s_.head_dim, row, 1};
  }
  Tensor query(int64_t uid) { return g_.tensor(query_dims(), query_strides(), kIo, uid); }
  // The forward's second product takes values as they lie; its first, and the backward's, take transposed
  // views.
  Tensor key(int64_t uid) { return g_.tensor(key_dims(), key_strides(), kIo, uid); }
  Tensor key_transposed(int64_t uid) {
    const Dims d = key_dims(), s = key_strides();
    return g_.tensor({d[0], d[1], d[3], d[2]}, {s[0], s[1], s[3], s[2]}, kIo, uid);
  }
  Tensor scores() {
    const int64_t one = s_.q_len * s_.kv_len;
    return g_.tensor({s_.rows, s_.q_heads, s_.q_len, s_.kv_len}, {s_.q_heads * one, one, s_.kv_len, 1}, kF32);
  }
  // One f32 per query: [rows, heads, q_len, 1].
  Tensor row_value(int64_t uid = kVirtual) {
    const int64_t heads = uid == kVirtual ? s_.q_heads : s_.all_q_heads;
    return g_.tensor({s_.rows, s_.q_heads, s_.q_len, 1}, {heads * s_.q_len, s_.q_len, 1, 1}, kF32, uid);
  }

  // Capped scores, and what the hyperbolic tangent was taken of.
  struct Capped {
    Tensor scores, over_cap, cap;
  };
  Capped capped(const Tensor& s) {
    if (s_.softcap == 0) return {s, {}, {}};
    Capped c;
    c.cap = g_.scalar(kSoftcap);
    c.over_cap = g_.apply(CUDNN_POINTWISE_DIV, s, c.cap);
    c.scores = g_.apply(CUDNN_POINTWISE_MUL, g_.apply(CUDNN_POINTWISE_TANH_FWD, c.over_cap), c.cap);
    return c;
  }
  // The gradient of what was capped.
  Tensor uncapped(const Capped& c, const Tensor& ds) {
    if (s_.softcap == 0) return ds;
    const Tensor of_tanh = g_.apply(CUDNN_POINTWISE_MUL, ds, c.cap);
    return g_.apply(CUDNN_POINTWISE_DIV, g_.apply_backward(CUDNN_POINTWISE_TANH_BWD, c.over_cap, of_tanh),
                    c.cap);
  }

  // The patterns of masks that cuDNN knows, by which it leaves out tiles that nobody sees: row >= column, and
  // column + window > row.
  Tensor masked(const Tensor& s) {
    if (!s_.causal) return s;
    const Tensor hidden = g_.scalar(kHidden);
    const auto seen_where = [&](const Tensor& of, cudnnPointwiseMode_t compare, const Tensor& a,
                                const Tensor& b) {
      const Tensor visible = g_.pointwise(compare, a, g_.like(of, kBool), {.second = &b, .compute = kBool});
      return g_.pointwise(CUDNN_POINTWISE_BINARY_SELECT, of, g_.like(of),
                          {.second = &hidden, .predicate = &visible});
    };
    const Tensor causal = seen_where(s, CUDNN_POINTWISE_CMP_GE, index(s, 2), index(s, 3));
    if (s_.window == 0) return causal;
    const Tensor row = index(causal, 2), window = g_.scalar(kWindow);
    const Tensor column = g_.apply(CUDNN_POINTWISE_ADD, index(causal, 3), window);
    return seen_where(causal, CUDNN_POINTWISE_CMP_GT, column, row);
  }
  Tensor index(const Tensor& of, int64_t axis) {
    return g_.pointwise(CUDNN_POINTWISE_GEN_INDEX, of, g_.like(of, kI32), {.axis = axis});
  }

  Tensor row_sums(const Tensor& d_o) {
    const int64_t row = s_.q_heads * s_.head_dim;
    const Tensor o = query(kO), one = g_.scalar(kOne);
    const Tensor products = g_.pointwise(
        CUDNN_POINTWISE_MUL, d_o,
        g_.tensor(query_dims(), {s_.q_len * row, s_.q_len * s_.head_dim, row, 1}, kF32), {.second = &o});
    const Tensor sums = g_.reduce(CUDNN_REDUCE_TENSOR_ADD, products, row_value());
    return g_.pointwise(CUDNN_POINTWISE_MUL, sums, row_value(kRowSum), {.second = &one});
  }

  // out = weights^T x, summed over the query heads of each key head.
  void key_gradient(const Tensor& weights, const Tensor& x, int64_t uid) {
    const int64_t one = s_.q_len * s_.kv_len;
    const Tensor transposed = g_.reshape(weights, g_.tensor({s_.rows, s_.q_heads, s_.kv_len, s_.q_len},
                                                            {s_.q_heads * one, one, 1, s_.kv_len}, kIo));
    if (s_.q_heads == s_.kv_heads) {
      g_.product(transposed, x, key(uid));
      return;
    }
    const int64_t head = s_.kv_len * s_.head_dim;
    const Tensor per_head = g_.product(transposed, x,
                                       g_.tensor({s_.rows, s_.q_heads, s_.kv_len, s_.head_dim},
                                                 {s_.q_heads * head, head, s_.head_dim, 1}, kIo));
    g_.reduce(CUDNN_REDUCE_TENSOR_ADD, per_head, key(uid));
  }

  GraphBuilder& g_;
  const CudnnAttentionShape& s_;
};

}  // namespace

Result<CudnnAttention> CudnnAttention::build(const CudnnTarget& target, CudnnAttentionKind kind,
                                             const CudnnAttentionShape& shape) {
  GraphBuilder builder;
  AttentionGraph graph(builder, shape);
  if (kind == CudnnAttentionKind::Forward) {
    graph.forward();
  } else {
    graph.backward(kind == CudnnAttentionKind::BackwardDeterministic);
  }
  SLUICE_TRY(builder.status());
  SLUICE_ASSIGN(CudnnDescriptor plan, builder.plan(target));
  return around(std::move(plan), kind, shape);
}

Result<CudnnAttention> CudnnAttention::restore(const CudnnTarget& target, CudnnAttentionKind kind,
                                               const CudnnAttentionShape& shape,
                                               const std::string& serialized) {
  CudnnDescriptor plan;
  SLUICE_CUDA_TRY(cudnnBackendCreateDescriptor(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, plan.receive()));
  SLUICE_CUDA_TRY(cudnnBackendSetAttribute(plan.get(), CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1,
                                           &target.handle));
  SLUICE_CUDA_TRY(cudnnBackendSetAttribute(plan.get(), CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION,
                                           CUDNN_TYPE_CHAR, int64_t(serialized.size()), serialized.data()));
  SLUICE_CUDA_TRY(cudnnBackendFinalize(plan.get()));
  return around(std::move(plan), kind, shape);
}

Result<std::string> CudnnAttention::serialized() const {
  int64_t bytes = 0;
  SLUICE_CUDA_TRY(cudnnBackendGetAttribute(plan_.get(), CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION,
                                           CUDNN_TYPE_CHAR, 0, &bytes, nullptr));
  std::string text(size_t(bytes), 0);
  SLUICE_CUDA_TRY(cudnnBackendGetAttribute(plan_.get(), CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION,
                                           CUDNN_TYPE_CHAR, bytes, &bytes, text.data()));
  text.resize(size_t(bytes));
  return text;
}

Result<CudnnAttention> CudnnAttention::around(CudnnDescriptor plan, CudnnAttentionKind kind,
                                              const CudnnAttentionShape& shape) {
  CudnnAttention attention;
  attention.kind_ = kind;
  attention.causal_ = shape.causal;
  attention.window_ = float(shape.window);
  attention.softcap_ = shape.softcap;
  attention.scale_ = float(1 / std::sqrt(double(shape.head_dim)));
  attention.plan_ = std::move(plan);
  int64_t count = 0;
  SLUICE_CUDA_TRY(cudnnBackendGetAttribute(attention.plan_.get(), CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                           CUDNN_TYPE_INT64, 1, &count, &attention.workspace_bytes_));
  return attention;
}

Status CudnnAttention::run(cudnnHandle_t handle, const CudnnAttentionTensors& t, void* workspace) const {
  // By-value scalars are read from the host during the call.
  float scale = scale_, hidden = -std::numeric_limits<float>::infinity(), one = 1, window = window_,
        softcap = softcap_;
  std::array<int64_t, kUids> ids{};
  std::array<const void*, kUids> pointers{};
  int64_t count = 0;
  const auto bind = [&](int64_t uid, const void* pointer) {
    ids[size_t(count)] = uid;
    pointers[size_t(count++)] = pointer;
  };
  bind(kQ, t.q), bind(kK, t.k), bind(kV, t.v), bind(kO, t.o), bind(kLse, t.lse);
  bind(kScale, &scale);
  if (causal_) bind(kHidden, &hidden);
  if (window > 0) bind(kWindow, &window);
  if (softcap > 0) bind(kSoftcap, &softcap);
  if (kind_ != CudnnAttentionKind::Forward) {
    bind(kDo, t.d_o), bind(kDq, t.dq), bind(kDk, t.dk), bind(kDv, t.dv);
    bind(kRowSum, t.row_sum), bind(kOne, &one);
    if (kind_ == CudnnAttentionKind::Backward) bind(kDqSum, t.dq_sum);
  }
  CudnnDescriptor pack;
  SLUICE_CUDA_TRY(cudnnBackendCreateDescriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, pack.receive()));
  SLUICE_CUDA_TRY(cudnnBackendSetAttribute(pack.get(), CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64,
                                           count, ids.data()));
  SLUICE_CUDA_TRY(cudnnBackendSetAttribute(pack.get(), CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS,
                                           CUDNN_TYPE_VOID_PTR, count, pointers.data()));
  SLUICE_CUDA_TRY(cudnnBackendSetAttribute(pack.get(), CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR,
                                           1, &workspace));
  SLUICE_CUDA_TRY(cudnnBackendFinalize(pack.get()));
  SLUICE_CUDA_TRY(cudnnBackendExecute(handle, plan_.get(), pack.get()));
  return {};
}

}  // namespace sluice::core::cuda
