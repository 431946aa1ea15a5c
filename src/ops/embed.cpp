#include "ops/embed.h"

namespace sluice {
using enum Access;
using enum DType;

Operands Embed::operands() const {
  return {{"ids", Read, I32, tokens}, {"table", Read, dtype, vocab * dim}, {"y", Write, dtype, tokens * dim}};
}
double Embed::traffic() const {
  return double(tokens) * (4.0 + 2.0 * double(dim) * double(size_of(dtype)));
}

Operands EmbedBwd::operands() const {
  return {{"ids", Read, I32, tokens},
          {"dy", Read, dtype, tokens * dim},
          {"dtable", write_or(accumulate), grad_dtype, vocab * dim}};
}

}  // namespace sluice
