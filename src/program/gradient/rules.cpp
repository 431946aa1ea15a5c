// SPDX-License-Identifier: Apache-2.0
#include "program/gradient/rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string>

#include "ops/op.h"
#include "program/gradient/gradients.h"

namespace sluice::core {
namespace {

// "q_proj.L3.r0c1" -> "q": what the names of backward tasks begin with.
std::string_view stem(const Task& task) {
  std::string_view what = std::string_view(task.name).substr(0, task.name.find('.'));
  constexpr std::string_view kProjection = "_proj";
  if (what.ends_with(kProjection)) what.remove_suffix(kProjection.size());
  return what;
}

std::string named(const Task& task, std::string_view suffix) {
  return std::string(stem(task)).append(suffix);
}

template <class O>
const O& op_of(const Task& task) {
  return std::get<O>(*task.op);
}

using Node = std::span<const Task>;

void backward(const Embed& op, Node node, Gradients& g) {
  const Task& task = node.front();
  const ObjectId table = task.uses[Embed::kTable].object, dy = g.of(task.uses[Embed::kY].object);
  // One of two summed tables may be frozen.
  if (g.wanted(table)) {
    const auto into = g.into(table);
    g.task(task, named(task, "_bwd"),
           EmbedBwd{.tokens = op.tokens,
                    .vocab = op.vocab,
                    .dim = op.dim,
                    .dtype = op.dtype,
                    .grad_dtype = g.param_dtype(),
                    .accumulate = into.accumulate,
                    .scale = op.scale},
           {task.uses[Embed::kIds], dy, into.object});
  }
  if (op.has_residual) g.add(task.uses[Embed::kResidual].object, dy);
}

void backward(const RmsNorm& op, Node node, Gradients& g) {
  const Task& task = node.front();
  const ObjectId x = task.uses[RmsNorm::kX].object, w = task.uses[RmsNorm::kW].object;
  const ObjectId dy = g.of(task.uses[RmsNorm::kY].object);
  const auto dx = g.into_sum(x);
  const auto dw = g.into(w);
  std::vector<Bound> uses{x, w, dy, dx.object, dw.object};
  if (dx.addend) uses.emplace_back(*dx.addend);
  g.task(task, named(task, "_bwd"),
         RmsNormBwd{.tokens = op.tokens,
                    .dim = op.dim,
                    .eps = op.eps,
                    .dtype = op.dtype,
                    .grad_dtype = g.param_dtype(),
                    .accumulate = dw.accumulate,
                    .has_residual = dx.addend.has_value(),
                    .offset = op.offset,
                    .scale = op.scale},
         uses);
  if (op.has_residual) g.add(task.uses[RmsNorm::kResidual].object, dy);
}

void backward(const LayerNorm& op, Node node, Gradients& g) {
  const Task& task = node.front();
  const ObjectId x = task.uses[LayerNorm::kX].object, dy = g.of(task.uses[LayerNorm::kY].object);
  const auto dx = g.into_sum(x);
  LayerNormBwd bwd{.tokens = op.tokens,
                   .dim = op.dim,
                   .eps = op.eps,
                   .dtype = op.dtype,
                   .grad_dtype = g.param_dtype(),
                   .has_weight = op.has_weight,
                   .has_bias = op.has_bias};
  bwd.scale = op.scale;
  std::vector<Bound> uses{x, dy, dx.object};
  if (op.has_weight) {
    const ObjectId w = task.uses[LayerNorm::kW].object;
    const auto dw = g.into(w);
    bwd.accumulate_dw = dw.accumulate;
    uses.insert(uses.end(), {w, dw.object});
  }
  if (op.has_bias) {
    const auto dbias = g.into(task.uses[LayerNorm::kBias].object);
    bwd.accumulate_dbias = dbias.accumulate;
    uses.emplace_back(dbias.object);
  }
  bwd.has_residual = dx.addend.has_value();
  if (dx.addend) uses.emplace_back(*dx.addend);
  g.task(task, named(task, "_bwd"), bwd, uses);
}

void backward(const HeadNormRope& op, Node node, Gradients& g) {
  const Task& task = node.front();
  const ObjectId x = task.uses[HeadNormRope::kX].object, w = task.uses[HeadNormRope::kW].object;
  const ObjectId dy = g.of(task.uses[HeadNormRope::kY].object);
  const ObjectId dx = g.into_new(x);
  const auto dw = g.into(w);
  g.task(task, named(task, "_bwd"),
         HeadNormRopeBwd{op, g.program().object(dy).format.type, op.dtype, g.param_dtype(), dw.accumulate},
         {dy, x, w, task.uses[HeadNormRope::kPos], task.uses[HeadNormRope::kInvFreq], dx, dw.object});
}

// Rotates q and K|V back in one task, as they were rotated together. Attention over blocks sums in another
// type than theirs.
void backward(const Rope& q, Node node, Gradients& g) {
  SLUICE_CHECK(node.size() == 2, "{}: q and K|V are rotated together", node.front().name);
  std::vector<ObjectId> given, out;
  for (const Task& task : node) {
    const ObjectId x = task.uses[Rope::kX].object;
    given.push_back(g.of(x));
    out.push_back(g.replace(x, q.dtype));
  }
  const std::vector<Use>& uses = node[0].uses;
  g.task(node[0], "rope_bwd",
         RopeBwd{.tokens = q.tokens,
                 .q_heads = q.heads,
                 .kv_heads = op_of<Rope>(node[1]).heads,
                 .head_dim = q.head_dim,
                 .in_dtype = g.program().object(given[0]).format.type,
                 .dtype = q.dtype,
                 .rope_scale = q.rope_scale,
                 .still_scale = q.still_scale,
                 .temperature = q.temperature},
         {given[0], given[1], uses[Rope::kPos], uses[Rope::kInvFreq], out[0], out[1]});
}

// The gradient of what a task wrote, in its own type: attention over blocks sums in another.
ObjectId output_gradient(const Task& task, ObjectId y, DType dtype, Gradients& g) {
  const ObjectId dy = g.of(y);
  const Object& object = g.program().object(dy);
  if (object.format.type == dtype) return dy;
  const int64_t elements = object.elements();
  const DType from = object.format.type;
  const ObjectId out = g.like(y, gradient_role(g.program().object(y).role), ObjectKind::ActGrad, dtype);
  g.task(task, named(task, "_dcast"), Cast{.elements = elements, .in = from, .dtype = dtype}, {dy, out});
  return out;
}

// The same of Linears of one input.
std::vector<ObjectId> output_gradients(Node node, Gradients& g) {
  std::vector<ObjectId> out;
  for (const Task& task : node) {
    const Linear& op = op_of<Linear>(task);
    SLUICE_CHECK(op.rope_heads == 0, "{}: a product that rotates has no gradient", task.name);
    out.push_back(output_gradient(task, task.uses[Linear::kY].object, op.dtype, g));
  }
  return out;
}

// Adds the gradient of a bias that was added to rows of `out` columns, if it is wanted.
void add_bias_grad(const Task& task, ObjectId bias, ObjectId dy, int64_t tokens, int64_t out, DType dtype,
                   Gradients& g) {
  if (!g.wanted(bias)) return;
  const auto db = g.into(bias);
  g.task(task, named(task, "_bgrad"),
         BiasGrad{.tokens = tokens,
                  .out = out,
                  .dtype = dtype,
                  .grad_dtype = g.param_dtype(),
                  .accumulate = db.accumulate},
         {dy, db.object});
}

// A gradient, or a result that was made again, in the formats that products read it in.
struct Copies {
  ObjectId by_row, turned;
};
Copies quantized(const Task& task, std::string_view suffix, ObjectId x, Quantize op, Gradients& g) {
  const std::string role = g.program().object(x).role;
  Copies out;
  std::vector<Bound> uses{x};
  if (op.by_row) {
    out.by_row = g.like(x, role + kByRow, ObjectKind::ActGrad, op.format.over(op.cols));
    uses.emplace_back(out.by_row);
  }
  if (op.by_column) {
    out.turned = g.like(x, role + kTurned, ObjectKind::ActGrad, op.format.over(op.rows));
    uses.emplace_back(out.turned);
  }
  g.task(task, named(task, suffix), op, uses);
  return out;
}

// Adds the gradient of a product's weight, w, to what there is of it. With a turned copy of dy the product
// reads one of x, too: that beside the copy of the forward pass, or one of what was made again.
void add_wgrad(const Task& task, ObjectId w, ObjectId dy, ObjectId turned_dy, Gradients& g) {
  const ObjectId read = task.uses[Linear::kX].object;
  g.with_result(g.original(read), [=, &g](ObjectId x) {
    const Linear& op = op_of<Linear>(task);
    LinearWgrad wgrad{
        .tokens = op.tokens, .in = op.in, .out = op.out, .dtype = op.dtype, .grad_dtype = g.param_dtype()};
    ObjectId from = dy;
    if (turned_dy.valid()) {
      from = turned_dy;
      ObjectId turned = g.turned(read);
      if (!turned.valid()) {
        const NumberFormat by_row(op.x_format->type, NumberFormat::kRow, op.x_format->scale);
        const Quantize again{op.tokens, op.in, op.dtype, by_row, false, true};
        turned = quantized(task, "_quantize_again", x, again, g).turned;
      }
      x = turned;
      wgrad.dy_format = g.program().object(from).format;
      wgrad.x_format = g.program().object(x).format;
    }
    const auto dw = g.into(w);
    wgrad.accumulate = dw.accumulate;
    g.task(task, named(task, "_wgrad"), wgrad, {from, x, dw.object});
  });
}

// One Linear, or several of one input: their contributions to its gradient are summed in their order.
void backward(const Linear&, Node node, Gradients& g) {
  const std::vector<ObjectId> dys = output_gradients(node, g);
  const ObjectId x = g.original(node.front().uses[Linear::kX].object);
  std::vector<Copies> narrow(node.size());
  for (size_t i = 0; i < node.size(); ++i) {
    const Linear& op = op_of<Linear>(node[i]);
    const ObjectId read = node[i].uses[Linear::kW].object;
    const std::optional<NumberFormat> dy = g.reads_in(read);
    const bool makes_dw = g.wanted(g.original(read)) && is_narrow(op.tokens);
    if (dy && (g.wanted(x) || makes_dw))
      narrow[i] = quantized(node[i], "_quantize", dys[i],
                            {op.tokens, op.out, op.dtype, *dy, g.wanted(x), makes_dw}, g);
  }
  if (g.wanted(x)) {
    for (size_t i = 0; i < node.size(); ++i) {
      const Linear& op = op_of<Linear>(node[i]);
      ObjectId w = node[i].uses[Linear::kW].object, dy = dys[i];
      LinearDgrad dgrad{.tokens = op.tokens,
                        .in = op.in,
                        .out = op.out,
                        .dtype = op.dtype,
                        .accumulate = false,
                        .weight_format = op.weight_format};
      if (narrow[i].by_row.valid()) {
        dy = narrow[i].by_row, w = g.turned(w);
        dgrad.dy_format = g.program().object(dy).format;
        dgrad.weight_format = g.program().object(w).format;
      }
      std::vector<Bound> uses{dy, w};
      // The first one adds the gradient along a residual.
      if (g.has_addend(x)) {
        const auto dx = g.into_sum(x);
        dgrad.has_residual = dx.addend.has_value();
        uses.emplace_back(dx.object);
        if (dx.addend) uses.emplace_back(*dx.addend);
      } else {
        const auto dx = g.into(x);
        dgrad.accumulate = dx.accumulate;
        uses.emplace_back(dx.object);
      }
      g.task(node[i], named(node[i], "_dgrad"), dgrad, uses);
    }
  }
  for (size_t i = 0; i < node.size(); ++i) {
    const Task task = node[i];
    const Linear& op = op_of<Linear>(task);
    const ObjectId w = g.original(task.uses[Linear::kW].object), dy = dys[i];
    if (g.wanted(w)) add_wgrad(task, w, dy, narrow[i].turned, g);
    if (op.has_bias)
      add_bias_grad(task, task.uses[op.bias_operand()].object, dy, op.tokens, op.out, op.dtype, g);
    if (op.has_residual) g.add(task.uses[op.residual_operand()].object, dy);
  }
}

void backward(const LowRank& op, Node node, Gradients& g) {
  const Task& task = node.front();
  const ObjectId u = task.uses[LowRank::kU].object, b = task.uses[LowRank::kB].object;
  const ObjectId dy = g.of(task.uses[LowRank::kY].object);
  if (g.wanted(u)) {
    g.task(task, named(task, "_dgrad"), LowRankDgrad{op.sizes, op.dtype, op.scale}, {dy, b, g.into_new(u)});
  }
  if (g.wanted(b)) {
    const auto db = g.into(b);
    g.task(task, named(task, "_wgrad"),
           LowRankWgrad{op.sizes, op.dtype, g.param_dtype(), op.scale, db.accumulate}, {dy, u, db.object});
  }
  if (op.has_residual) g.add(task.uses[LowRank::kResidual].object, dy);
}

void backward(const Magnitude& op, Node node, Gradients& g) {
  const Task& task = node.front();
  const ObjectId z = task.uses[Magnitude::kZ].object, m = task.uses[Magnitude::kM].object,
                 norms = task.uses[Magnitude::kNorms].object;
  const ObjectId dy = output_gradient(task, task.uses[Magnitude::kY].object, op.dtype, g);
  const ObjectId dz = g.into_new(z);
  const auto dm = g.into(m);
  MagnitudeBwd bwd{op.tokens, op.columns, op.first, op.adapted, op.dtype, g.param_dtype()};
  bwd.accumulate = dm.accumulate;
  g.task(task, named(task, "_bwd"), bwd, {dy, z, m, norms, dz, dm.object});
  if (op.has_bias)
    add_bias_grad(task, task.uses[op.bias_operand()].object, dy, op.tokens, op.columns, op.dtype, g);
  if (op.has_residual) g.add(task.uses[op.residual_operand()].object, dy);
}

void backward(const Dropout& op, Node node, Gradients& g) {
  const Task& task = node.front();
  const ObjectId x = task.uses[Dropout::kX].object;
  if (!g.wanted(x)) return;
  const ObjectId dy = g.of(task.uses[Dropout::kY].object);
  const auto dx = g.into(x);
  Dropout back = op;
  back.accumulate = dx.accumulate;
  g.task(task, named(task, "_bwd"), back, {dy, task.uses[Dropout::kArgs], dx.object});
}

// Attention over blocks of keys and values, given its whole result and log-sum-exp. One task per block, the
// diagonal one first, and the cast of a result that was merged in fp32.
void backward(const AttnFwd&, Node node, Gradients& g) {
  const Task& diagonal = node.front();
  const Task& last = node.back();
  const ObjectId o =
      std::holds_alternative<Cast>(*last.op) ? last.uses[Cast::kY].object : diagonal.uses[AttnFwd::kO].object;
  const Node blocks = std::holds_alternative<Cast>(*last.op) ? node.first(node.size() - 1) : node;
  const ObjectId d_o = g.of(o), q = diagonal.uses[AttnFwd::kQ].object;
  // Gradients that several blocks, or others, add up to are summed in fp32.
  bool sums = g.readers(q) > 1;
  for (const Task& block : blocks) sums |= g.readers(block.uses[AttnFwd::kKv].object) > 1;
  const DType dtype = sums ? DType::F32 : op_of<AttnFwd>(diagonal).shape.dtype;
  // They are with respect to what attention read: rotated q and K.
  const auto into = [&](ObjectId x) {
    return g.into(x, dtype, fmt::format("d{}_rot", g.program().object(x).role));
  };
  for (size_t earlier = 0; earlier < blocks.size(); ++earlier) {
    const Task& block = blocks[earlier];
    const ObjectId kv = block.uses[AttnFwd::kKv].object;
    const auto dq = into(q);
    const auto dkv = into(kv);
    std::string name = named(diagonal, "_bwd");
    if (earlier > 0) name += fmt::format("-{}", earlier);
    g.task(diagonal, name,
           AttnBwd{.shape = op_of<AttnFwd>(block).shape,
                   .grad_dtype = dtype,
                   .accumulate_dq = dq.accumulate,
                   .accumulate_dkv = dkv.accumulate},
           {q, kv, block.uses[AttnFwd::kPos], o, diagonal.uses[AttnFwd::kLse].object, d_o, dq.object,
            dkv.object});
  }
  if (!op_of<AttnFwd>(diagonal).has_sinks) return;
  const ObjectId sinks = diagonal.uses[AttnFwd::kSinks].object;
  if (!g.wanted(sinks)) return;
  const AttnShape& s = op_of<AttnFwd>(diagonal).shape;
  const auto d_sinks = g.into(sinks);
  g.task(diagonal, named(diagonal, "_sinks"),
         SinkGrad{.rows = s.rows,
                  .q_len = s.q_len,
                  .heads = s.q_heads,
                  .head_dim = s.head_dim,
                  .dtype = s.dtype,
                  .grad_dtype = g.param_dtype(),
                  .accumulate = d_sinks.accumulate},
         {sinks, diagonal.uses[AttnFwd::kLse].object, o, d_o, d_sinks.object});
}

// Adds what a piece reads of the one before it, and where its gradient goes.
void add_before(ObjectId before, std::vector<Bound>& uses, Gradients& g) {
  uses.insert(uses.end(), {before, g.into_new(before)});
}

// The piece behind has been here before: what its tokens gave to this one's last inputs lies in the gradient
// of the tail.
void backward(const ShortConv& op, Node node, Gradients& g) {
  const Task& task = node.front();
  const ObjectId bcx = task.uses[ShortConv::kBcx].object, w = task.uses[ShortConv::kW].object;
  const ObjectId dy = g.of(task.uses[ShortConv::kY].object);
  const ObjectId dbcx = g.into_new(bcx);
  const auto dw = g.into(w);
  ShortConvBwd bwd{op.tokens, op.dim, op.width, op.dtype, g.param_dtype(), dw.accumulate, op.has_before};
  bwd.silu = op.silu;
  std::vector<Bound> uses{bcx, w, task.uses[ShortConv::kPos], dy, dbcx, dw.object};
  if (op.has_before) add_before(task.uses[size_t(op.before_operand())].object, uses, g);
  if (op.has_tail) {
    const ObjectId tail = task.uses[size_t(op.tail_operand())].object;
    bwd.has_tail = true;
    uses.emplace_back(g.of(tail));
  }
  g.task(task, named(task, "_bwd"), bwd, uses);
}

void backward(const DeltaGates& op, Node node, Gradients& g) {
  const Task& task = node.front();
  const ObjectId ba = task.uses[DeltaGates::kBa].object, a_log = task.uses[DeltaGates::kALog].object,
                 dt_bias = task.uses[DeltaGates::kDtBias].object;
  const ObjectId dgates = g.of(task.uses[DeltaGates::kGates].object), dba = g.into_new(ba, op.dtype);
  const auto da_log = g.into(a_log), ddt_bias = g.into(dt_bias);
  g.task(
      task, named(task, "_bwd"),
      DeltaGatesBwd{op.tokens, op.heads, op.dtype, g.param_dtype(), da_log.accumulate, ddt_bias.accumulate},
      {ba, a_log, dt_bias, dgates, dba, da_log.object, ddt_bias.object});
}

// As of convolutions, the piece behind has been here before.
void backward(const DeltaRule& op, Node node, Gradients& g) {
  const Task& task = node.front();
  const ObjectId qkv = task.uses[DeltaRule::kQkv].object, gates = task.uses[DeltaRule::kGates].object;
  const ObjectId d_o = g.of(task.uses[DeltaRule::kO].object);
  const ObjectId dqkv = g.into_new(qkv), dgates = g.into_new(gates);
  std::vector<Bound> uses{qkv, gates, task.uses[DeltaRule::kPos], d_o, dqkv, dgates};
  if (op.has_before) add_before(task.uses[size_t(op.before_operand())].object, uses, g);
  if (op.has_after) uses.emplace_back(g.of(task.uses[size_t(op.after_operand())].object));
  g.task(task, named(task, "_bwd"), DeltaRuleBwd{op}, uses);
}

void backward(const HeadGate& op, Node node, Gradients& g) {
  const Task& task = node.front();
  const ObjectId x = task.uses[HeadGate::kX].object, z = task.uses[HeadGate::kZ].object;
  const ObjectId dy = g.of(task.uses[HeadGate::kY].object);
  HeadGateBwd bwd{op.tokens, op.heads, op.head_dim, op.dtype, g.param_dtype(), op.normed};
  bwd.eps = op.eps;
  std::vector<Bound> uses{x, z, dy, g.into_new(x), g.into_new(z)};
  if (op.normed) {
    const ObjectId w = task.uses[HeadGate::kW].object;
    const auto dw = g.into(w);
    bwd.accumulate = dw.accumulate;
    uses.insert(uses.end(), {w, dw.object});
  }
  g.task(task, named(task, "_bwd"), bwd, uses);
}

void backward(const Swiglu& op, Node node, Gradients& g) {
  const Task& task = node.front();
  const ObjectId gu = task.uses[Swiglu::kGu].object, y = task.uses[Swiglu::kY].object;
  const ObjectId dy = g.of(y);
  const ObjectId dgu = g.into_new(gu);
  const ObjectId again = g.like(y, g.program().object(y).role + "2", ObjectKind::ActGrad, op.dtype);
  std::vector<Bound> uses{gu, dy, dgu, again};
  if (op.apart) {
    const ObjectId up = task.uses[Swiglu::kUp].object;
    uses.insert(uses.end(), {up, g.into_new(up)});
  }
  g.task(task, named(task, "_bwd"), SwigluBwd{op}, uses);
  g.remade(y, again);
}

void backward(const ScaleBy& op, Node node, Gradients& g) {
  const Task& task = node.front();
  const ObjectId dy = g.of(task.uses[ScaleBy::kY].object);
  g.task(task, named(task, "_bwd"), op,
         {dy, task.uses[ScaleBy::kS], g.into_new(task.uses[ScaleBy::kX].object)});
}

void backward(const ScaleGates& op, Node node, Gradients& g) {
  const Task& task = node.front();
  const Use &gates = task.uses[ScaleGates::kGates], &scales = task.uses[ScaleGates::kScales];
  const ObjectId dy = g.of(task.uses[ScaleGates::kY].object), dgates = g.into_new(gates.object);
  const auto dscales = g.into(scales.object);
  g.task(task, named(task, "_bwd"), ScaleGatesBwd{op.mixture, op.dtype, g.param_dtype(), dscales.accumulate},
         {gates, task.uses[ScaleGates::kChosen], scales, dy, dgates, dscales.object});
}

// Logits do not outlive the task, so the loss comes with its gradients. Weights and log-probabilities follow
// the losses where there are no gradients, and then these.
void backward(const HeadLoss& op, Node node, Gradients& g) {
  const Task& task = node.front();
  const auto sums_end = task.uses.begin() + HeadLoss::kLoss + 1;
  std::vector<Bound> uses(task.uses.begin(), sums_end);
  HeadLoss whole = op;
  const ObjectId read_x = task.uses[HeadLoss::kX].object, read_w = task.uses[HeadLoss::kW].object;
  const ObjectId x = g.original(read_x), w = g.original(read_w);
  SLUICE_CHECK(g.wanted(x) || g.wanted(w), "{}: nobody wants gradients of it", task.name);
  whole.forward_only = false;
  uses.emplace_back(g.into_new(x));
  whole.frozen = !g.wanted(w);
  if (!whole.frozen) {
    const auto dw = g.into(w);
    whole.accumulate_dw = dw.accumulate;
    uses.emplace_back(dw.object);
  }
  if (op.x_format) {
    uses.emplace_back(g.turned(read_w));
    if (!whole.frozen) uses.emplace_back(g.turned(read_x));
  }
  uses.insert(uses.end(), sums_end, task.uses.end());
  g.task(task, stem(task), whole, uses);
}

// From the gates to the logits; what routers add to their sums follows, where it does.
void backward(const Route& op, Node node, Gradients& g) {
  const Task& task = node.front();
  const ObjectId logits = task.uses[Route::kLogits].object;
  RouteBwd bwd{.mixture = op.mixture,
               .dtype = op.dtype,
               .score = op.score,
               .normalised = op.normalised,
               .scale = op.scale,
               .losses = op.losses};
  std::vector<Bound> uses{logits, task.uses[Route::kChosen], g.of(task.uses[Route::kGates].object),
                          g.into_new(logits, op.dtype)};
  if (bwd.reads_round()) uses.emplace_back(node[1].uses[RouterLoad::kRound]);
  g.task(task, named(task, "_bwd"), bwd, uses);
}

// Products of experts by groups, and what adapters add to their rows.
struct ExpertProducts {
  std::vector<const Task*> base, a, b;

  // Tells A's products, whose results B's read, from others.
  void part() {
    const auto is_read = [&](const Task* task) {
      return std::ranges::any_of(b, [&](const Task* reader) {
        return reader->uses[GroupedLowRank::kU].object == task->uses[GroupedLinear::kY].object;
      });
    };
    std::ranges::copy_if(base, std::back_inserter(a), is_read);
    std::erase_if(base, is_read);
  }
};

// A x, of adapters that there are.
ObjectId first_read(const ExpertProducts& p) {
  return p.b.front()->uses[GroupedLowRank::kU].object;
}

// The gradient of A x, from that of rows; invalid: there are no adapters.
ObjectId low_rank_gradient(const ExpertProducts& p, ObjectId dy, ObjectId routing, bool gathers,
                           Gradients& g) {
  if (p.b.empty()) return {};
  const auto& first = op_of<GroupedLowRank>(*p.b.front());
  const ObjectId u = first_read(p);
  const ObjectId du = g.like(u, gradient_role(g.program().object(u).role), ObjectKind::ActGrad, first.dtype);
  for (const Task* task : p.b) {
    const auto& op = op_of<GroupedLowRank>(*task);
    g.task(*task, named(*task, "_dgrad"), GroupedLowRankDgrad{op, gathers, task != p.b.front()},
           {dy, task->uses[GroupedLowRank::kB], routing, du});
  }
  return du;
}

// Adds what comes through A to the gradient of rows that it read.
void add_through_a(const ExpertProducts& p, ObjectId du, ObjectId routing, ObjectId dx, Gradients& g) {
  for (const Task* task : p.a) {
    const auto& op = op_of<GroupedLinear>(*task);
    g.task(*task, named(*task, "_dgrad"),
           GroupedLowRank{op.mixture, op.group, {op.out, 1, op.in, 0, op.in}, op.dtype, 1, true},
           {du, task->uses[GroupedLinear::kW], routing, dx});
  }
}

// The gradients of A, from rows x or the tokens' rows, and of B.
void low_rank_wgrads(const ExpertProducts& p, ObjectId du, ObjectId x, bool gathers_x, ObjectId dy,
                     bool gathers_dy, ObjectId u, ObjectId routing, Gradients& g) {
  for (const Task* task : p.a) {
    const auto& op = op_of<GroupedLinear>(*task);
    const auto da = g.into(task->uses[GroupedLinear::kW].object);
    g.task(*task, named(*task, "_wgrad"), GroupedWgrad{op, g.param_dtype(), false, gathers_x, da.accumulate},
           {du, x, routing, da.object});
  }
  for (const Task* task : p.b) {
    const auto& op = op_of<GroupedLowRank>(*task);
    const auto db = g.into(task->uses[GroupedLowRank::kB].object);
    g.task(*task, named(*task, "_wgrad"), GroupedLowRankWgrad{op, g.param_dtype(), gathers_dy, db.accumulate},
           {dy, u, routing, db.object});
  }
}

// Experts: first products by groups, gates, last products, and the sum by tokens. The gradients of ungated
// rows bring those of the gates, so results of the last products need not be kept.
void backward(const GroupedLinear&, Node node, Gradients& g) {
  ExpertProducts up, down;
  const Task& combine = node.back();
  const Task* gates_of_rows = nullptr;
  for (const Task& task : node.first(node.size() - 1)) {
    ExpertProducts& products = gates_of_rows == nullptr ? up : down;
    if (std::holds_alternative<Swiglu>(*task.op)) {
      gates_of_rows = &task;
    } else {
      (std::holds_alternative<GroupedLowRank>(*task.op) ? products.b : products.base).push_back(&task);
    }
  }
  up.part(), down.part();
  const Task& glu = *gates_of_rows;
  const auto& whole = op_of<CombineExperts>(combine);
  const ObjectId dout = g.of(combine.uses[CombineExperts::kY].object);
  const ObjectId gates = combine.uses[whole.gates_operand()].object;
  const ObjectId routing = combine.uses[CombineExperts::kRouting].object;
  const ObjectId x = up.base.front()->uses[GroupedLinear::kX].object;
  const ObjectId gu = glu.uses[Swiglu::kGu].object, act = glu.uses[Swiglu::kY].object,
                 rows = down.base.front()->uses[GroupedLinear::kY].object;
  const auto dgrad = [&](const ExpertProducts& products, ObjectId dy, bool gathers, ObjectId dx) {
    for (const Task* task : products.base) {
      const auto& op = op_of<GroupedLinear>(*task);
      g.task(*task, named(*task, "_dgrad"), GroupedDgrad{op, gathers, op.accumulate},
             {dy, task->uses[GroupedLinear::kW], routing, dx});
    }
  };
  const auto wgrad = [&](const ExpertProducts& products, ObjectId dy, bool gathers_dy, ObjectId from) {
    for (const Task* task : products.base) {
      const auto& op = op_of<GroupedLinear>(*task);
      const ObjectId w = task->uses[GroupedLinear::kW].object;
      if (!g.wanted(w)) continue;
      const auto dw = g.into(w);
      g.task(*task, named(*task, "_wgrad"),
             GroupedWgrad{op, g.param_dtype(), gathers_dy, !gathers_dy, dw.accumulate},
             {dy, from, routing, dw.object});
    }
  };
  // Adds the gradients of the biases of all groups.
  const auto bias_grad = [&](const Task& first, ObjectId dy, bool gathers) {
    const auto& op = op_of<GroupedLinear>(first);
    if (!op.has_bias) return;
    const ObjectId bias = first.uses[GroupedLinear::kBias].object;
    if (!g.wanted(bias)) return;
    const auto db = g.into(bias);
    std::vector<Bound> uses{dy, routing, db.object};
    if (gathers) uses.emplace_back(gates);
    g.task(first, named(first, "_bgrad"),
           GroupedBiasGrad{op.mixture, op.out, op.dtype, g.param_dtype(), gathers, db.accumulate}, uses);
  };

  // Their gradients are those of rows before the gates.
  SLUICE_CHECK(
      g.readers(gu) == 1 && g.readers(act) == down.base.size() + down.a.size() && g.readers(rows) == 1,
      "{}: what its experts make on the way is used elsewhere, too", combine.name);
  const ObjectId dact = g.into_new(act);
  dgrad(down, dout, true, dact);
  const ObjectId du_down = low_rank_gradient(down, dout, routing, true, g);
  add_through_a(down, du_down, routing, dact, g);
  const auto& gate = op_of<Swiglu>(glu);
  const Task &first_up = *up.base.front(), &first_down = *down.base.front();
  const auto& last = op_of<GroupedLinear>(first_down);
  const ObjectId dgu = g.into_new(gu), dgates = g.into_new(gates);
  const ObjectId gated = g.like(act, g.program().object(act).role + "2", ObjectKind::ActGrad, last.dtype);
  std::vector<Bound> uses{gu, dact, gates, routing, dgu, gated, dgates};
  if (last.has_bias)
    uses.insert(uses.end(), {Bound(first_down.uses[GroupedLinear::kBias].object), Bound(dout)});
  g.task(glu, named(glu, "_bwd"),
         ExpertGluBwd{.mixture = last.mixture,
                      .dim = gate.dim,
                      .dtype = gate.dtype,
                      .activation = gate.activation,
                      .limit = gate.limit,
                      .biased = last.has_bias ? last.out : 0},
         uses);
  wgrad(down, dout, true, gated);
  bias_grad(first_down, dout, true);
  if (!down.a.empty()) {
    // A x once more, of gated rows: the gradients of their results are then the tokens'.
    const ObjectId u = first_read(down);
    const ObjectId again = g.like(u, g.program().object(u).role + "2", ObjectKind::ActGrad, last.dtype);
    for (const Task* task : down.a)
      g.task(*task, named(*task, "_again"), op_of<GroupedLinear>(*task),
             {gated, task->uses[GroupedLinear::kW], routing, again});
    low_rank_wgrads(down, du_down, gated, false, dout, true, again, routing, g);
  }
  const ObjectId du_up = low_rank_gradient(up, dgu, routing, false, g);
  if (g.wanted(x)) {
    // "expert_out" -> "d_expert_in"
    const std::string& out = g.program().object(rows).role;
    const ObjectId drows = g.like(rows, fmt::format("d_{}_in", out.substr(0, out.rfind("_out"))),
                                  ObjectKind::ActGrad, last.dtype);
    dgrad(up, dgu, false, drows);
    add_through_a(up, du_up, routing, drows, g);
    const auto dx = g.into_sum(x);
    CombineExperts sum = whole;
    sum.has_gates = false;
    sum.has_residual = dx.addend.has_value();
    std::vector<Bound> summed{drows, routing, dx.object};
    if (dx.addend) summed.emplace_back(*dx.addend);
    g.task(combine, named(combine, "_bwd"), sum, summed);
  }
  wgrad(up, dgu, false, x);
  bias_grad(first_up, dgu, false);
  if (!up.a.empty()) low_rank_wgrads(up, du_up, x, true, dgu, false, first_read(up), routing, g);
  if (whole.has_residual) g.add(combine.uses[whole.residual_operand()].object, dout);
}

void backward(const GatedAdd& op, Node node, Gradients& g) {
  const Task& task = node.front();
  const ObjectId x = task.uses[GatedAdd::kX].object, gate = task.uses[GatedAdd::kGate].object;
  const ObjectId dy = g.of(task.uses[GatedAdd::kY].object);
  const ObjectId dx = g.into_new(x), dgate = g.into_new(gate, op.dtype);
  g.task(task, named(task, "_bwd"), GatedAddBwd{op.tokens, op.dim, op.dtype}, {x, gate, dy, dx, dgate});
  if (op.has_residual) g.add(task.uses[GatedAdd::kResidual].object, dy);
}

template <class O>
concept HasRule = requires(const O& op, Node node, Gradients& g) {
  backward(op, node, g);
};

}  // namespace

bool has_rule(const Op& op) {
  return std::visit([]<class O>(const O&) { return HasRule<O>; }, op);
}

void apply_rule(Node node, Gradients& g) {
  std::visit(
      [&]<class O>(const O& op) {
        if constexpr (HasRule<O>) backward(op, node, g);
      },
      *node.front().op);
}

std::optional<size_t> remade_operand(const Op& op) {
  if (std::holds_alternative<Swiglu>(op)) return Swiglu::kY;
  return std::nullopt;
}

}  // namespace sluice::core
