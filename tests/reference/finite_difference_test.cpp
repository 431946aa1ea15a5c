// Gradients of a whole model against differences of its own loss: no other implementation involved.
#include <gtest/gtest.h>

#include <random>

#include "reference/fixture.h"

namespace sluice {
namespace {

// Step and tolerance. Each element of a weight moves by +-h, h = 1e-3, where weights are about 0.3 (norms:
// 1). Along such a direction the loss changes by about h ||g||. The central difference errs by h^2 / 6 times
// the third derivative: the direction's length is h / 0.3 of the weight's, so relative to the slope about (h
// / 0.3)^2 = 1e-5, times the number of weights that act together (at most tens): below 1e-3. The f32 loss is
// a mean of 32 logarithms with an error of about 4 u each, that is 4 * 2^-24 * loss (3) / sqrt(32) = 1.3e-7,
// over 2 h: 6e-5. Both are far below 1 % of ||g||, which is asked for, and a wrong sign, factor or missing
// term is of the order of ||g||.
constexpr float kStep = 1e-3f;

struct TinyModel {
  const ModelSpec config = model_of({16, 2, 2, 1, 8, 24, 17});
  StepShape shape;
  rig::Tokens tokens;
  std::unique_ptr<rig::Rig> run;

  explicit TinyModel(const StepShape& s) : shape(s), tokens(rig::random_tokens(s, config.vocab, 3)) {
    StageRequest request;
    request.model = config;
    request.shape = shape;
    request.optimizer.deferred = true;
    run = std::make_unique<rig::Rig>(request);
    run->initialize();
    std::mt19937_64 random(5);
    std::normal_distribution<float> normal;
    for (const Weight& w : weights_of(config)) {
      const ObjectId id = rig::find(run->model().program, w.object);
      auto values = rig::read_floats(run->training(), id);
      for (float& v : values)
        v = w.init.kind == Init::Ones ? 1 + 0.2f * normal(random) : 0.3f * normal(random);
      rig::write_floats(run->training(), id, values);
    }
  }
};

class FiniteDifference : public testing::TestWithParam<StepShape> {};

TEST_P(FiniteDifference, AgreesWithEveryGradient) {
  TinyModel m(GetParam());
  (void)m.run->measure(m.tokens);
  std::map<std::string, std::vector<float>> gradients;
  for (const Weight& w : weights_of(m.config)) {
    gradients[w.object] =
        rig::read_floats(m.run->training(), rig::find(m.run->model().program, "d_" + w.object));
  }
  std::mt19937_64 random(11);
  for (const auto& [name, gradient] : gradients) {
    const ObjectId id = rig::find(m.run->model().program, name);
    const auto weights = rig::read_floats(m.run->training(), id);
    double norm = 0;
    for (const float g : gradient) norm += double(g) * g;
    norm = std::sqrt(norm);
    EXPECT_GT(norm, 1e-2) << name << ": too flat to test";
    for (int direction = 0; direction < 4; ++direction) {
      std::vector<float> ahead = weights, behind = weights;
      double slope = 0;
      for (size_t i = 0; i < weights.size(); ++i) {
        const float step = random() % 2 == 0 ? kStep : -kStep;
        ahead[i] += step, behind[i] -= step;
        slope += double(gradient[i]) * (double(ahead[i]) - behind[i]) / (2 * double(kStep));
      }
      rig::write_floats(m.run->training(), id, ahead);
      const double above = m.run->measure(m.tokens).loss;
      rig::write_floats(m.run->training(), id, behind);
      const double below = m.run->measure(m.tokens).loss;
      EXPECT_NEAR((above - below) / (2 * double(kStep)), slope, 0.01 * norm) << name;
    }
    rig::write_floats(m.run->training(), id, weights);
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, FiniteDifference,
                         testing::Values(StepShape{32, 32, 1, 1, 32}, StepShape{32, 8, 4, 1, 8},
                                         StepShape{16, 8, 4, 1, 8, true}));

}  // namespace
}  // namespace sluice
