#include "ops/cast.h"

namespace sluice {
using enum Access;

Operands Cast::operands() const {
  return {{"x", Read, in_dtype, elements}, {"y", Write, dtype, elements}};
}

}  // namespace sluice
