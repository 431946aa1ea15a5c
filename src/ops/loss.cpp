#include "ops/loss.h"

namespace sluice {
using enum Access;
using enum DType;

Operands HeadLoss::operands() const {
  Operands o{{"x", Read, dtype, tokens * dim},
             {"w", Read, dtype, vocab * dim},
             {"targets", Read, I32, tokens},
             args_operand(),
             {"loss", write_or(accumulate_loss), F64, 1}};
  if (!forward_only) {
    o.push_back({"dx", Write, dtype, tokens * dim});
    o.push_back({"dw", write_or(accumulate_dw), grad_dtype, vocab * dim});
  }
  return o;
}

Operands Logits::operands() const {
  return {{"x", Read, dtype, tokens * dim},
          {"w", Read, dtype, vocab * dim},
          args_operand(),
          {"logits", Write, F32, vocab}};
}
double Logits::traffic() const {
  return double(vocab + 1) * double(dim) * double(size_of(dtype));
}

}  // namespace sluice
