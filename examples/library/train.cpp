// SPDX-License-Identifier: Apache-2.0
// Trains a small model on batches of one's own, watches it, evaluates it, saves it: train DIRECTORY
#include <cstdio>
#include <string>
#include <vector>

#include <sluice/sluice.h>

// Sequences that count up by one from some token on: the model should learn to count.
struct Counting {
  std::vector<int32_t> tokens, targets;

  Counting(int64_t rows, int64_t length, int32_t first) {
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t i = 0; i < length; ++i) {
        tokens.push_back(int32_t((first + 7 * row + i) % 256));
        targets.push_back((tokens.back() + 1) % 256);
      }
    }
  }
  sluice::Batch batch() const { return {tokens, targets, {}}; }
};

class Watch : public sluice::Observer {
 public:
  void progress(const sluice::Progress& p) override {
    if (phase_ != p.what) std::printf("%s\n", (phase_ = p.what).c_str());
  }
  void stepped(const sluice::StepEvent& e) override {
    if (e.step % 10 == 0)
      std::printf("step %lld: loss %.3f, %.0f tokens/s\n", (long long)e.step, e.loss,
                  double(e.tokens) / e.seconds);
  }
  void saved(const sluice::SaveEvent& e) override { std::printf("saved %s\n", e.directory.c_str()); }

 private:
  std::string phase_;
};

sluice::Status run(const std::string& directory) {
  const auto model = sluice::Model::from_config(
      R"({"model_type": "llama", "vocab_size": 256, "hidden_size": 64, "num_hidden_layers": 2,
          "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 160})");
  if (!model.ok()) return model.error();
  const auto machine = sluice::Machine::here();
  if (!machine.ok()) return machine.error();

  sluice::StepOptions options;
  options.seq_len = 32;
  options.tokens_per_step = 8 * options.seq_len;
  sluice::Caps caps;
  caps.host_bytes = int64_t{2} << 30;

  Watch watch;
  const auto plan = sluice::plan(*model, options, caps, *machine, watch);
  if (!plan.ok()) return plan.error();
  auto session = sluice::Session::open(*plan, watch);
  if (!session.ok()) return session.error();

  for (int32_t step = 0; step < 60; ++step) {
    const auto stepped = session->step(Counting(8, options.seq_len, 31 * step).batch(), 3e-3);
    if (!stepped.ok()) return stepped.error();
  }
  const auto loss = session->evaluate(Counting(3, options.seq_len, 5).batch());
  if (!loss.ok()) return loss.error();
  std::printf("loss on other rows: %.3f nats\n", *loss);
  return session->save_state(directory);
}

int main(int argc, char** argv) {
  if (argc != 2) return std::fprintf(stderr, "train DIRECTORY\n"), 2;
  const sluice::Status status = run(argv[1]);
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.message().c_str());
  return status.ok() ? 0 : 1;
}
