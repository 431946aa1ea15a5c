// SPDX-License-Identifier: Apache-2.0
// Products of a group of four warps on Hopper's tensor cores, barriers that count bytes, and bulk copies of
// tiles. Compute capability 9.0 alone has them, in code that is compiled for sm_90a.
//
// Sums of m64nNk16: warp w of the group has rows 16w to 16w + 15. With g = lane / 4 and t = lane % 4, d[4j]
// and d[4j + 1] are row g, columns 8j + 2t and the next; d[4j + 2] and d[4j + 3] are row g + 8, the same
// columns.
#pragma once

#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "backend/cuda/kernels/ptx.cuh"

namespace sluice::core::cuda {

constexpr int kGroupThreads = 128;

// A matrix in shared memory, in pieces of 8 rows of 128 bytes, whose chunks of 16 bytes are exchanged: chunk
// c of row r lies at c ^ (r % 8). `first` is a multiple of 1,024, or lies 32 k bytes behind one: k products
// of 16 along rows. A matrix whose rows lie along k repeats its pieces every `stride` bytes. One that has a
// row for each k repeats them every `stride` bytes along k, and every `leading` bytes along its other side,
// 64 elements each.
__device__ inline uint64_t matrix_at(uint32_t first, uint32_t leading, uint32_t stride) {
  constexpr uint64_t kExchanged128 = uint64_t{1} << 62;
  return kExchanged128 | uint64_t{(first & 0x3ffff) >> 4} | uint64_t{leading >> 4} << 16 |
         uint64_t{stride >> 4} << 32;
}

// d = a b, or d += a b where `keep`; a of 64 x 16, b of 16 x kColumns. kAcross*: the matrix has a row for
// each k. The product is under way until await_products().
template <int kColumns, int kAcrossA, int kAcrossB>
struct GroupProduct;

// Operands are named by number in the instruction: the sums, then a, b, keep and how a and b lie.
#define SLUICE_SUMS_8(i)                                                                      \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), \
      "+f"(d[i + 6]), "+f"(d[i + 7])
#define SLUICE_SUMS_32(i) SLUICE_SUMS_8(i), SLUICE_SUMS_8(i + 8), SLUICE_SUMS_8(i + 16), SLUICE_SUMS_8(i + 24)
#define SLUICE_NAMES_16 "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15"
#define SLUICE_NAMES_32 \
  SLUICE_NAMES_16       \
  ",%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define SLUICE_NAMES_64                                                                                      \
  "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,"   \
  "%28,%29,%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53," \
  "%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define SLUICE_NAMES_96                                                                                   \
  SLUICE_NAMES_64                                                                                         \
  ",%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,%80,%81,%82,%83,%84,%85,%86,%87,%88," \
  "%89,%90,%91,%92,%93,%94,%95"
#define SLUICE_NAMES_128                                                                                   \
  SLUICE_NAMES_96                                                                                          \
  ",%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111,%112,%113,%114,%115,%116," \
  "%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127"
#define SLUICE_GROUP_PRODUCT(columns, sums, a_name, b_name, keep_name, a_lies, b_lies, ...)        \
  template <int kAcrossA, int kAcrossB>                                                            \
  struct GroupProduct<columns, kAcrossA, kAcrossB> {                                               \
    static __device__ void add(float (&d)[sums], uint64_t a, uint64_t b, int keep) {               \
      asm volatile("{ .reg .pred keep; setp.ne.b32 keep, %" #keep_name                             \
                   ", 0;\n"                                                                        \
                   "wgmma.mma_async.sync.aligned.m64n" #columns                                    \
                   "k16.f32.bf16.bf16\n"                                                           \
                   "{" SLUICE_NAMES_##sums "},\n%" #a_name ", %" #b_name ", keep, 1, 1, %" #a_lies \
                                           ", %" #b_lies "; }"                                     \
                   : __VA_ARGS__                                                                   \
                   : "l"(a), "l"(b), "r"(keep), "n"(kAcrossA), "n"(kAcrossB));                     \
    }                                                                                              \
  };
SLUICE_GROUP_PRODUCT(32, 16, 16, 17, 18, 19, 20, SLUICE_SUMS_8(0), SLUICE_SUMS_8(8))
SLUICE_GROUP_PRODUCT(64, 32, 32, 33, 34, 35, 36, SLUICE_SUMS_32(0))
SLUICE_GROUP_PRODUCT(128, 64, 64, 65, 66, 67, 68, SLUICE_SUMS_32(0), SLUICE_SUMS_32(32))
SLUICE_GROUP_PRODUCT(192, 96, 96, 97, 98, 99, 100, SLUICE_SUMS_32(0), SLUICE_SUMS_32(32), SLUICE_SUMS_32(64))
SLUICE_GROUP_PRODUCT(256, 128, 128, 129, 130, 131, 132, SLUICE_SUMS_32(0), SLUICE_SUMS_32(32),
                     SLUICE_SUMS_32(64), SLUICE_SUMS_32(96))
#undef SLUICE_GROUP_PRODUCT
#undef SLUICE_NAMES_128
#undef SLUICE_NAMES_96
#undef SLUICE_NAMES_64
#undef SLUICE_NAMES_32
#undef SLUICE_NAMES_16
#undef SLUICE_SUMS_32
#undef SLUICE_SUMS_8

// Makes the group's writes to registers and shared memory visible to the following products.
__device__ inline void begin_products() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ inline void close_products() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int kPending>
__device__ inline void await_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}
// The same, around products whose sums other instructions write before or read behind: the compiler moves
// none of these past the fence and the wait.
template <int kSums>
__device__ inline void pin(float (&sums)[kSums]) {
#pragma unroll
  for (int i = 0; i < kSums; ++i) asm volatile("" : "+f"(sums[i])::"memory");
}
template <int kSums>
__device__ inline void begin_products(float (&sums)[kSums]) {
  pin(sums);
  begin_products();
}
template <int kPending, int kSums>
__device__ inline void await_products(float (&sums)[kSums]) {
  await_products<kPending>();
  pin(sums);
}
// Until so many threads are at this barrier, of which there are 16; __syncthreads() has the first.
__device__ inline void await_threads(int barrier, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}
// Makes writes to shared memory before the awaited barrier visible to this thread's products.
__device__ inline void see_copies() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// An 8 x 8 matrix of 16-bit elements, turned: a lane has row g, columns 2t and 2t + 1.
__device__ inline uint32_t turned(uint32_t pair) {
  uint32_t out;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(out) : "r"(pair));
  return out;
}

template <int kRegisters>
__device__ inline void give_up_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ inline void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

__device__ inline uint32_t cluster_rank() {
  uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
__device__ inline void await_cluster() {
  asm volatile("barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

__device__ inline void make_barrier(uint32_t barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals));
}
__device__ inline void show_barriers() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
// Arrives once the thread's copies to shared memory so far have ended.
__device__ inline void arrive_when_copied(uint32_t barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}
// At the barrier of another block of the cluster. What the thread did before is ordered within its block
// alone. With the cluster's scope the compiler emits a barrier of all memory of the device, which takes
// longer than the products of a piece.
__device__ inline void arrive_at(uint32_t barrier, uint32_t rank) {
  asm volatile(
      "{ .reg .b32 there; mapa.shared::cluster.u32 there, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [there]; }" ::"r"(barrier),
      "r"(rank)
      : "memory");
}
__device__ inline void arrive_expecting(uint32_t barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}
// Until the barrier's phase of this parity has ended.
__device__ inline void await_barrier(uint32_t barrier, uint32_t parity) {
  asm volatile(
      "{ .reg .pred done;\n"
      "again: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again; }" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

// Copies a box of the matrix from column x, row y on; to the same place in all blocks of `blocks`, if there
// are several.
__device__ inline void copy_box(uint32_t to, const CUtensorMap* from, int x, int y, uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], "
      "[%4];" ::"r"(to),
      "l"(from), "r"(x), "r"(y), "r"(barrier)
      : "memory");
}
__device__ inline void copy_box_to_all(uint32_t to, const CUtensorMap* from, int x, int y, uint32_t barrier,
                                       uint16_t blocks) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], "
      "[%1, {%2, %3}], [%4], "
      "%5;" ::"r"(to),
      "l"(from), "r"(x), "r"(y), "r"(barrier), "h"(blocks)
      : "memory");
}

// The same of a matrix with four sides.
__device__ inline void copy_box_to_all(uint32_t to, const CUtensorMap* from, int x, int y, int z, int u,
                                       uint32_t barrier, uint16_t blocks) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], "
      "[%1, {%2, %3, %4, %5}], [%6], "
      "%7;" ::"r"(to),
      "l"(from), "r"(x), "r"(y), "r"(z), "r"(u), "r"(barrier), "h"(blocks)
      : "memory");
}

using Encode = CUresult (*)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*,
                            const cuuint64_t*, const cuuint32_t*, const cuuint32_t*, CUtensorMapInterleave,
                            CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill);
inline Encode encoder() {
  static const Encode found = [] {
    void* entry = nullptr;
    cudaDriverEntryPointQueryResult result{};
    const auto status =
        cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, 12000, cudaEnableDefault, &result);
    return status == cudaSuccess && result == cudaDriverEntryPointSuccess ? reinterpret_cast<Encode>(entry)
                                                                          : nullptr;
  }();
  return found;
}

// Whether the current device has what this file does, and its driver describes boxes.
inline bool is_hopper() {
  int device = 0, major = 0, minor = 0;
  if (cudaGetDevice(&device) != cudaSuccess) return false;
  if (cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) != cudaSuccess) return false;
  if (cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device) != cudaSuccess) return false;
  return major == 9 && minor == 0 && encoder() != nullptr;
}

// Describes a matrix of bf16, the side whose elements are neighbours first, and the boxes it is copied in,
// whose lines have 128 bytes. `strides` are bytes, of all sides but the first. What lies outside is zero.
template <int kSides>
cudaError_t describe_boxes(const __nv_bfloat16* data, const cuuint64_t (&sizes)[kSides],
                           const cuuint64_t (&strides)[kSides - 1], const cuuint32_t (&box)[kSides],
                           CUtensorMap& map) {
  cuuint32_t steps[kSides];
  for (cuuint32_t& step : steps) step = 1;
  const auto status =
      encoder()(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, kSides, const_cast<__nv_bfloat16*>(data), sizes,
                strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return status == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

// A launch of a kernel by clusters of so many blocks. The grid, in whole clusters, is the caller's to say.
class ClusterLaunch {
 public:
  ClusterLaunch(int cluster_blocks, int threads, size_t shared_bytes, cudaStream_t stream) {
    cluster_.id = cudaLaunchAttributeClusterDimension;
    cluster_.val.clusterDim.x = unsigned(cluster_blocks);
    cluster_.val.clusterDim.y = cluster_.val.clusterDim.z = 1;
    config.blockDim = dim3(unsigned(threads));
    config.dynamicSmemBytes = shared_bytes;
    config.stream = stream;
    config.attrs = &cluster_;
    config.numAttrs = 1;
  }
  ClusterLaunch(const ClusterLaunch&) = delete;
  ClusterLaunch& operator=(const ClusterLaunch&) = delete;

  // Lets the kernel have so much shared memory.
  template <class Kernel>
  cudaError_t prepare(Kernel* kernel) const {
    return cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                                cudaFuncAttributeMaxDynamicSharedMemorySize, int(config.dynamicSmemBytes));
  }

  cudaLaunchConfig_t config{};

 private:
  cudaLaunchAttribute cluster_{};
};

}  // namespace sluice::core::cuda
