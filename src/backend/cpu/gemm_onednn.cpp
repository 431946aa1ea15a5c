// SPDX-License-Identifier: Apache-2.0
// f32 products by oneDNN's matmul primitives, 2.x or 3.x, each slice on one thread.
#include <oneapi/dnnl/dnnl.hpp>

#if DNNL_CPU_THREADING_RUNTIME == DNNL_RUNTIME_OMP
#include <omp.h>
#endif

#include <algorithm>
#include <atomic>
#include <map>
#include <string>

#include "backend/cpu/gemm.h"

namespace sluice::core::cpu {
namespace {

using dnnl::memory;

// oneDNN sizes its work for the calling thread's OpenMP limit. One thread per call: our pool is the only
// pool.
int limit_openmp(int threads) {
#if DNNL_CPU_THREADING_RUNTIME == DNNL_RUNTIME_OMP
  const int before = omp_get_max_threads();
  omp_set_num_threads(threads);
  return before;
#else
  return threads;
#endif
}

struct OneOpenmpThread {
  int before = limit_openmp(1);
  OneOpenmpThread() = default;
  OneOpenmpThread(const OneOpenmpThread&) = delete;
  OneOpenmpThread& operator=(const OneOpenmpThread&) = delete;
  ~OneOpenmpThread() { limit_openmp(before); }
};

// A slice is this many rows of the output, by the shape alone: oneDNN's order of sums may depend on it.
int64_t slice_rows(const GemmShape& s) {
  const int64_t slices = std::clamp<int64_t>(s.m / 128, 2, 64);
  return (std::max<int64_t>(32, (s.m + slices - 1) / slices) + 31) / 32 * 32;
}

struct Slice {
  dnnl::matmul primitive;
  memory::desc a, b, c, scratch;

  Slice(const GemmShape& s, int64_t rows, const dnnl::engine& engine) {
    constexpr auto kF32 = memory::data_type::f32;
    a = memory::desc({rows, s.k}, kF32, s.layout == Layout::TN ? memory::dims{1, s.m} : memory::dims{s.k, 1});
    b = memory::desc({s.k, s.n}, kF32, s.layout == Layout::NT ? memory::dims{1, s.k} : memory::dims{s.n, 1});
    c = memory::desc({rows, s.n}, kF32, memory::dims{s.n, 1});
    dnnl::primitive_attr attr;
    attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    if (s.accumulate) {
      dnnl::post_ops sum;
      sum.append_sum(1.0f);
      attr.set_post_ops(sum);
    }
#if DNNL_VERSION_MAJOR >= 3
    const dnnl::matmul::primitive_desc desc(engine, a, b, c, attr);
#else
    const dnnl::matmul::primitive_desc desc(dnnl::matmul::desc(a, b, c), attr, engine);
#endif
    scratch = desc.scratchpad_desc();
    primitive = dnnl::matmul(desc);
  }
};

struct Product {
  int64_t rows;
  Slice full, last;

  Product(const GemmShape& s, const dnnl::engine& engine)
      : rows(std::min(slice_rows(s), s.m)),
        full(s, rows, engine),
        last(s.m % rows == 0 ? full : Slice(s, s.m % rows, engine)) {}
};

}  // namespace

struct GemmProvider::Impl {
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  std::map<GemmShape, Product> products;

  void run_slice(const Slice& slice, const void* a, const void* b, void* c, std::byte* scratch) const {
    const auto bind = [&](const memory::desc& desc, const void* data) {
      return memory(desc, engine, const_cast<void*>(data));
    };
    dnnl::stream stream(engine);
    slice.primitive.execute(stream, {{DNNL_ARG_SRC, bind(slice.a, a)},
                                     {DNNL_ARG_WEIGHTS, bind(slice.b, b)},
                                     {DNNL_ARG_DST, bind(slice.c, c)},
                                     {DNNL_ARG_SCRATCHPAD, bind(slice.scratch, scratch)}});
  }
};

GemmProvider::GemmProvider(CpuIsa) : impl_(std::make_unique<Impl>()) {}
GemmProvider::~GemmProvider() = default;

std::string GemmProvider::name() {
  const dnnl_version_t* v = dnnl::version();
  return fmt::format("oneDNN {}.{}.{}", v->major, v->minor, v->patch);
}

void GemmProvider::thread_start() {
  limit_openmp(1);
}

int64_t GemmProvider::workspace_bytes(const GemmShape&) const {
  return 0;
}

int64_t GemmProvider::scratch_bytes(const GemmShape& shape) const {
  const Product& p = impl_->products.at(shape);
  return static_cast<int64_t>(std::max(p.full.scratch.get_size(), p.last.scratch.get_size()));
}

Status GemmProvider::prepare(const GemmShape& shape) {
  if (impl_->products.contains(shape)) return {};
  const OneOpenmpThread one;
  try {
    impl_->products.try_emplace(shape, shape, impl_->engine);
  } catch (const dnnl::error& e) {
    return error(ErrorKind::Device, "oneDNN has no product {} on this CPU: {}", to_text(shape), e.what());
  }
  return {};
}

Status GemmProvider::run(const GemmShape& s, ThreadPool& pool, std::span<std::byte* const> scratch,
                         const void* a, const void* b, void* c, std::byte*) const {
  const auto found = impl_->products.find(s);
  if (found == impl_->products.end())
    return error(ErrorKind::Internal, "product {} was not prepared", to_text(s));
  const Product& p = found->second;
  const int64_t a_step = p.rows * (s.layout == Layout::TN ? 1 : s.k) * size_of(s.in);
  const int64_t c_step = p.rows * s.n * size_of(s.out);
  const int64_t slices = (s.m + p.rows - 1) / p.rows;
  std::atomic<bool> failed{false};
  pool.parallel_for(slices, [&](int64_t i, int worker) {
    try {
      impl_->run_slice(i + 1 < slices ? p.full : p.last, static_cast<const std::byte*>(a) + i * a_step, b,
                       static_cast<std::byte*>(c) + i * c_step, scratch[static_cast<size_t>(worker)]);
    } catch (const dnnl::error&) {
      failed.store(true, std::memory_order_relaxed);
    }
  });
  if (failed.load()) return error(ErrorKind::Device, "oneDNN failed in product {}", to_text(s));
  return {};
}

}  // namespace sluice::core::cpu
