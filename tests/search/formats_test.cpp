// SPDX-License-Identifier: Apache-2.0
// Number formats are data: Programs with formats that no kernel computes yet are built, planned and proved.
#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <set>

#include "backend/cpu/cpu_backend.h"
#include "lowering/build.h"
#include "ops/op.h"
#include "search/planner.h"
#include "search/refusal.h"

namespace sluice::core {
namespace {

constexpr NumberFormat kNvfp4{DType::F4E2M1, 16, DType::F8E4M3};
const ProductFormats kNarrow{kFloat8, kFloat8, kFloat8};
const StepShape kShape{
    .seq_len = 16, .chunk_tokens = 16, .chunks_per_round = 2, .rounds = 2, .head_tokens = 16};

// Layers that are not trained, with their matrices in `format`, between ends that are.
ModelSpec frozen(std::optional<NumberFormat> format) {
  ModelSpec spec =
      model_of({.dim = 32, .layers = 4, .heads = 4, .kv_heads = 2, .head_dim = 8, .ffn = 512, .vocab = 61});
  if (format) spec.stored = {{"model.layers", format, {.w = format}}};
  spec.freeze = {"model.layers"};
  return spec;
}

BuiltProgram model_in(std::optional<NumberFormat> format) {
  return build_training(frozen(format), kShape, {.compute = DType::BF16}, {});
}

TEST(NumberFormats, OfAWeightDecideWhatItTakes) {
  const BuiltProgram plain = model_in({}), packed = model_in(kNvfp4);
  ASSERT_EQ(plain.params.size(), packed.params.size());
  for (size_t w = 0; w < plain.params.size(); ++w) {
    const Object& before = plain.program.object(plain.params[w].param);
    const Object& after = packed.program.object(packed.params[w].param);
    EXPECT_EQ(before.elements(), after.elements()) << after.name;
    const bool matrix = packed.weights[w].matrix && after.layer >= 0;
    EXPECT_EQ(after.format, matrix ? kNvfp4 : NumberFormat(DType::BF16)) << after.name;
    // 4 bits, and 8 for every 16 elements, of 16.
    EXPECT_EQ(after.bytes, matrix ? before.bytes * 9 / 32 : before.bytes) << after.name;
  }
}

TEST(NumberFormats, ProgramsOfThemAreProvedAndHaveHashesOfTheirOwn) {
  const NumberFormat formats[] = {
      kNvfp4, {DType::F4E2M1, 16, DType::U8}, {DType::F8E4M3, 16, DType::F32}, DType::F8E4M3};
  std::set<uint64_t> hashes{model_in({}).program.hash()};
  for (const NumberFormat& format : formats) {
    const BuiltProgram model = model_in(format);
    const Status status = verify(model.program);
    EXPECT_TRUE(status.ok()) << to_text(format) << ": " << status.message();
    EXPECT_TRUE(hashes.insert(model.program.hash()).second) << to_text(format);
  }
}

// What a step copies to the device and back where its weights do not stay there.
int64_t copied_bytes(const BuiltProgram& model, int64_t cap = 120 << 10) {
  Profile profile;
  profile.name = "test";
  profile.set_bytes_per_s(2e9);
  PlanRequest request;
  request.caps[kDevice] = cap;
  request.quick = true;
  const auto plan = make_plan(model.program, profile, request);  // proves what it returns
  EXPECT_TRUE(plan.ok()) << plan.message();
  if (!plan.ok()) return 0;
  const PlanTotals sums = totals(model.program, *plan);

  return sums.loads.bytes + sums.stores.bytes;
}

TEST(NumberFormats, OfFewerBitsStreamLess) {
  const int64_t packed = copied_bytes(model_in(kNvfp4)), plain = copied_bytes(model_in({}));
  EXPECT_GT(packed, 0);
  EXPECT_LT(packed, plain / 2);
}

TEST(NumberFormats, WithoutKernelsAreRefusedByName) {
  const BuiltProgram model = model_in(kNvfp4);
  std::vector<SharedOp> ops;
  for (const Task& task : model.program.tasks()) ops.push_back(task.op);
  const Status status = make_cpu_backend()->prepare(ops);
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.message().find("operand w is in f4e2m1 by 16 with f8e4m3, which no kernel takes"),
            std::string::npos)
      << status.message();
}

TEST(NumberFormats, OfModelsFitTheirRowsAndAreNotTrained) {
  EXPECT_TRUE(validate(frozen(kNvfp4)).ok());
  EXPECT_EQ(
      validate(frozen(NumberFormat(DType::F4E2M1, 64, DType::F8E4M3))).message(),
      "model: model.layers.0.self_attn.q_proj.weight has rows of 32 elements, and is stored in f4e2m1 by 64 "
      "with f8e4m3; a multiple of 64 is needed");
  ModelSpec trained = frozen(kNvfp4);
  trained.freeze.push_back("!model.layers.1");
  EXPECT_EQ(validate(trained).message(),
            "model: model.layers.1.self_attn.q_proj.weight is stored in f4e2m1 by 16 with f8e4m3, and is not "
            "trained so");
}

// The last pattern that names a tensor decides, and products have the format of their weight.
TEST(NumberFormats, AreOfEachPart) {
  ModelSpec spec = frozen({});
  constexpr NumberFormat kFloat8 = DType::F8E4M3;
  spec.stored = {
      {"*.self_attn.*", kNvfp4, {.w = kNvfp4}}, {"*.q_proj"}, {"*.down_proj", kFloat8, {.w = kFloat8}}};
  ASSERT_TRUE(validate(spec).ok()) << validate(spec).message();
  const BuiltProgram model = build_training(spec, kShape, {.compute = DType::BF16}, {});
  const std::map<std::string, std::optional<NumberFormat>> expected = {
      {"wq", {}}, {"wkv", kNvfp4}, {"wo", kNvfp4}, {"wgu", {}}, {"wd", NumberFormat(DType::F8E4M3)}};
  size_t products = 0;
  for (const Task& task : model.program.tasks()) {
    const auto* op = std::get_if<Linear>(&*task.op);
    if (op == nullptr) continue;
    ++products;
    const Object& w = model.program.object(task.uses[Linear::kW].object);
    EXPECT_EQ(op->weight_format, expected.at(w.role)) << task.name;
    EXPECT_EQ(w.format, op->weight_format.value_or(NumberFormat(DType::BF16))) << w.name;
  }
  EXPECT_GT(products, expected.size());
}

// What is not trained of a base in f8e4m3 is stored so, and is cast once in each round before its products.
TEST(NumberFormats, OfABaseAreCastOnceInEachRound) {
  ModelSpec spec = frozen({});
  spec.freeze.push_back("!model.layers.1.mlp");
  spec.base = NumberFormat(DType::F8E4M3, NumberFormat::kRow, DType::F32);
  const BuiltProgram model = build_training(spec, kShape, {.compute = DType::BF16}, {});
  ASSERT_TRUE(verify(model.program).ok()) << verify(model.program).message();
  size_t packed = 0, casts = 0;
  for (size_t w = 0; w < model.weights.size(); ++w) {
    const Object& o = model.program.object(model.params[w].param);
    const bool is = model.weights[w].matrix && o.layer >= 0 && !model.weights[w].trainable;
    const int64_t row = model.weights[w].sources.front().cols;
    EXPECT_EQ(o.format,
              is ? NumberFormat(DType::F8E4M3, uint32_t(row), DType::F32) : NumberFormat(DType::BF16))
        << o.name;
    packed += is ? 1 : 0;
  }
  EXPECT_EQ(packed, 4 * 5 - 2u);
  for (const Task& task : model.program.tasks()) {
    if (std::holds_alternative<Cast>(*task.op)) ++casts;
    const auto* product = std::get_if<Linear>(&*task.op);
    if (product == nullptr) continue;
    const Object& w = model.program.object(task.uses[Linear::kW].object);
    EXPECT_EQ(w.format, NumberFormat(DType::BF16)) << task.name;
    EXPECT_EQ(product->weight_format, std::nullopt) << task.name;
  }
  EXPECT_EQ(casts, packed * size_t(kShape.rounds));
}

// Its elements and scales cross the link, not what they are cast to.
TEST(NumberFormats, OfABaseStreamAsTheyAreStored) {
  ModelSpec spec = frozen({});
  spec.base = NumberFormat(DType::F8E4M3, NumberFormat::kRow, DType::F32);
  const Program program = build_training(spec, kShape, {.compute = DType::BF16}, {}).program;
  std::vector<bool> cast(program.objects().size(), false);
  for (const Task& task : program.tasks()) {
    if (std::holds_alternative<Cast>(*task.op)) cast[task.uses[Cast::kY].object.value] = true;
  }
  Profile profile;
  profile.set_bytes_per_s(2e9);
  PlanRequest request;
  request.caps[kDevice] = 380 << 10;
  request.quick = true;
  const auto plan = make_plan(program, profile, request);
  ASSERT_TRUE(plan.ok()) << plan.message();
  size_t stored = 0, of_casts = 0;
  for (const Action& a : plan->actions) {
    if (a.kind == ActionKind::Run) continue;
    const Object& o = program.object(a.object);
    stored += a.loads() && o.kind == ObjectKind::Param && o.format.block > 0 ? 1 : 0;
    of_casts += cast[a.object.value] ? 1 : 0;
  }
  EXPECT_GT(stored, 0);
  EXPECT_EQ(of_casts, 0);
}

// Dense products read copies in 8 bits in both passes; the others, and all results, are as without.
TEST(NumberFormats, OfProductsAreOfWhatTheyRead) {
  ModelSpec spec =
      model_of({.dim = 32, .layers = 2, .heads = 4, .kv_heads = 2, .head_dim = 8, .ffn = 48, .vocab = 61});
  const Numerics bf16{.compute = DType::BF16};
  const BuiltProgram plain = build_training(spec, kShape, bf16, {});
  spec.products = kNarrow;
  const BuiltProgram model = build_training(spec, kShape, bf16, {});
  ASSERT_TRUE(verify(model.program).ok()) << verify(model.program).message();
  std::map<std::string, int> narrow, copies;
  for (const Task& task : model.program.tasks()) {
    std::visit(
        [&](const auto& op) {
          if constexpr (requires { op.dy_format; }) narrow[std::string(op.kName)] += op.dy_format ? 1 : 0;
          if constexpr (requires { op.f32_result; }) narrow["linear"] += op.x_format ? 1 : 0;
          if constexpr (requires { op.narrow; }) narrow[std::string(op.kName)] += op.narrow ? 1 : 0;
        },
        *task.op);
    if (const auto* copy = std::get_if<Quantize>(&*task.op)) ++copies[copy->by_column ? "both" : "by row"];
  }
  // In each of 2 rounds, 2 chunks and 2 layers 5 products: q, kv, o, gate with up, down.
  constexpr int kTimes = 2 * 2 * 2;
  EXPECT_EQ(narrow["linear"], 5 * kTimes);
  EXPECT_EQ(narrow["linear_dgrad"], 5 * kTimes);
  EXPECT_EQ(narrow["linear_wgrad"], 5 * kTimes);
  // Norms and gates write copies themselves, forward and backward, and nothing in bf16.
  EXPECT_EQ(narrow["rms_norm"], 2 * kTimes);
  EXPECT_EQ(narrow["swiglu"], kTimes);
  EXPECT_EQ(narrow["swiglu_bwd"], kTimes);
  EXPECT_EQ(copies["by row"], 0);
  // Weights once in a step; attention's output; the gradients of q, kv, o and down.
  EXPECT_EQ(copies["both"], 2 * 5 + (1 + 4) * kTimes);
  const auto named = [&](std::string_view role) {
    return std::ranges::any_of(model.program.objects(), [&](const Object& o) { return o.role == role; });
  };
  EXPECT_TRUE(named("h1_fp8") && named("act_fp8") && named("act2_fp8_turned"));
  EXPECT_FALSE(named("h1") || named("h2") || named("act") || named("act2") || named("d_gu"));
  EXPECT_EQ(footprint(model.program).by_kind[size_t(ObjectKind::Param)],
            footprint(plain.program).by_kind[size_t(ObjectKind::Param)]);
  // Evaluation's products read the same.
  const BuiltProgram evaluated =
      build_evaluation(spec, {.seq_len = 16, .chunk_tokens = 16, .head_tokens = 16}, bf16);
  ASSERT_TRUE(verify(evaluated.program).ok());
  for (const Task& task : evaluated.program.tasks()) {
    const auto* product = std::get_if<Linear>(&*task.op);
    const auto* copy = std::get_if<Quantize>(&*task.op);
    EXPECT_TRUE(product == nullptr || product->x_format) << task.name;
    EXPECT_TRUE(copy == nullptr || !copy->by_column) << task.name;
  }
}

// With the head's in 8 bits the last norm writes copies as well, and its weights are copied once; a chunk of
// other tokens than a multiple of 16 has it in bf16.
TEST(NumberFormats, OfTheHeadsProductsAreAChoice) {
  ModelSpec spec =
      model_of({.dim = 32, .layers = 2, .heads = 4, .kv_heads = 2, .head_dim = 8, .ffn = 48, .vocab = 64});
  spec.products = kNarrow;
  spec.narrow_head = true;
  const auto heads = [&](const BuiltProgram& model) {
    std::vector<const HeadLoss*> out;
    EXPECT_TRUE(verify(model.program).ok()) << verify(model.program).message();
    for (const Task& task : model.program.tasks()) {
      if (const auto* head = std::get_if<HeadLoss>(&*task.op)) out.push_back(head);
    }
    return out;
  };
  const BuiltProgram model = build_training(spec, kShape, {.compute = DType::BF16}, {});
  for (const HeadLoss* head : heads(model)) EXPECT_EQ(head->x_format, kFloat8.over(32));
  EXPECT_EQ(heads(model).size(), 2u * 2);
  int of_weights = 0, norms = 0;
  for (const Task& task : model.program.tasks()) {
    of_weights += task.name.starts_with("quantize_head") ? 1 : 0;
    const auto* norm = std::get_if<RmsNorm>(&*task.op);
    norms += norm != nullptr && norm->narrow && task.name.starts_with("norm.") ? 1 : 0;
  }
  EXPECT_EQ(of_weights, 1);
  EXPECT_EQ(norms, 2 * 2);
  const BuiltProgram evaluated = build_evaluation(
      spec, {.seq_len = 16, .chunk_tokens = 16, .head_tokens = 16}, {.compute = DType::BF16});
  EXPECT_EQ(heads(evaluated).size(), 1u);
  for (const HeadLoss* head : heads(evaluated)) EXPECT_EQ(head->x_format, kFloat8.over(32));
  const BuiltProgram odd =
      build_training(spec, {.seq_len = 8, .chunk_tokens = 8, .head_tokens = 8}, {.compute = DType::BF16}, {});
  EXPECT_EQ(heads(odd).size(), 1u);
  for (const HeadLoss* head : heads(odd)) EXPECT_FALSE(head->x_format);
  // Without gradients nothing is turned: any number of tokens, but in parts of 16.
  const auto found = [&](int64_t head_tokens) {
    const BuiltProgram losses = build_evaluation(
        spec, {.seq_len = 24, .chunk_tokens = 24, .head_tokens = head_tokens}, {.compute = DType::BF16});
    return heads(losses).at(0)->x_format.has_value();
  };
  EXPECT_TRUE(found(24) && found(16));
  EXPECT_FALSE(found(8));
}

// Gradients in f8e5m2 are copied apart, and what is multiplied with them is f8e4m3.
TEST(NumberFormats, OfGradientsAreTheirOwn) {
  ModelSpec spec =
      model_of({.dim = 32, .layers = 2, .heads = 4, .kv_heads = 2, .head_dim = 8, .ffn = 48, .vocab = 61});
  spec.products = {kFloat8, kFloat8, kWideFloat8};
  const BuiltProgram model = build_training(spec, kShape, {.compute = DType::BF16}, {});
  ASSERT_TRUE(verify(model.program).ok()) << verify(model.program).message();
  int products = 0;
  for (const Task& task : model.program.tasks()) {
    const auto of_gradient = [&](const NumberFormat& dy, const NumberFormat& other) {
      ++products;
      EXPECT_EQ(dy.type, DType::F8E5M2) << task.name;
      EXPECT_EQ(other.type, DType::F8E4M3) << task.name;
    };
    const auto* dgrad = std::get_if<LinearDgrad>(&*task.op);
    const auto* wgrad = std::get_if<LinearWgrad>(&*task.op);
    const auto* glu = std::get_if<SwigluBwd>(&*task.op);
    if (dgrad != nullptr) of_gradient(*dgrad->dy_format, *dgrad->weight_format);
    if (wgrad != nullptr) of_gradient(*wgrad->dy_format, *wgrad->x_format);
    EXPECT_TRUE(glu == nullptr || !glu->narrow) << task.name;
  }
  EXPECT_EQ(products, 2 * 5 * 2 * 2 * 2);  // two of each of 5, in 2 rounds, 2 chunks and 2 layers
}

// Chunks whose tokens fill no rows of 16 have their weights' gradients from what is computed in.
TEST(NumberFormats, OfProductsNeedWholeRows) {
  ModelSpec spec =
      model_of({.dim = 32, .layers = 2, .heads = 4, .kv_heads = 2, .head_dim = 8, .ffn = 40, .vocab = 61});
  spec.products = kNarrow;
  const BuiltProgram model =
      build_training(spec, {.seq_len = 8, .chunk_tokens = 8, .head_tokens = 8}, {.compute = DType::BF16}, {});
  ASSERT_TRUE(verify(model.program).ok()) << verify(model.program).message();
  for (const Task& task : model.program.tasks()) {
    const auto* gradient = std::get_if<LinearWgrad>(&*task.op);
    const auto* product = std::get_if<Linear>(&*task.op);
    EXPECT_TRUE(gradient == nullptr || !gradient->dy_format) << task.name;
    // 40 inputs of the down projection are no multiple of 16.
    EXPECT_TRUE(product == nullptr || product->x_format.has_value() == (product->in != 40)) << task.name;
  }
}

// Where weights do not stay on the device, their copies cross the link in each further pass in their place.
TEST(NumberFormats, OfProductsStreamFewerBytes) {
  ModelSpec spec = frozen({});
  StepShape shape = kShape;
  shape.rounds = 8;
  struct Loaded {
    int64_t weights = 0, copies = 0;
  };
  const auto loaded = [&](const ProductFormats& products) {
    spec.products = products;
    const Program program = build_training(spec, shape, {.compute = DType::BF16}, {}).program;
    Profile profile;
    profile.set_bytes_per_s(2e9);
    PlanRequest request;
    request.caps[kDevice] = 420 << 10;
    request.quick = true;
    const auto plan = make_plan(program, profile, request);
    EXPECT_TRUE(plan.ok()) << plan.message();
    Loaded out;
    for (size_t a = 0; plan.ok() && a < plan->actions.size(); ++a) {
      if (!plan->actions[a].loads()) continue;
      const Object& o = program.object(plan->actions[a].object);
      if (o.kind == ObjectKind::Param) out.weights += o.bytes;
      if (o.kind == ObjectKind::Activation && o.round < 0) out.copies += o.bytes;
    }
    return out;
  };
  const Loaded narrow = loaded(kNarrow), plain = loaded({});
  EXPECT_GT(narrow.copies, 0);
  EXPECT_EQ(plain.copies, 0);
  EXPECT_LT(narrow.weights, plain.weights / 4);
}

// Products in 8 bits need no more than two copies beside what they need in bf16, of the device and of the
// host.
TEST(NumberFormats, OfProductsWorkWhereBf16Does) {
  ModelSpec spec =
      model_of({.dim = 32, .layers = 2, .heads = 4, .kv_heads = 2, .head_dim = 8, .ffn = 64, .vocab = 61});
  const Numerics bf16{.compute = DType::BF16};
  const Program plain = build_training(spec, kShape, bf16, {}).program;
  spec.products = kNarrow;
  const Program narrow = build_training(spec, kShape, bf16, {}).program;
  int64_t copy = 0;
  for (const Object& o : narrow.objects()) copy = std::max(copy, o.format.block > 0 ? o.bytes : 0);
  ASSERT_GT(copy, 0);
  const Profile profile;
  const auto plain_least = minimal_device_bytes(plain, profile, {});
  const auto narrow_least = minimal_device_bytes(narrow, profile, {});
  ASSERT_TRUE(plain_least.ok() && narrow_least.ok());
  EXPECT_LE(*narrow_least, *plain_least + 2 * copy);
  const auto works = [&](const Program& program, int64_t device, int64_t host) {
    PlanRequest request;
    request.caps[kDevice] = device;
    request.caps[kHost] = host;
    return caps_work(program, profile, request);
  };
  for (const int64_t device : {*plain_least, *plain_least * 3 / 2}) {
    const Status refused = works(plain, device, 1);
    ASSERT_FALSE(refused.ok());
    const auto shortage = refused.error().shortage;
    ASSERT_TRUE(shortage && shortage->tier == name_of(kHost)) << refused.message();
    const Status fits = works(narrow, device + 2 * copy, *shortage->need_bytes + 2 * copy);
    EXPECT_TRUE(works(plain, device, *shortage->need_bytes).ok());
    EXPECT_TRUE(fits.ok()) << fits.message();
  }
}

// Keys in one format and values in another are one product, of what each is cast to.
TEST(NumberFormats, OfAStackAreOfItsParts) {
  ModelSpec spec = frozen({});
  const BuiltProgram plain = build_training(spec, kShape, {.compute = DType::BF16}, {});
  spec.stored = {{"*.k_proj", kNvfp4}};
  ASSERT_TRUE(validate(spec).ok()) << validate(spec).message();
  const BuiltProgram model = build_training(spec, kShape, {.compute = DType::BF16}, {});
  ASSERT_TRUE(verify(model.program).ok()) << verify(model.program).message();
  std::map<std::string, NumberFormat> formats;
  for (size_t w = 0; w < model.weights.size(); ++w)
    formats[model.weights[w].role] = model.program.object(model.params[w].param).format;
  EXPECT_EQ(formats.at("wkv"), kNvfp4);
  EXPECT_EQ(formats.at("wkv-1"), NumberFormat(DType::BF16));
  EXPECT_EQ(spec.params(), frozen({}).params());
  EXPECT_EQ(model.program.tasks().size() - plain.program.tasks().size(), size_t(4 * 2 * kShape.rounds));
  EXPECT_GT(copied_bytes(model), 0);
}

TEST(NumberFormats, ThatCannotBeAreRefusedByName) {
  ModelSpec spec = frozen({});
  spec.stored = {{"*.k_proj", kNvfp4, {.w = kNvfp4}}};
  EXPECT_EQ(
      validate(spec).message(),
      "model: model.layers.0.self_attn.k_proj.weight and model.layers.0.self_attn.v_proj.weight are one "
      "product here, and read as several formats: give both the same");
  spec.stored = {{"lm_head", kNvfp4}};
  EXPECT_NE(validate(spec).message().find("'lm_head' names no product of a layer"), std::string::npos)
      << validate(spec).message();
}

// Parts of compact state are whole groups; what is small keeps f32.
TEST(NumberFormats, OfCompactState) {
  OptimizerConfig config;
  config.part_elements = 1000;
  const Weight large{.object = "w.L0", .role = "w", .layer = 0, .sources = {{"w", 30, 50}}};
  Program program;
  ParamObjects objects;
  add_state(large, config, {.state = DType::I8}, program, objects);
  ASSERT_EQ(objects.parts.size(), 2u);
  EXPECT_EQ(objects.parts[1].first, 1024);
  const int64_t bytes[] = {1024 + 32 * 4, 480 + 15 * 4};
  for (size_t part = 0; part < 2; ++part) {
    const Object& m = program.object(objects.parts[part].state[0]);
    const Object& v = program.object(objects.parts[part].state[1]);
    EXPECT_EQ(to_text(m.format), "i8 by 32 with f32");
    EXPECT_EQ(to_text(v.format), "u8 by 32 with f32");
    EXPECT_EQ(m.bytes, bytes[part]) << m.name;
    EXPECT_EQ(v.bytes, bytes[part]) << v.name;
  }
  for (const Weight& weight :
       {Weight{.object = "s", .role = "s", .sources = {{"s", 31, 33}}},
        Weight{.object = "n", .role = "n", .sources = {{"n", 5000, 1}}, .matrix = false}})
    EXPECT_EQ(numerics_of(weight, {.state = DType::I8}).state, DType::F32) << weight.object;
}

TEST(NumberFormats, OfStateAreThoseOfItsSlots) {
  const StateSlot slots[] = {{.role = "m", .format = NumberFormat(DType::F8E4M3, 128, DType::F32)},
                             {.role = "v"}};
  UpdateRule rule = optimizers().front()->rules.front();
  rule.state = slots;
  Optimizer optimizer = *optimizers().front();
  optimizer.rules = {&rule, 1};
  OptimizerConfig config;
  config.optimizer = &optimizer;
  config.part_elements = 1000;
  const Weight weight{.object = "w.L0", .role = "w", .layer = 0, .sources = {{"w", 30, 50}}};
  Program program;
  ParamObjects objects;
  add_state(weight, config, {.state = DType::BF16}, program, objects);
  ASSERT_EQ(objects.parts.size(), 2u);
  // Parts of whole blocks.
  const int64_t bytes[2][2] = {{1024 + 8 * 4, 2048}, {512 + 4 * 4, 952}};
  for (size_t part = 0; part < 2; ++part) {
    for (size_t slot = 0; slot < 2; ++slot) {
      const Object& object = program.object(objects.parts[part].state[slot]);
      EXPECT_EQ(object.format, slots[slot].format.value_or(DType::BF16)) << object.name;
      EXPECT_EQ(object.bytes, bytes[part][slot]) << object.name;
    }
  }
}

}  // namespace
}  // namespace sluice::core
