// SPDX-License-Identifier: Apache-2.0
// Matrix products on cuBLASLt: bf16, f32 or f8e4m3 operands, f32 accumulation, bf16 or f32 result.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backend/cuda/handle.h"
#include "backend/cuda/library_cache.h"
#include "base/bytes.h"
#include "base/compute_capability.h"
#include "base/status.h"
#include "ops/op.h"

namespace sluice::core::cuda {

// A row-major matrix of a product, whose rows are `stride` elements apart in memory: bf16, f32, or f8e4m3,
// whose scales, one for each row, follow its elements.
struct ProductMatrix {
  int64_t stride;
  DType type;
  bool transposed = false;

  auto operator<=>(const ProductMatrix&) const = default;
};

// D[m, n] = scale op(A)[m, k] op(B)[k, n] (+ C) (+ bias[n] in every row); op transposes where said. A and B
// have one type, and D has f32 where that is f32. C is as D, and may be D itself.
struct Product {
  int64_t m, n, k;
  ProductMatrix a, b, d;
  bool add = false;
  bool bias = false;      // bf16
  float scale = 1;        // of the product alone
  bool unscaled = false;  // operands in 8 bits count without their scales

  auto operator<=>(const Product&) const = default;
  std::string to_text() const;
};

// Whether few_rows() makes it, and no product, unless results are exact.
bool has_few_rows(const Linear& op);
Product product_of(const Linear& op);
Product product_of(const LastLogits& op);  // REQUIRES: is_product(), or that results are exact
Product product_of(const LinearDgrad& op);
Product product_of(const LinearWgrad& op);
// The product of one part.
Product product_of(const LowRank& op);
Product product_of(const LowRankDgrad& op);
Product product_of(const LowRankWgrad& op);

// x x^T of the smaller side, its square, and the next x.
struct MuonProducts {
  Product gram, square, next;
};
MuonProducts muon_products(const Muon& op);

// All products of an op, equal ones once. Empty for ops without any. `exact`: see Products.
std::vector<Product> products_of(const Op& op, bool exact);

// The products of HeadLoss over one sub-chunk of `rows` rows. Gradients of the logits in bf16 lie in the
// first halves of the rows of f32 logits, hence their doubled stride.
struct HeadProducts {
  Product logits, dx, dw;
};
HeadProducts head_products(const HeadLoss& op, int64_t rows, bool first_sub_chunk);

// Device memory that nobody uses at the moment.
struct Scratch {
  std::byte* data = nullptr;
  int64_t bytes = 0;
};

// Where operands' scales are that do not follow the last row: those of parts of larger matrices.
struct RowScales {
  const void *a = nullptr, *b = nullptr;
};

class Products {
 public:
  struct Rules {
    // The algorithms of one product all give the same bits, so that choosing among them by time changes no
    // result.
    bool reproducible = true;
    // Products of rows with weights have the bits of row_product(), however many rows they have: that kernel
    // runs where no algorithm has been seen to give them.
    bool exact = false;
    // 0: the library scales rows of operands in 8 bits. Otherwise it makes sums alone, in f32, so many bytes
    // of them at a time. A pass scales them, and adds what is to be added.
    int64_t sums_bytes = 0;
  };
  // As many as stay in a GPU's cache, where the library of that GPU does not scale.
  static int64_t sums_bytes_on(ComputeCapability capability);
  // Choices made by time are kept in `cache`.
  static Result<Products> create(const Rules& rules, std::shared_ptr<LibraryCache> cache);
  bool exact() const { return rules_.exact; }

  // Chooses the product's algorithm: the cache's, else the fastest of several, timed on `scratch` under load,
  // or cuBLASLt's first guess when scratch is too small. A product prepared before is left as it is. Returns
  // one line about it.
  Result<std::string> prepare(const Product& product, const Scratch& scratch, cudaStream_t stream);

  // Queues the product. `c` is read only when product.add, `bias` only when product.bias. A product that was
  // not prepared is prepared without timing first.
  Status run(const Product& product, const void* a, const void* b, const void* c, void* d,
             const Scratch& workspace, cudaStream_t stream, const void* bias = nullptr,
             const RowScales& scales = {});

 private:
  struct Plan {
    MatmulDesc desc;
    MatrixLayout a, b, d;
    cublasLtMatmulAlgo_t algo{};
    bool own = false;  // row_product() in its place
    std::string about;
  };
  struct Operands {
    const void *a, *b, *c;
    void* d;
    Scratch workspace;
    const void* bias = nullptr;
    RowScales scales = {};
  };

  // Whether a pass scales the product's sums.
  bool scales_after(const Product& product) const;
  Status run_sums(const Product& product, const Operands& operands, cudaStream_t stream);
  // Whether the product has to have the bits of row_product().
  bool is_exact(const Product& product) const;
  Result<Plan> layouts_of(const Product& product) const;
  Result<std::vector<cublasLtMatmulHeuristicResult_t>> candidates(const Product& product,
                                                                  const Plan& plan) const;
  // The algorithm that the cache names, if this cuBLASLt runs it.
  std::optional<cublasLtMatmulAlgo_t> cached(const Product& product, const Plan& plan) const;
  std::string cache_key(const Product& product) const;
  Status launch(const Product& product, const Plan& plan, const cublasLtMatmulAlgo_t& algo,
                const Operands& operands, cudaStream_t stream) const;
  static Status launch_own(const Product& product, const Operands& operands, cudaStream_t stream);
  Status tune(const Product& product, Plan& plan, const std::vector<cublasLtMatmulHeuristicResult_t>& found,
              const Scratch& scratch, cudaStream_t stream) const;

  CublasLt handle_;
  Rules rules_;
  std::shared_ptr<LibraryCache> cache_;
  std::map<Product, Plan> plans_;
};

}  // namespace sluice::core::cuda
