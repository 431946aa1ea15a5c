// SPDX-License-Identifier: Apache-2.0
// Instructions that C++ does not reach: warp-level matrix products on bf16, asynchronous copies to shared
// memory, stores that must stay whole, fast roots, and kernels that begin early. Compute capability 8.0 and
// up.
//
// Fragments of m16n8k16, with g = lane / 4 and t = lane % 4:
//   A (16 x 16)  a[0] row g,     columns 2t, 2t+1     a[1] row g + 8, the same columns
//                a[2] row g,     columns 2t+8, 2t+9   a[3] row g + 8, the same columns
//   B (16 x 8)   b[0] rows 2t, 2t+1, column g         b[1] rows 2t+8, 2t+9, column g
//   C (16 x 8)   c[0..1] row g, columns 2t, 2t+1      c[2..3] row g + 8, the same columns
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace sluice::core::cuda {

__device__ inline uint32_t shared_address(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

// Four 8x8 matrices of 16-bit elements in shared memory. Lane l gives the address of row l % 8 of matrix l /
// 8 and receives, of each matrix, row g, columns 2t and 2t+1.
__device__ inline void load_matrices(uint32_t (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row)));
}

// As load_matrices, each matrix transposed.
__device__ inline void load_matrices_transposed(uint32_t (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row)));
}

// c += a b
__device__ inline void multiply_add(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Copies 16 bytes to shared memory, or writes zeros when not `valid`; `from` is a valid address either way.
__device__ inline void copy_async(void* to, const void* from, bool valid) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from),
               "r"(valid ? 16 : 0)
               : "memory");
}
__device__ inline void close_copies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
// Waits until at most `kPending` of the groups closed last are under way.
template <int kPending>
__device__ inline void await_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

// 16 bytes to global memory. The compiler splits a plain store of a vector that was computed in pieces.
__device__ inline void store_vector(void* p, uint4 v) {
  asm volatile("st.global.v4.u32 [%0], {%1,%2,%3,%4};" ::"l"(__cvta_generic_to_global(p)), "r"(v.x), "r"(v.y),
               "r"(v.z), "r"(v.w)
               : "memory");
}

// For a kernel that launch() starts early: waits until the kernels before it have ended and what they wrote
// is seen here. Every thread that reads or writes what another kernel writes or reads calls it before, and so
// does every block. Thus a kernel that has ended means that those before it have. A no-op in one that was not
// started early, and below compute capability 9.0.
__device__ inline void await_previous() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
// Once every block has called it or has ended, the next kernel may begin, if it is started early.
__device__ inline void let_next_begin() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}

// Within 2^-23 of the root, relatively.
__device__ inline float approximate_sqrt(float x) {
  float root;
  asm("sqrt.approx.f32 %0, %1;" : "=f"(root) : "f"(x));
  return root;
}

__device__ inline unsigned char* dynamic_shared() {
  extern __shared__ __align__(128) unsigned char bytes[];
  return bytes;
}

}  // namespace sluice::core::cuda
