#include "ops/op.h"

#include <fmt/format.h>

#include <type_traits>

namespace sluice {
namespace {

constexpr auto R = Access::Read;
constexpr auto W = Access::Write;
constexpr auto A = Access::Accumulate;
constexpr auto kI32 = DType::I32;
constexpr auto kF32 = DType::F32;
constexpr auto kF64 = DType::F64;

Operand args_operand() {
  return {"args", R, DType::U8, int64_t{sizeof(StepArgs)}};
}

// Collects an op's attributes as " name=value".
struct Printer {
  std::string out;
  void operator()(std::string_view name, DType v) { out += fmt::format(" {}={}", name, name_of(v)); }
  void operator()(std::string_view name, bool v) { out += fmt::format(" {}={}", name, v ? 1 : 0); }
  void operator()(std::string_view name, auto v) { out += fmt::format(" {}={}", name, v); }
};

}  // namespace

Operands Embed::operands() const {
  return {{"ids", R, kI32, tokens}, {"table", R, dtype, vocab * dim}, {"y", W, dtype, tokens * dim}};
}
double Embed::traffic() const {
  return double(tokens) * (4.0 + 2.0 * double(dim) * double(size_of(dtype)));
}

Operands EmbedBwd::operands() const {
  return {{"ids", R, kI32, tokens},
          {"dy", R, dtype, tokens * dim},
          {"dtable", write_or(accumulate), grad_dtype, vocab * dim}};
}

Operands RmsNorm::operands() const {
  return {{"x", R, dtype, tokens * dim}, {"w", R, dtype, dim}, {"y", W, dtype, tokens * dim}};
}

Operands RmsNormBwd::operands() const {
  Operands o{{"x", R, dtype, tokens * dim},
             {"w", R, dtype, dim},
             {"dy", R, dtype, tokens * dim},
             {"dx", W, dtype, tokens * dim},
             {"dw", write_or(accumulate), grad_dtype, dim}};
  if (has_residual) o.push_back({"dres", R, dtype, tokens * dim});
  return o;
}

Operands Linear::operands() const {
  Operands o{{"x", R, dtype, tokens * in}, {"w", R, dtype, out * in}, {"y", W, dtype, tokens * out}};
  if (has_residual) o.push_back({"residual", R, dtype, tokens * out});
  if (rope_heads > 0) {
    o.push_back({"pos", R, kI32, tokens});
    o.push_back({"inv_freq", R, kF32, head_dim / 2});
  }
  return o;
}

Operands LinearDgrad::operands() const {
  return {{"dy", R, dtype, tokens * out},
          {"w", R, dtype, out * in},
          {"dx", write_or(accumulate), dtype, tokens * in}};
}

Operands LinearWgrad::operands() const {
  return {{"dy", R, dtype, tokens * out},
          {"x", R, dtype, tokens * in},
          {"dw", write_or(accumulate), grad_dtype, out * in}};
}

Operands AttnFwd::operands() const {
  const AttnShape& s = shape;
  return {{"q", R, s.dtype, s.tokens() * s.q_heads * s.head_dim},
          {"kv", R, s.dtype, s.rows * s.kv_len * 2 * s.kv_heads * s.head_dim},
          {"pos", R, kI32, s.tokens()},
          {"o", write_or(merge), out_dtype, s.tokens() * s.q_heads * s.head_dim},
          {"lse", write_or(merge), kF32, s.tokens() * s.q_heads}};
}

Operands AttnBwd::operands() const {
  const AttnShape& s = shape;
  const int64_t q = s.tokens() * s.q_heads * s.head_dim;
  const int64_t kv = s.rows * s.kv_len * 2 * s.kv_heads * s.head_dim;
  return {{"q", R, s.dtype, q},
          {"kv", R, s.dtype, kv},
          {"pos", R, kI32, s.tokens()},
          {"o", R, s.dtype, q},
          {"lse", R, kF32, s.tokens() * s.q_heads},
          {"do", R, s.dtype, q},
          {"dq", write_or(accumulate_dq), grad_dtype, q},
          {"dkv", write_or(accumulate_dkv), grad_dtype, kv}};
}

Operands RopeBwd::operands() const {
  const int64_t q = tokens * q_heads * head_dim, kv = tokens * 2 * kv_heads * head_dim;
  return {{"dq_rotated", R, in_dtype, q},
          {"dkv_rotated", R, in_dtype, kv},
          {"pos", R, kI32, tokens},
          {"inv_freq", R, kF32, head_dim / 2},
          {"dq", W, dtype, q},
          {"dkv", W, dtype, kv}};
}

Operands Cast::operands() const {
  return {{"x", R, in_dtype, elements}, {"y", W, dtype, elements}};
}

Operands Swiglu::operands() const {
  return {{"gu", R, dtype, tokens * 2 * dim}, {"y", W, dtype, tokens * dim}};
}

Operands SwigluBwd::operands() const {
  return {{"gu", R, dtype, tokens * 2 * dim},
          {"dy", R, dtype, tokens * dim},
          {"dgu", W, dtype, tokens * 2 * dim},
          {"y", W, dtype, tokens * dim}};
}

Operands HeadLoss::operands() const {
  Operands o{{"x", R, dtype, tokens * dim},
             {"w", R, dtype, vocab * dim},
             {"targets", R, kI32, tokens},
             args_operand(),
             {"loss", write_or(accumulate_loss), kF64, 1}};
  if (!forward_only) {
    o.push_back({"dx", W, dtype, tokens * dim});
    o.push_back({"dw", write_or(accumulate_dw), grad_dtype, vocab * dim});
  }
  return o;
}

Operands Logits::operands() const {
  return {{"x", R, dtype, tokens * dim},
          {"w", R, dtype, vocab * dim},
          args_operand(),
          {"logits", W, kF32, vocab}};
}
double Logits::traffic() const {
  return double(vocab + 1) * double(dim) * double(size_of(dtype));
}

Operands SumSq::operands() const {
  return {{"g", R, dtype, elements}, {"sums", first ? W : A, kF64, slots}};
}

Operands ClipScale::operands() const {
  return {{"sums", R, kF64, slots}, {"clip", W, kF32, 2}};
}

Operands AdamW::operands() const {
  const Access state = moments ? A : R;
  Operands o{{"p", A, dtype, elements},
             {"g", R, grad_dtype, elements},
             {"m", state, state_dtype, elements},
             {"v", state, state_dtype, elements},
             {"clip", R, kF32, 2},
             args_operand()};
  if (master) o.push_back({"master", A, kF32, elements});
  return o;
}

Operands AdamWMoments::operands() const {
  return {{"g", R, grad_dtype, elements},
          {"m", A, state_dtype, elements},
          {"v", A, state_dtype, elements},
          {"clip", R, kF32, 2},
          args_operand()};
}

std::string_view name_of(const Op& op) {
  return std::visit([](const auto& o) { return o.kName; }, op);
}

Operands operands(const Op& op) {
  return std::visit([](const auto& o) { return o.operands(); }, op);
}

double flops(const Op& op) {
  return std::visit([](const auto& o) { return o.flops(); }, op);
}

double traffic(const Op& op) {
  return std::visit(
      [](const auto& o) {
        if constexpr (requires { o.traffic(); }) {
          return o.traffic();
        } else {
          double bytes = 0;
          for (const Operand& operand : o.operands()) {
            bytes += double(operand.bytes()) * (operand.access == Access::Accumulate ? 2 : 1);
          }
          return bytes;
        }
      },
      op);
}

std::string text(const Op& op) {
  return std::visit(
      [](const auto& o) {
        Printer print{std::string(o.kName)};
        o.fields(print);
        return std::move(print.out);
      },
      op);
}

std::string cost_key(const Op& op) {
  if (const auto* adamw = std::get_if<AdamW>(&op)) {
    AdamW plain = *adamw;
    plain.first = 0;
    plain.object = 0;
    return text(plain);
  }
  if (const auto* moments = std::get_if<AdamWMoments>(&op)) {
    AdamWMoments plain = *moments;
    plain.first = 0;
    plain.object = 0;
    return text(plain);
  }
  if (const auto* sum = std::get_if<SumSq>(&op)) {
    SumSq plain = *sum;
    plain.slot = 0;
    plain.slots = 0;
    plain.first = false;
    return text(plain);
  }
  return text(op);
}

}  // namespace sluice
