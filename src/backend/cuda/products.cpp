// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/products.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "backend/cuda/check.h"
#include "backend/cuda/device_type.h"
#include "backend/cuda/kernels/kernels.h"

namespace sluice::core::cuda {
namespace {

constexpr int kCandidates = 8;
constexpr std::string_view kOwnKernel = "own kernel";  // instead of a library's choice, in the cache
constexpr int64_t kAlignment = 256;

// The library's part of the workspace, where a pass scales sums, which have the rest.
constexpr int64_t kSumsWorkspaceBytes = 4 * kMiB;

bool is_narrow(const Product& p) {
  return is_float8(p.a.type);
}
bool is_scaled(const Product& p) {
  return is_narrow(p) && !p.unscaled;
}

int64_t library_workspace_bytes(const Product& p) {
  return p.unscaled ? kSumsWorkspaceBytes : kProductWorkspaceBytes;
}

// The sums of a product are made in parts of so many rows and columns.
struct Parts {
  int64_t rows, columns;
};

// The library takes rows and columns of 8 bits from multiples of 16 on.
int64_t whole_sixteens(int64_t n) {
  return std::max<int64_t>(1, n / 16) * 16;
}
// As even as may be, all but the last multiples of 16. REQUIRES: `most` is one.
int64_t even_part(int64_t all, int64_t most) {
  const int64_t parts = (all + most - 1) / most;
  return std::min(all, align_up((all + parts - 1) / parts, 16));
}

// Where nothing is added to f32, sums lie where the result does, all at once.
bool sums_in_place(const Product& p) {
  return is_f32(p.d.type) && !p.add && !p.bias;
}

// As near to squares as may be, which read their operands least often.
Parts parts_of(const Product& p, int64_t sums_bytes) {
  if (sums_in_place(p)) return {p.m, p.n};
  const int64_t most = sums_bytes / size_of(DType::F32);
  const int64_t columns = even_part(p.n, whole_sixteens(int64_t(std::sqrt(double(most)))));
  return {even_part(p.m, whole_sixteens(most / columns)), columns};
}

Product sums_of(const Product& p, int64_t rows, int64_t columns) {
  return {.m = rows,
          .n = columns,
          .k = p.k,
          .a = p.a,
          .b = p.b,
          .d = {sums_in_place(p) ? p.d.stride : columns, DType::F32},
          .unscaled = true};
}

void list(std::vector<Product>& all, const Product& product) {
  if (std::ranges::find(all, product) == all.end()) all.push_back(product);
}

void add_products(const Linear& op, bool exact, std::vector<Product>& all) {
  if (exact || !has_few_rows(op)) list(all, product_of(op));
}
void add_products(const LastLogits& op, bool exact, std::vector<Product>& all) {
  if (exact || op.is_product()) list(all, product_of(op));
}
void add_products(const HeadLoss& op, bool, std::vector<Product>& all) {
  for (int64_t begin = 0; begin < op.tokens; begin += op.sub_tokens) {
    const HeadProducts products = head_products(op, std::min(op.sub_tokens, op.tokens - begin), begin == 0);
    list(all, products.logits);
    if (op.forward_only) continue;
    list(all, products.dx);
    if (!op.frozen) list(all, products.dw);
  }
}
void add_products(const Muon& op, bool, std::vector<Product>& all) {
  const MuonProducts products = muon_products(op);
  for (const Product& product : {products.gram, products.square, products.next}) list(all, product);
}
void add_products(const auto& op, bool, std::vector<Product>& all) {
  if constexpr (requires { product_of(op); }) list(all, product_of(op));
}

// With the scales of its rows, if it has any.
int64_t bytes_of(const ProductMatrix& x, int64_t rows) {
  return rows * (x.stride * size_of(x.type) + (is_float8(x.type) ? size_of(DType::F32) : 0));
}

// Where a product's operands lie in scratch.
struct ProductScratch {
  int64_t a, b, d, workspace, hash, bias, bytes;
};

ProductScratch place(const Product& p) {
  ProductScratch at{};
  const auto put = [&](int64_t bytes) {
    const int64_t offset = at.bytes;
    at.bytes = align_up(at.bytes + bytes, kAlignment);
    return offset;
  };
  at.a = put(bytes_of(p.a, p.a.transposed ? p.k : p.m));
  at.b = put(bytes_of(p.b, p.b.transposed ? p.n : p.k));
  at.d = put(p.m * p.d.stride * size_of(p.d.type));
  at.workspace = put(kProductWorkspaceBytes);
  at.hash = put(int64_t{sizeof(uint64_t)});
  at.bias = put(p.bias ? p.n * 2 : 0);
  return at;
}

// Milliseconds of work to time per candidate and turn, and runs at least; how many come to the second turn.
constexpr double kTimedMs = 6;
constexpr int kLeastRuns = 3;
constexpr size_t kFinalists = 3;

struct Timer {
  Event begin, end;

  Status create() {
    SLUICE_CUDA_TRY(cudaEventCreate(begin.receive()));
    SLUICE_CUDA_TRY(cudaEventCreate(end.receive()));
    return {};
  }
  // Milliseconds that `runs` calls of f take on the stream.
  template <class F>
  Result<float> time(int runs, cudaStream_t stream, F f) {
    SLUICE_CUDA_TRY(cudaEventRecord(begin.get(), stream));
    for (int i = 0; i < runs; ++i) SLUICE_TRY(f());
    SLUICE_CUDA_TRY(cudaEventRecord(end.get(), stream));
    SLUICE_CUDA_TRY(cudaEventSynchronize(end.get()));
    float ms = 0;
    SLUICE_CUDA_TRY(cudaEventElapsedTime(&ms, begin.get(), end.get()));
    return ms;
  }
};

}  // namespace

std::string Product::to_text() const {
  return fmt::format("product {}x{}x{} {}{} {}{}{}{}{}{}", m, n, k, a.transposed ? 't' : 'n',
                     b.transposed ? 't' : 'n', is_f32(d.type) ? "f32" : "bf16",
                     a.type == DType::F8E5M2 ? " of f8e5m2 and f8e4m3"
                     : is_narrow(*this)      ? " of f8e4m3"
                     : is_f32(a.type)        ? " of f32"
                                             : "",
                     unscaled ? " unscaled" : "", add ? " add" : "", bias ? " bias" : "",
                     scale == 1 ? std::string() : fmt::format(" times {}", scale));
}

bool has_few_rows(const Linear& op) {
  return op.tokens <= kFewRows && !is_f32(op.dtype) && !op.x_format;
}

namespace {

DType type_of(const std::optional<NumberFormat>& format, DType dtype) {
  return format ? format->type : dtype;
}

}  // namespace

Product product_of(const Linear& op) {
  return {.m = op.tokens,
          .n = op.out,
          .k = op.in,
          .a = {op.in, type_of(op.x_format, op.dtype)},
          .b = {op.in, type_of(op.weight_format, op.dtype), true},
          .d = {op.out, op.result_type()},
          .add = op.has_residual,
          .bias = op.has_bias && !op.f32_result};  // else Runner adds it
}
Product product_of(const LastLogits& op) {
  return {.m = op.rows,
          .n = op.vocab,
          .k = op.dim,
          .a = {op.dim, op.dtype},
          .b = {op.dim, op.dtype, true},
          .d = {op.vocab, DType::F32}};
}
Product product_of(const LinearDgrad& op) {
  const bool turned = op.dy_format.has_value();
  return {.m = op.tokens,
          .n = op.in,
          .k = op.out,
          .a = {op.out, type_of(op.dy_format, op.dtype)},
          .b = {turned ? op.out : op.in, type_of(op.weight_format, op.dtype), turned},
          .d = {op.in, op.dtype},
          .add = op.accumulate || op.has_residual};
}
Product product_of(const LinearWgrad& op) {
  const bool turned = op.dy_format.has_value();
  return {.m = op.out,
          .n = op.in,
          .k = op.tokens,
          .a = {turned ? op.tokens : op.out, type_of(op.dy_format, op.dtype), !turned},
          .b = {turned ? op.tokens : op.in, type_of(op.x_format, op.dtype), turned},
          .d = {op.in, op.grad_dtype},
          .add = op.accumulate};
}

Product product_of(const LowRank& op) {
  const LowRankSizes& s = op.sizes;
  return {.m = s.tokens,
          .n = s.part,
          .k = s.rank,
          .a = {s.inner(), op.dtype},
          .b = {s.rank, op.dtype, true},
          .d = {s.columns, op.dtype},
          .add = op.has_residual,
          .scale = op.scale};
}
Product product_of(const LowRankDgrad& op) {
  const LowRankSizes& s = op.sizes;
  return {.m = s.tokens,
          .n = s.rank,
          .k = s.part,
          .a = {s.columns, op.dtype},
          .b = {s.rank, op.dtype},
          .d = {s.inner(), op.dtype},
          .scale = op.scale};
}
Product product_of(const LowRankWgrad& op) {
  const LowRankSizes& s = op.sizes;
  return {.m = s.part,
          .n = s.rank,
          .k = s.tokens,
          .a = {s.columns, op.dtype, true},
          .b = {s.inner(), op.dtype},
          .d = {s.rank, op.grad_dtype},
          .add = op.accumulate,
          .scale = op.scale};
}

MuonProducts muon_products(const Muon& op) {
  constexpr DType kBf16 = DType::BF16;
  const int64_t n = op.side(), rows = op.rows, cols = op.cols;
  const ProductMatrix side{n, kBf16}, x{cols, kBf16}, turned{cols, kBf16, true};
  const Product square{n, n, n, side, side, side};
  if (op.tall()) return {{n, n, rows, turned, x, side}, square, {rows, n, n, x, side, side}};
  return {{n, n, cols, x, turned, side}, square, {n, cols, n, side, x, x}};
}

HeadProducts head_products(const HeadLoss& op, int64_t rows, bool first_sub_chunk) {
  const int64_t stride = logits_stride(op.vocab), gradients = is_f32(op.dtype) ? stride : 2 * stride;
  const ProductMatrix x{op.dim, op.dtype};
  if (op.x_format) {
    const DType narrow = op.x_format->type, of_gradients = kWideFloat8.type;
    return {
        .logits = {rows, op.vocab, op.dim, {op.dim, narrow}, {op.dim, narrow, true}, {stride, DType::F32}},
        .dx = {rows, op.dim, op.vocab, {op.vocab, of_gradients}, {op.vocab, narrow, true}, x},
        .dw = {op.vocab,
               op.dim,
               rows,
               {rows, of_gradients},
               {op.tokens, narrow, true},
               {op.dim, op.grad_dtype},
               op.accumulate_dw || !first_sub_chunk}};
  }
  return {.logits = {rows, op.vocab, op.dim, x, {op.dim, op.dtype, true}, {stride, DType::F32}},
          .dx = {rows, op.dim, op.vocab, {gradients, op.dtype}, x, x},
          .dw = {op.vocab,
                 op.dim,
                 rows,
                 {gradients, op.dtype, true},
                 x,
                 {op.dim, op.grad_dtype},
                 op.accumulate_dw || !first_sub_chunk}};
}

std::vector<Product> products_of(const Op& op, bool exact) {
  std::vector<Product> all;
  std::visit([&](const auto& o) { add_products(o, exact, all); }, op);
  return all;
}

Result<Products> Products::create(const Rules& rules, std::shared_ptr<LibraryCache> cache) {
  Products products;
  products.cache_ = std::move(cache);
  products.rules_ = rules;
  SLUICE_CUDA_TRY(cublasLtCreate(products.handle_.receive()));
  return products;
}

namespace {

template <class T>
Status set(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attribute, const T& value) {
  SLUICE_CUDA_TRY(cublasLtMatmulDescSetAttribute(desc, attribute, &value, sizeof value));
  return {};
}

Status set_bias(cublasLtMatmulDesc_t desc, const void* bias) {
  SLUICE_CUDA_TRY(
      cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias));
  return {};
}

// The rows of a matrix, from a first one at a multiple of 16, are at multiples of this.
uint32_t alignment_of(const ProductMatrix& x) {
  const int64_t stride_bytes = x.stride * size_of(x.type);
  return uint32_t(std::min<int64_t>(16, stride_bytes & -stride_bytes));
}

// Every product's bias has the library add a vector to the columns of its result, our rows.
Status add_bias(cublasLtMatmulDesc_t desc) {
  const cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_BIAS;
  SLUICE_CUDA_TRY(
      cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue));
  const cudaDataType_t type = CUDA_R_16BF;
  SLUICE_CUDA_TRY(
      cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &type, sizeof type));
  // Algorithms are chosen for a bias that is there; of where it is, only the alignment counts.
  return set_bias(desc, reinterpret_cast<const void*>(uintptr_t{kAlignment}));
}

// Operands change places, see layouts_of(): `a` and `b` are ours.
Status set_scales(cublasLtMatmulDesc_t desc, const void* a, const void* b) {
  SLUICE_TRY(set(desc, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, b));
  return set(desc, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, a);
}

// Partial sums of 8 bits are added in f32 as the library goes on, which costs little: of 8B's shapes 0 to 11
// % on an H200.
Status sum_in_f32(cublasLtMatmulDesc_t desc) {
  return set(desc, CUBLASLT_MATMUL_DESC_FAST_ACCUM, int8_t{0});
}

// Every row of both operands has a scale.
Status add_scales(cublasLtMatmulDesc_t desc) {
#if CUBLAS_VERSION >= 120900
  const int32_t by_row = CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F;
  SLUICE_TRY(set(desc, CUBLASLT_MATMUL_DESC_A_SCALE_MODE, by_row));
  SLUICE_TRY(set(desc, CUBLASLT_MATMUL_DESC_B_SCALE_MODE, by_row));
  const auto* any = reinterpret_cast<const void*>(uintptr_t{kAlignment});
  return set_scales(desc, any, any);
#else
  (void)desc;
  return error("products of 8 bits need cuBLAS 12.9, and this build has an older one");
#endif
}

// The scales of a matrix of so many rows, whose elements they follow.
const void* scales_of(const void* elements, int64_t rows, const ProductMatrix& x) {
  return static_cast<const std::byte*>(elements) + rows * x.stride;
}

}  // namespace

// cuBLASLt is column-major: a row-major matrix is its transpose there, so D^T = op(B)^T op(A)^T and the
// operands change places. Of f32 operands CUBLAS_COMPUTE_32F computes in f32: TF32 is a type of its own.
Result<Products::Plan> Products::layouts_of(const Product& p) const {
  Plan plan;
  const auto type = [](const ProductMatrix& x) {
    if (is_float8(x.type)) return x.type == DType::F8E5M2 ? CUDA_R_8F_E5M2 : CUDA_R_8F_E4M3;
    return is_f32(x.type) ? CUDA_R_32F : CUDA_R_16BF;
  };
  SLUICE_CUDA_TRY(cublasLtMatmulDescCreate(plan.desc.receive(), CUBLAS_COMPUTE_32F, CUDA_R_32F));
  const cublasOperation_t first = p.b.transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
  const cublasOperation_t second = p.a.transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
  SLUICE_CUDA_TRY(
      cublasLtMatmulDescSetAttribute(plan.desc.get(), CUBLASLT_MATMUL_DESC_TRANSA, &first, sizeof first));
  SLUICE_CUDA_TRY(
      cublasLtMatmulDescSetAttribute(plan.desc.get(), CUBLASLT_MATMUL_DESC_TRANSB, &second, sizeof second));
  if (p.bias) SLUICE_TRY(add_bias(plan.desc.get()));
  if (is_narrow(p)) SLUICE_TRY(sum_in_f32(plan.desc.get()));
  if (is_scaled(p)) SLUICE_TRY(add_scales(plan.desc.get()));

  const int64_t a_rows = p.a.transposed ? p.k : p.m, a_columns = p.a.transposed ? p.m : p.k;
  const int64_t b_rows = p.b.transposed ? p.n : p.k, b_columns = p.b.transposed ? p.k : p.n;
  SLUICE_CUDA_TRY(cublasLtMatrixLayoutCreate(plan.a.receive(), type(p.a), uint64_t(a_columns),
                                             uint64_t(a_rows), p.a.stride));
  SLUICE_CUDA_TRY(cublasLtMatrixLayoutCreate(plan.b.receive(), type(p.b), uint64_t(b_columns),
                                             uint64_t(b_rows), p.b.stride));
  SLUICE_CUDA_TRY(
      cublasLtMatrixLayoutCreate(plan.d.receive(), type(p.d), uint64_t(p.n), uint64_t(p.m), p.d.stride));
  return plan;
}

Result<std::vector<cublasLtMatmulHeuristicResult_t>> Products::candidates(const Product& product,
                                                                          const Plan& plan) const {
  MatmulPreference preference;
  SLUICE_CUDA_TRY(cublasLtMatmulPreferenceCreate(preference.receive()));
  const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) -> Status {
    SLUICE_CUDA_TRY(cublasLtMatmulPreferenceSetAttribute(preference.get(), attribute, &value, sizeof value));
    return {};
  };
  SLUICE_TRY(set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t(library_workspace_bytes(product))));
  // The operands change places, see layouts_of().
  SLUICE_TRY(set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment_of(product.b)));
  SLUICE_TRY(set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment_of(product.a)));
  SLUICE_TRY(set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment_of(product.d)));
  SLUICE_TRY(set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment_of(product.d)));
  // Partial results are summed in fp32 and in a fixed order: neither rounded to the output's type first nor
  // added up in the output itself. Exact ones have none.
  const auto scheme =
      is_exact(product) ? CUBLASLT_REDUCTION_SCHEME_NONE : CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  SLUICE_TRY(set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, uint32_t(scheme)));

  std::vector<cublasLtMatmulHeuristicResult_t> found(kCandidates);
  int count = 0;
  SLUICE_CUDA_TRY(cublasLtMatmulAlgoGetHeuristic(handle_.get(), plan.desc.get(), plan.b.get(), plan.a.get(),
                                                 plan.d.get(), plan.d.get(), preference.get(), kCandidates,
                                                 found.data(), &count));
  found.resize(size_t(count));
  std::erase_if(found, [](const auto& result) { return result.state != CUBLAS_STATUS_SUCCESS; });
  if (found.empty()) return error(ErrorKind::Device, "cublasLtMatmulAlgoGetHeuristic: no algorithm");
  return found;
}

bool Products::is_exact(const Product& p) const {
  return rules_.exact && p.a.type == DType::BF16 && !p.a.transposed && p.b.transposed && p.a.stride == p.k &&
         p.b.stride == p.k && p.scale == 1;
}

Status Products::launch_own(const Product& p, const Operands& o, cudaStream_t stream) {
  return with_device_type(p.d.type, [&]<class D>(D) -> Status {
    SLUICE_CUDA_TRY(row_product(RowProduct<D>{.x = static_cast<const bf16*>(o.a),
                                              .w = static_cast<const bf16*>(o.b),
                                              .c = p.add ? static_cast<const D*>(o.c) : nullptr,
                                              .bias = p.bias ? static_cast<const bf16*>(o.bias) : nullptr,
                                              .d = static_cast<D*>(o.d),
                                              .m = p.m,
                                              .n = p.n,
                                              .k = p.k,
                                              .stride = p.d.stride},
                                stream));
    return {};
  });
}

Status Products::launch(const Product& product, const Plan& plan, const cublasLtMatmulAlgo_t& algo,
                        const Operands& o, cudaStream_t stream) const {
  const float alpha = product.scale, beta = product.add ? 1 : 0;
  if (product.bias) SLUICE_TRY(set_bias(plan.desc.get(), o.bias));
  if (is_scaled(product))
    SLUICE_TRY(set_scales(plan.desc.get(), o.scales.a ? o.scales.a : scales_of(o.a, product.m, product.a),
                          o.scales.b ? o.scales.b : scales_of(o.b, product.n, product.b)));
  SLUICE_CUDA_TRY(cublasLtMatmul(handle_.get(), plan.desc.get(), &alpha, o.b, plan.b.get(), o.a, plan.a.get(),
                                 &beta, product.add ? o.c : o.d, plan.d.get(), o.d, plan.d.get(), &algo,
                                 o.workspace.data, size_t(o.workspace.bytes), stream));
  return {};
}

Status Products::tune(const Product& product, Plan& plan,
                      const std::vector<cublasLtMatmulHeuristicResult_t>& found, const Scratch& scratch,
                      cudaStream_t stream) const {
  const ProductScratch at = place(product);
  const auto words = [&](int64_t offset) { return reinterpret_cast<bf16*>(scratch.data + offset); };
  // A pair of bf16 is an f32 of about the second one's value, as well.
  const auto fill = [&](int64_t from, int64_t to, int64_t elements, float scale, uint64_t seed) -> Status {
    if (!is_narrow(product)) {
      SLUICE_CUDA_TRY(fill_random(words(from), (to - from) / 2, scale, seed, stream));
      return {};
    }
    // Bytes of scales that are floats below 1.
    SLUICE_CUDA_TRY(cudaMemsetAsync(scratch.data + from, 0x3f, size_t(to - from), stream));
    auto* bytes = reinterpret_cast<uint8_t*>(scratch.data + from);
    SLUICE_CUDA_TRY(fill_random_e4m3(bytes, elements, seed, stream));
    return {};
  };
  SLUICE_TRY(fill(at.a, at.b, product.m * product.k, 1.0f, 1));
  SLUICE_TRY(fill(at.b, at.d, product.n * product.k, 0.02f, 2));
  const Operands operands{scratch.data + at.a,
                          scratch.data + at.b,
                          scratch.data + at.d,
                          scratch.data + at.d,
                          {scratch.data + at.workspace, library_workspace_bytes(product)},
                          scratch.data + at.bias};
  if (product.bias) SLUICE_CUDA_TRY(fill_random(words(at.bias), product.n, 1.0f, 3, stream));

  // The result's hash: algorithms that sum in the first one's order, or in that of row_product(), give its
  // bits.
  auto* hash = reinterpret_cast<uint64_t*>(scratch.data + at.hash);
  const auto hash_of = [&](const cublasLtMatmulAlgo_t* algo) -> Result<uint64_t> {
    SLUICE_CUDA_TRY(cudaMemsetAsync(operands.d, 0, size_t(at.workspace - at.d), stream));
    SLUICE_CUDA_TRY(cudaMemsetAsync(hash, 0, sizeof *hash, stream));
    SLUICE_TRY(algo != nullptr ? launch(product, plan, *algo, operands, stream)
                               : launch_own(product, operands, stream));
    SLUICE_CUDA_TRY(
        hash_words(static_cast<const uint32_t*>(operands.d), (at.workspace - at.d) / 4, hash, stream));
    uint64_t value = 0;
    SLUICE_CUDA_TRY(cudaMemcpyAsync(&value, hash, sizeof value, cudaMemcpyDeviceToHost, stream));
    SLUICE_CUDA_TRY(cudaStreamSynchronize(stream));
    return value;
  };

  struct Entrant {
    size_t index;  // of what was found; behind them the own kernel
    float ms;      // the best of its timings, per run
  };
  std::vector<Entrant> entrants;
  const bool exact = is_exact(product);
  SLUICE_ASSIGN(const uint64_t wanted, hash_of(exact ? nullptr : &found[0].algo));
  for (size_t i = 0; i < found.size(); ++i) {
    SLUICE_ASSIGN(const uint64_t own, hash_of(&found[i].algo));
    if ((!rules_.reproducible && !exact) || own == wanted) entrants.push_back({i, INFINITY});
  }
  if (exact) entrants.push_back({found.size(), INFINITY});
  const size_t equal = entrants.size();
  if (exact && equal == 1) {
    plan.own = true;
    plan.about = fmt::format("{}: own kernel, whose bits none of {} gives", product.to_text(), found.size());
    return {};
  }

  Timer timer;
  SLUICE_TRY(timer.create());
  const auto time = [&](const Entrant& entrant, int runs) {
    return timer.time(runs, stream, [&] {
      return entrant.index < found.size() ? launch(product, plan, found[entrant.index].algo, operands, stream)
                                          : launch_own(product, operands, stream);
    });
  };
  SLUICE_ASSIGN(const float single, time(entrants[0], 1));
  const int runs = std::max(kLeastRuns, int(kTimedMs / std::max(double(single), 0.01)));
  // In turns, so that a changing clock treats all alike.
  const auto turn = [&]() -> Status {
    for (Entrant& entrant : entrants) {
      SLUICE_ASSIGN(const float ms, time(entrant, runs));
      entrant.ms = std::min(entrant.ms, ms / float(runs));
    }
    return {};
  };
  SLUICE_TRY(turn());
  const float first_ms = entrants[0].ms;
  std::ranges::stable_sort(entrants, {}, &Entrant::ms);
  entrants.resize(std::min(equal, kFinalists));
  SLUICE_TRY(turn());
  const Entrant& best = *std::ranges::min_element(entrants, {}, &Entrant::ms);
  plan.own = best.index == found.size();
  if (!plan.own) plan.algo = found[best.index].algo;
  const double tera = 2e-9 * double(product.m) * double(product.n) * double(product.k);
  plan.about = fmt::format("{}: {} of {} ({} give equal bits), {:.3f} ms, {:.0f} TFLOP/s; first {:.3f} ms",
                           product.to_text(),
                           plan.own ? "own kernel instead" : fmt::format("choice {}", best.index + 1),
                           found.size(), equal, best.ms, tera / best.ms, first_ms);
  return {};
}

std::string Products::cache_key(const Product& p) const {
  return fmt::format("{} strides {} {} {}{}", p.to_text(), p.a.stride, p.b.stride, p.d.stride,
                     is_exact(p)           ? " exact"
                     : rules_.reproducible ? " reproducible"
                                           : "");
}

std::optional<cublasLtMatmulAlgo_t> Products::cached(const Product& product, const Plan& plan) const {
  const std::optional<std::string> bytes = cache_->find(cache_key(product));
  cublasLtMatmulAlgo_t algo{};
  if (!bytes || bytes->size() != sizeof algo) return std::nullopt;
  std::memcpy(&algo, bytes->data(), sizeof algo);
  cublasLtMatmulHeuristicResult_t result{};
  const cublasStatus_t code = cublasLtMatmulAlgoCheck(
      handle_.get(), plan.desc.get(), plan.b.get(), plan.a.get(), plan.d.get(), plan.d.get(), &algo, &result);
  if (code != CUBLAS_STATUS_SUCCESS || result.workspaceSize > size_t(library_workspace_bytes(product)))
    return std::nullopt;
  return algo;
}

int64_t Products::sums_bytes_on(ComputeCapability capability) {
  const bool scales = scales_products(capability) && CUBLAS_VERSION >= 120900;
  return scales ? 0 : kProductWorkspaceBytes - kSumsWorkspaceBytes;
}

bool Products::scales_after(const Product& p) const {
  return is_scaled(p) && rules_.sums_bytes > 0;
}

Result<std::string> Products::prepare(const Product& product, const Scratch& scratch, cudaStream_t stream) {
  if (scales_after(product)) {
    std::vector<std::string> about;
    const Parts parts = parts_of(product, rules_.sums_bytes);
    for (const int64_t rows : {parts.rows, product.m % parts.rows}) {
      for (const int64_t columns : {parts.columns, product.n % parts.columns}) {
        if (rows == 0 || columns == 0) continue;
        SLUICE_ASSIGN(about.emplace_back(), prepare(sums_of(product, rows, columns), scratch, stream));
      }
    }
    return fmt::format("{}", fmt::join(about, "; "));
  }
  if (const auto known = plans_.find(product); known != plans_.end()) return known->second.about;
  SLUICE_ASSIGN(Plan plan, layouts_of(product));
  if (const auto algo = cached(product, plan)) {
    plan.algo = *algo;
    plan.about = fmt::format("{}: chosen before", product.to_text());
    return plans_.emplace(product, std::move(plan)).first->second.about;
  }
  const bool exact = is_exact(product);
  if (exact && cache_->find(cache_key(product)) == kOwnKernel) {
    plan.own = true;
    plan.about = fmt::format("{}: own kernel, chosen before", product.to_text());
    return plans_.emplace(product, std::move(plan)).first->second.about;
  }
  auto found = candidates(product, plan);
  if (!found.ok() && !exact) return error_at(product.to_text(), found.error());
  plan.own = exact;
  plan.about = fmt::format("{}: own kernel", product.to_text());
  if (!exact) {
    plan.algo = found->front().algo;
    plan.about = fmt::format("{}: first guess of {}", product.to_text(), found->size());
  }
  if (found.ok() && place(product).bytes <= scratch.bytes) {
    SLUICE_TRY(tune(product, plan, *found, scratch, stream));
    cache_->put(cache_key(product),
                plan.own ? std::string(kOwnKernel)
                         : std::string(reinterpret_cast<const char*>(&plan.algo), sizeof plan.algo));
  }
  return plans_.emplace(product, std::move(plan)).first->second.about;
}

Status Products::run_sums(const Product& p, const Operands& o, cudaStream_t stream) {
  const Parts parts = parts_of(p, rules_.sums_bytes);
  const auto* a = static_cast<const std::byte*>(o.a);
  const auto* b = static_cast<const std::byte*>(o.b);
  const auto* a_scales = static_cast<const float*>(o.scales.a ? o.scales.a : scales_of(a, p.m, p.a));
  const auto* b_scales = static_cast<const float*>(o.scales.b ? o.scales.b : scales_of(b, p.n, p.b));
  const Scratch scratch{o.workspace.data, kSumsWorkspaceBytes};
  for (int64_t row = 0; row < p.m; row += parts.rows) {
    for (int64_t column = 0; column < p.n; column += parts.columns) {
      const Product part = sums_of(p, std::min(parts.rows, p.m - row), std::min(parts.columns, p.n - column));
      const int64_t at = row * p.d.stride + column;
      void* const d = static_cast<std::byte*>(o.d) + at * size_of(p.d.type);
      void* const sums = sums_in_place(p) ? d : scratch.data + scratch.bytes;
      SLUICE_TRY(run(part, a + row * p.a.stride, b + column * p.b.stride, nullptr, sums, scratch, stream));
      SLUICE_CUDA_TRY(with_device_type(p.d.type, [&]<class D>(D) {
        return scale_sums(ScaledSums<D>{.sums = static_cast<const float*>(sums),
                                        .sums_stride = part.d.stride,
                                        .of_rows = a_scales + row,
                                        .of_columns = b_scales + column,
                                        .c = p.add ? static_cast<const D*>(o.c) + at : nullptr,
                                        .bias = p.bias ? static_cast<const bf16*>(o.bias) + column : nullptr,
                                        .d = static_cast<D*>(d),
                                        .rows = part.m,
                                        .columns = part.n,
                                        .stride = p.d.stride},
                          stream);
      }));
    }
  }
  return {};
}

Status Products::run(const Product& product, const void* a, const void* b, const void* c, void* d,
                     const Scratch& workspace, cudaStream_t stream, const void* bias,
                     const RowScales& scales) {
  const Operands operands{a, b, c, d, workspace, bias, scales};
  if (scales_after(product)) return run_sums(product, operands, stream);
  auto plan = plans_.find(product);
  if (plan == plans_.end()) {
    if (const auto prepared = prepare(product, {}, stream); !prepared.ok()) return prepared.error();
    plan = plans_.find(product);
  }
  if (plan->second.own) return launch_own(product, operands, stream);
  return launch(product, plan->second, plan->second.algo, operands, stream);
}

}  // namespace sluice::core::cuda
