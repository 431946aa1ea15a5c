// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "backend/cpu/kernels/kernels.h"
#include "ops/cast.h"
#include "ops/packed.h"

#define SLUICE_LOOPS "backend/cpu/kernels/cast_loops.h"
#include "backend/cpu/each_isa.h"

namespace sluice::core::cpu {
namespace {
constexpr int64_t kBlock = 32 * kKiB;  // elements per task

constexpr int64_t kColumns = 64;  // that a task turns

template <class F8>
struct Numbers8 {
  const uint8_t* codes;
  float operator()(int64_t i) const { return F8::value(codes[i]); }
};
struct Numbers16 {
  const uint8_t* codes;
  const Codes16& numbers;
  float operator()(int64_t i) const { return numbers[size_t(codes[i / 2] >> i % 2 * 4 & 15)]; }
};

struct NoScale {
  float operator()(int64_t) const { return 1; }
};
struct FloatScales {
  const float* scales;
  float operator()(int64_t block) const { return scales[block]; }
};
struct PowerScales {
  const uint8_t* scales;
  float operator()(int64_t block) const { return float_of_e8m0(scales[block]); }
};

// Codes of a format (ops/packed.h) as numbers.
void expand(const NumberFormat& format, const uint8_t* codes, int64_t elements, DType dtype, void* to,
            const KernelContext& context) {
  const uint8_t* const scales = codes + NumberFormat(format.type).bytes(elements);
  const int64_t block = format.block == 0 ? elements : int64_t{format.block};
  const auto run = [&](const auto& number, const auto& scale) {
    with_type(dtype, [&]<class Y>(Y) {
      auto* y = static_cast<Y*>(to);
      context.pool.parallel_for(ceil_div(elements, kBlock), [&](int64_t task, int) {
        const int64_t begin = task * kBlock;
        SLUICE_LOOP(context.isa, expand_codes, number, scale, block, y, begin,
                    std::min(elements, begin + kBlock));
      });
    });
  };
  const auto with_scales = [&](const auto& number) {
    if (format.block == 0) return run(number, NoScale{});
    if (format.scale == DType::F8E8M0) return run(number, PowerScales{scales});
    run(number, FloatScales{reinterpret_cast<const float*>(scales)});
  };
  if (format.type == DType::F8E4M3) return with_scales(Numbers8<E4m3>{codes});
  if (format.type == DType::F8E5M2) return with_scales(Numbers8<E5m2>{codes});
  with_scales(Numbers16{codes, codes_of(format.type)});
}

template <class F8>
void quantize(F8 number, const Quantize& op, const Args& args, const KernelContext& context) {
  const int64_t rows = op.rows, cols = op.cols, rows_per_task = ceil_div(kBlock, cols);
  with_type(op.dtype, [&]<class T>(T) {
    const auto* x = args.in<T>(Quantize::kX);
    if (op.by_row) {
      auto* y = args.out<uint8_t>(Quantize::kY);
      auto* scales = reinterpret_cast<float*>(y + rows * cols);
      context.pool.parallel_for(ceil_div(rows, rows_per_task), [&](int64_t task, int) {
        const int64_t first = task * rows_per_task;
        SLUICE_LOOP(context.isa, quantize_rows, number, x + first * cols,
                    std::min(rows_per_task, rows - first), cols, y + first * cols, scales + first);
      });
    }
    if (op.by_column) {
      auto* y = args.out<uint8_t>(int(op.turned_operand()));
      auto* scales = reinterpret_cast<float*>(y + rows * cols);
      context.pool.parallel_for(ceil_div(cols, kColumns), [&](int64_t task, int) {
        const int64_t first = task * kColumns;
        SLUICE_LOOP(context.isa, quantize_columns, number, x + first, rows, cols,
                    std::min(kColumns, cols - first), y + first * rows, scales + first);
      });
    }
  });
}

}  // namespace

void cast(const NumberFormat& from, const void* x, int64_t elements, DType dtype, void* y,
          const KernelContext& context) {
  if (is_code(from.type) || is_float8(from.type))
    return expand(from, static_cast<const uint8_t*>(x), elements, dtype, y, context);
  with_type(from.type, [&]<class X>(X) {
    with_type(dtype, [&]<class Y>(Y) {
      context.pool.parallel_for(ceil_div(elements, kBlock), [&](int64_t task, int) {
        const int64_t begin = task * kBlock;
        SLUICE_LOOP(context.isa, convert, static_cast<const X*>(x) + begin, static_cast<Y*>(y) + begin,
                    std::min(kBlock, elements - begin));
      });
    });
  });
}

Status launch(const Cast& op, const Args& args, const KernelContext& context) {
  const int64_t bytes = size_of(op.dtype);
  auto* const y = args.out<std::byte>(Cast::kY) + op.first * bytes;
  cast(op.in, args.in<void>(Cast::kX), op.elements, op.dtype, y, context);
  if (op.all > 0 && op.first == 0)
    std::fill_n(y + op.elements * bytes, (op.all - op.elements) * bytes, std::byte{});
  return {};
}

Status launch(const Quantize& op, const Args& args, const KernelContext& context) {
  if (op.format.type == DType::F8E5M2) {
    quantize(E5m2{}, op, args, context);
  } else {
    quantize(E4m3{}, op, args, context);
  }
  return {};
}

Status launch(const ScaleBy& op, const Args& args, const KernelContext& context) {
  const float s = *args.in<float>(ScaleBy::kS);
  with_type(op.dtype, [&]<class T>(T) {
    context.pool.parallel_for(ceil_div(op.elements, kBlock), [&](int64_t task, int) {
      const int64_t begin = task * kBlock;
      SLUICE_LOOP(context.isa, scale, args.in<T>(ScaleBy::kX) + begin, s, args.out<T>(ScaleBy::kY) + begin,
                  std::min(kBlock, op.elements - begin));
    });
  });
  return {};
}

}  // namespace sluice::core::cpu
