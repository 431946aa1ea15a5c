#include "ops/mlp.h"

namespace sluice {
using enum Access;

Operands Swiglu::operands() const {
  return {{"gu", Read, dtype, tokens * 2 * dim}, {"y", Write, dtype, tokens * dim}};
}

Operands SwigluBwd::operands() const {
  return {{"gu", Read, dtype, tokens * 2 * dim},
          {"dy", Read, dtype, tokens * dim},
          {"dgu", Write, dtype, tokens * 2 * dim},
          {"y", Write, dtype, tokens * dim}};
}

}  // namespace sluice
