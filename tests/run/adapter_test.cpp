// SPDX-License-Identifier: Apache-2.0
// Runs that train adapters beside a base: what their checkpoints hold, how they go on, and who reads them.
#include <nlohmann/json.hpp>

#include "base/half.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/export.h"
#include "checkpoint/weights.h"
#include "io/elements.h"
#include "io/safetensors.h"
#include "run/forged_checkpoint.h"
#include "run/inference/cached_model.h"
#include "run/inputs/resolve.h"
#include "run/small_session.h"
#include "search/refusal.h"

namespace sluice::core {
namespace {

namespace fs = std::filesystem;

class AdapterRuns : public testing::Test {
 protected:
  AdapterRuns() {
    fs::create_directories(base());
    for (const char* name : {"config.json", "model.safetensors"})
      fs::copy_file(fs::path(SLUICE_FIXTURES) / "llama_tiny" / name, base() / name);
  }
  fs::path base() const { return dir_ / "base"; }
  // A run on the base, of rank 4 unless `more` says otherwise.
  std::vector<std::string> settings(std::vector<std::string> more = {}) const {
    std::vector<std::string> out = small_run(dir_);
    std::erase_if(out, [](const std::string& s) { return s.starts_with("model."); });
    out.push_back("model.path=" + base().string());
    out.emplace_back("adapter.rank=4");
    out.insert(out.end(), more.begin(), more.end());
    return out;
  }
  Prepared prepared(std::vector<std::string> more = {}) const {
    return must(prepare(must(load_config("", settings(std::move(more)))), "", false));
  }
  static std::vector<float> values_in(const fs::path& folder, const std::string& tensor) {
    const TensorFiles files = must(TensorFiles::open(folder));
    const SafeTensor& found = *must(files.get(tensor));
    std::vector<float> out;
    read_elements(found.info.type, found.bytes, out);
    return out;
  }
  TempDir dir_;
};

TEST_F(AdapterRuns, SaveWhatIsTrainedAsPeftDoes) {
  const std::string before = file_bytes(base() / "model.safetensors");
  const Prepared p = prepared({"adapter.targets=[\"q_proj\", \"mlp\"]", "adapter.modules_to_save=lm_head"});
  (void)run_session(p, 6, dir_ / "saved");
  std::set<std::string> names, files;
  for (const auto& entry : fs::directory_iterator(dir_ / "saved")) files.insert(entry.path().filename());
  EXPECT_EQ(files, (std::set<std::string>{"adapter_config.json", "adapter_model.safetensors",
                                          "checkpoint.json", "optimizer.safetensors"}));
  const TensorFiles tensors = must(TensorFiles::open(dir_ / "saved"));
  for (const std::string_view name : tensors.names()) {
    if (name.find("layers.1") != name.npos || name.find("layers") == name.npos) names.emplace(name);
  }
  const std::string layer = "base_model.model.model.layers.1.";
  std::set<std::string> expected{"base_model.model.lm_head.weight"};
  for (const char* module : {"self_attn.q_proj", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"}) {
    for (const char* part : {"A", "B"})
      expected.insert(fmt::format("{}{}.lora_{}.weight", layer, module, part));
  }
  EXPECT_EQ(names, expected);
  const auto config = nlohmann::json::parse(file_bytes(dir_ / "saved/adapter_config.json"));
  EXPECT_EQ(config["base_model_name_or_path"], base().string());
  EXPECT_EQ(config["target_modules"].dump(), R"(["down_proj","gate_proj","q_proj","up_proj"])");
  EXPECT_EQ(config["modules_to_save"].dump(), R"(["lm_head"])");
  EXPECT_EQ(file_bytes(base() / "model.safetensors"), before) << "the base stays";
}

TEST_F(AdapterRuns, GoOnWithTheSameBitsUnderOtherCaps) {
  for (const std::string dora : {"adapter.dora=false", "adapter.dora=true"}) {
    const fs::path all = dir_ / dora;
    fs::create_directories(all);
    const Prepared p = prepared({dora});
    const std::vector<double> whole = run_session(p, 6, all / "whole");
    (void)run_session(p, 3, all / "half");
    const auto too_little = prepare(must(load_config("", settings({dora, "memory.device=4KiB"}))), "", false);
    ASSERT_FALSE(too_little.ok());
    const int64_t least = *too_little.error().shortage->need_bytes;
    const Prepared later =
        prepared({dora, "run.resume=" + (all / "half").string(), fmt::format("memory.device={}B", least)});
    EXPECT_LT(later.stages.arena_bytes()[kDevice], p.stages.arena_bytes()[kDevice]);
    const auto session = must(Session::open(later));
    EXPECT_EQ(session->steps_done(), 3);
    for (size_t step = 3; step < 6; ++step) EXPECT_EQ(must(session->step()).loss, whole[step]) << step;
    must(session->save(all / "again"));
    EXPECT_EQ(file_bytes(all / "again/adapter_model.safetensors"),
              file_bytes(all / "whole/adapter_model.safetensors"));
  }
}

// One A and one B of all experts are as PEFT has them of a parameter with three sizes: gate and up are one.
TEST_F(AdapterRuns, OfExpertsAreWrittenEachOrTogether) {
  for (const char* name : {"config.json", "model.safetensors"})
    fs::copy_file(fs::path(SLUICE_FIXTURES) / "olmoe_tiny" / name, base() / name,
                  fs::copy_options::overwrite_existing);
  (void)run_session(prepared({"adapter.targets=[\"experts\"]"}), 4, dir_ / "saved");
  const auto going_on = prepared({"adapter.path=" + (dir_ / "saved").string()});
  EXPECT_TRUE(Session::open(going_on).ok());
  const auto quiet = [](std::string_view, int64_t, int64_t) { return Status(); };
  const Exported together =
      must(export_model(dir_ / "saved", dir_ / "together", {.base = base(), .experts_in_one = true}, quiet));
  EXPECT_EQ(together.left_out, std::vector<std::string>());
  (void)must(export_model(dir_ / "saved", dir_ / "merged",
                          {.type = TensorType::F32, .base = base(), .merged = true}, quiet));
  const auto config = nlohmann::json::parse(file_bytes(dir_ / "together/adapter_config.json"));
  EXPECT_EQ(config["target_parameters"].dump(), R"(["mlp.experts.down_proj","mlp.experts.gate_up_proj"])");
  EXPECT_EQ(config["target_modules"].dump(), "[]");
  const std::string experts = "model.layers.1.mlp.experts";
  for (const bool down : {false, true}) {
    const std::string within = experts + (down ? "" : ".base_layer");
    const std::vector<float> a = values_in(dir_ / "together", within + ".lora_A.weight"),
                             b = values_in(dir_ / "together", within + ".lora_B.weight");
    const auto key = fmt::format("mlp.experts.{}", down ? "down_proj" : "gate_up_proj");
    const auto rank = config["rank_pattern"][key].get<size_t>();
    EXPECT_EQ(rank, down ? 4U : 8U);
    const double scale = config["alpha_pattern"][key].get<double>() / double(rank);
    const Experts& e = *going_on.model.layers[1].experts();
    const auto count = size_t(e.count), f = size_t(e.each.ffn), d = size_t(going_on.model.dim);
    const size_t in = down ? f : d;
    ASSERT_EQ(a.size(), count * rank * in);
    ASSERT_EQ(b.size(), (down ? d : 2 * f) * rank * count);
    double moved = 0;
    for (size_t expert : {size_t{0}, count - 1}) {
      for (const char* part : down ? std::vector{"down_proj"} : std::vector{"gate_proj", "up_proj"}) {
        const std::string name = fmt::format("{}.{}.{}.weight", experts, expert, part);
        const std::vector<float> before = values_in(base(), name), after = values_in(dir_ / "merged", name);
        const size_t first = part == std::string("up_proj") ? f : 0;
        for (size_t i = 0; i < before.size(); ++i) {
          double change = 0;
          for (size_t j = 0; j < rank; ++j)
            change += double(b[((first + i / in) * rank + j) * count + expert]) *
                      double(a[(expert * rank + j) * in + i % in]);
          moved += std::abs(change);
          ASSERT_NEAR(after[i], before[i] + scale * change, 1e-6) << name;
        }
      }
    }
    EXPECT_GT(moved, 0);
  }
}

// Losses beside a base in f8e4m3 are those beside its values in another format, under any cap.
TEST_F(AdapterRuns, TakeABaseInFloatsOfEightBits) {
  const std::string fp8 = "model.base_format=fp8";
  const Prepared p = prepared({fp8});
  const std::vector<double> whole = run_session(p, 3, dir_ / "whole");
  EXPECT_NE(run_session(prepared(in_shape_of(p)), 3, dir_ / "plain"), whole);

  // A run that freezes the layers saves the values that it has of them.
  const Prepared frozen = prepared({fp8, "adapter.rank=0", "train.freeze=[\"model.layers\"]"});
  (void)run_session(frozen, 0, dir_ / "values");
  const std::string name = "model.layers.1.mlp.down_proj.weight";
  EXPECT_NE(values_in(dir_ / "values", name), values_in(base(), name));
  const auto again = must(Session::open(p));
  EXPECT_EQ(values_in(dir_ / "values", name), must(again->engine().tensor({}, name)));
  fs::copy_file(dir_ / "values/model.safetensors", base() / "model.safetensors",
                fs::copy_options::overwrite_existing);
  EXPECT_EQ(run_session(prepared(in_shape_of(p)), 3, dir_ / "of_values"), whole);

  // They are the nearest ones: rounded once more, they stay.
  std::vector<std::string> capped = in_shape_of(p, {fp8, "memory.device=4KiB"});
  const auto too_little = prepare(must(load_config("", settings(capped))), "", false);
  ASSERT_FALSE(too_little.ok());
  capped[1] = fmt::format("memory.device={}B", *too_little.error().shortage->need_bytes);
  const Prepared least = prepared(capped);
  EXPECT_LT(least.stages.arena_bytes()[kDevice], p.stages.arena_bytes()[kDevice]);
  EXPECT_EQ(run_session(least, 3, dir_ / "least"), whole);

  // A run of another format is another run, unless that is allowed.
  const std::string resume = "run.resume=" + (dir_ / "values").string();
  const std::vector<std::string> thawed = {"adapter.rank=0", "train.freeze=[\"model.layers\"]", resume};
  const Prepared other_format = prepared(thawed);
  const auto other = Session::open(other_format);
  ASSERT_FALSE(other.ok());
  EXPECT_NE(other.message().find("model.base_format"), std::string::npos) << other.message();
  std::vector<std::string> resumed = thawed;
  resumed.push_back(fp8);
  const Prepared same_format = prepared(resumed);
  const auto going_on = must(Session::open(same_format));
  EXPECT_EQ(must(going_on->engine().tensor({}, name)), values_in(dir_ / "values", name));
  const auto refused = prepare(must(load_config("", settings({fp8, "adapter.rank=0"}))), "", false);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.message().find("model.base_format = fp8: no matrix of a layer stays"), std::string::npos)
      << refused.message();
}

// A checkpoint's numbers are those of the codes that it was made of.
TEST_F(AdapterRuns, FrozenCodesComeBackFromCheckpoints) {
  const std::vector<std::string> frozen = {"adapter.rank=0", "train.freeze=[\"model.layers\"]",
                                           "model.base_format=mxfp4"};
  (void)run_session(prepared(frozen), 1, dir_ / "saved");
  const std::string name = "model.layers.1.self_attn.q_proj.weight";
  const std::vector<float> values = values_in(dir_ / "saved", name);
  EXPECT_NE(values, values_in(base(), name));
  std::vector<std::string> resumed = frozen;
  resumed.push_back("run.resume=" + (dir_ / "saved").string());
  const Prepared later = prepared(resumed);
  EXPECT_EQ(must(must(Session::open(later))->engine().tensor({}, name)), values);
  resumed[2] = "model.base_format=nf4";
  const auto refused = prepare(must(load_config("", settings(resumed))), "", false);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.message().find("rows of a multiple of 64 elements take it"), std::string::npos)
      << refused.message();
}

TEST_F(AdapterRuns, RefuseAnotherBase) {
  (void)run_session(prepared(), 2, dir_ / "saved");
  // One weight of a layer is another one; where the base lies does not matter.
  fs::rename(base(), dir_ / "moved");
  fs::create_directories(base());
  fs::copy_file(dir_ / "moved/config.json", base() / "config.json");
  const Prepared fresh = must(prepare_small(dir_));
  const auto other = must(Session::open(fresh));
  must(other->save(dir_ / "other"));
  fs::copy_file(dir_ / "other/model.safetensors", base() / "model.safetensors");
  const std::string resume = "run.resume=" + (dir_ / "saved").string();
  const Prepared on_another = prepared({resume});
  const auto refused = Session::open(on_another);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.message().find("it was trained beside another base"), std::string::npos)
      << refused.message();
  const Prepared on_moved = prepared({resume, "model.path=" + (dir_ / "moved").string()});
  const auto session = Session::open(on_moved);
  ASSERT_TRUE(session.ok()) << session.message();
  EXPECT_EQ((*session)->steps_done(), 2);
  // An adapter of another rank is another run.
  const Prepared of_rank = prepared({resume, "adapter.rank=2"});
  EXPECT_NE(Session::open(of_rank).message().find("adapter.rank is 2, it was 4"), std::string::npos);
}

// Writes a file of tensors again, with what `change` makes of them and of its metadata.
void rewrite(const fs::path& path, const std::function<void(ForgedTensor&)>& change,
             const std::string& without = "") {
  std::vector<ForgedTensor> all;
  std::vector<TensorInfo> infos;
  std::map<std::string, std::string> metadata;
  {
    const auto from = must(SafeTensorsFile::open(path));
    metadata = from.metadata();
    for (const SafeTensor& t : from.tensors()) {
      change(all.emplace_back(ForgedTensor{t.info, {t.bytes.begin(), t.bytes.end()}}));
      infos.push_back(t.info);
    }
  }
  metadata.erase(without);
  auto writer = must(SafeTensorsWriter::create(path, infos, metadata));
  for (const ForgedTensor& t : all) must(writer.write(t.info.name, 0, t.bytes));
  must(writer.commit());
}

// A run and what generates compare the rows of the embedding, too. An older adapter, which has no checksum of
// them, goes on.
TEST_F(AdapterRuns, RefuseABaseWithAnotherEmbedding) {
  const fs::path saved = dir_ / "saved";
  (void)run_session(prepared(), 2, saved);
  rewrite(base() / "model.safetensors", [](ForgedTensor& tensor) {
    if (tensor.info.name == "model.embed_tokens.weight") std::swap(tensor.bytes[1], tensor.bytes[5]);
  });
  const Prepared again = prepared({"run.resume=" + saved.string()});
  const GenerationPlans plans = must(plan_generation(
      {.model = again.model, .numerics = again.numerics, .capacity = 16}, again.machine.profile));
  const auto generates = [&] {
    return CachedModel::open(plans, again.machine, WeightsFrom(base(), saved), silent_observer());
  };
  for (const std::string& message : {Session::open(again).message(), generates().message()})
    EXPECT_NE(message.find("another base: the rows of the embedding of that one have the checksum"),
              std::string::npos)
        << message;
  rewrite(
      saved / "adapter_model.safetensors", [](ForgedTensor&) {}, kBaseTables);
  seal_again(saved);
  EXPECT_TRUE(Session::open(again).ok()) << Session::open(again).message();
  EXPECT_TRUE(generates().ok()) << generates().message();
}

// Rows of tokens alone change of embedding and head, and go on with the same bits, as masks of dropout do,
// where updates come a step late. Other rows are another run.
TEST_F(AdapterRuns, TrainRowsOfTokens) {
  const std::vector<std::string> rows{"adapter.tokens=[7, 3, 4]", "adapter.head_tokens=3",
                                      "adapter.dropout=0.25", "train.deferred_update=on"};
  const Prepared p = prepared(rows);
  const std::vector<double> losses = run_session(p, 4, dir_ / "whole");
  (void)run_session(p, 2, dir_ / "half");
  std::vector<std::string> later = rows;
  later.push_back("run.resume=" + (dir_ / "half").string());
  const Prepared resumed = prepared(later);
  const auto session = must(Session::open(resumed));
  for (size_t step = 2; step < 4; ++step) EXPECT_EQ(must(session->step()).loss, losses[step]) << step;
  must(session->save(dir_ / "again"));
  EXPECT_EQ(file_bytes(dir_ / "again/adapter_model.safetensors"),
            file_bytes(dir_ / "whole/adapter_model.safetensors"));
  for (const auto& [table, tokens] :
       {std::pair{"model.embed_tokens", std::vector<size_t>{7, 3, 4}}, {"lm_head", {3}}}) {
    const std::string name = table;
    const std::vector<float> before = values_in(base(), name + ".weight"),
                             after = must(session->engine().tensor({}, name + ".weight")),
                             saved = values_in(dir_ / "again", name + std::string(kTokenRows));
    const size_t width = saved.size() / tokens.size();
    std::vector<float> expected = before;
    for (size_t t = 0; t < tokens.size(); ++t) {
      std::copy_n(saved.begin() + long(t * width), width, expected.begin() + long(tokens[t] * width));
      EXPECT_FALSE(std::equal(saved.begin() + long(t * width), saved.begin() + long((t + 1) * width),
                              before.begin() + long(tokens[t] * width)))
          << name << " " << tokens[t];
    }
    for (float& value : expected) value = float(Bf16(value));  // saved are the masters
    EXPECT_EQ(after, expected) << name;
  }
  later.front() = "adapter.tokens=[7, 3, 5]";
  const Prepared others = prepared(later);
  EXPECT_NE(Session::open(others).message().find("adapter.tokens is"), std::string::npos)
      << Session::open(others).message();
}

TEST_F(AdapterRuns, NameRowsOfTokensThatAreThere) {
  dir_.add("base/tokenizer.json", R"({"added_tokens": [{"id": 5, "content": "<|end|>"}]})");
  EXPECT_EQ(must(load_config("", settings({"adapter.tokens=[\"<|end|>\", \"3\"]"}))).adapter.tokens,
            (std::vector<std::string>{"5", "3"}));
  const auto refused = [&](const std::string& setting) {
    return prepare(must(load_config("", settings({setting}))), "", false).message();
  };
  for (const auto& [setting, says] : {std::pair{"adapter.tokens=<|stop|>", "'<|stop|>' is no id of a token"},
                                      {"adapter.tokens=[3, 97]", "97 is no row of model.embed_tokens.weight"},
                                      {"adapter.tokens=[3, 3]", "3 stands there twice"}})
    EXPECT_NE(refused(setting).find(says), std::string::npos) << refused(setting);
}

TEST_F(AdapterRuns, BeginFromAnAdaptersFolder) {
  (void)run_session(prepared({"adapter.alpha=12", "adapter.targets=v_proj"}), 6, dir_ / "saved");
  std::vector<std::string> settings = small_run(dir_);
  std::erase_if(settings, [](const std::string& s) { return s.starts_with("model."); });
  settings.push_back("model.path=" + (dir_ / "saved").string());
  const RunConfig config = must(load_config("", settings));
  EXPECT_EQ(config.model.weights, base().string());
  EXPECT_EQ(config.adapter.path, (dir_ / "saved").string());
  EXPECT_EQ(config.adapter.rank, 4);
  EXPECT_EQ(config.adapter.alpha, 12);
  EXPECT_EQ(config.adapter.targets, std::vector<std::string>{"v_proj"});
  const Prepared p = must(prepare(config, "", false));
  const auto session = must(Session::open(p));
  const std::string name = "model.layers.2.self_attn.v_proj.lora_B.weight";
  const std::vector<float> begun = must(session->engine().tensor({}, name));
  EXPECT_EQ(begun, values_in(dir_ / "saved", name));
  // A key that contradicts the file is refused.
  const auto other = load_config("", {"adapter.path=" + (dir_ / "saved").string(), "adapter.rank=8"});
  ASSERT_FALSE(other.ok());
  EXPECT_NE(other.message().find("adapter.rank = 8: the adapter has rank 4"), std::string::npos);
  settings.emplace_back("adapter.targets=[\"v_proj\", \"q_proj\"]");
  const auto more = prepare(must(load_config("", settings)), "", false);
  ASSERT_FALSE(more.ok());
  EXPECT_NE(more.message().find("no tensor 'model.layers.0.self_attn.q_proj.lora_A.weight'"),
            std::string::npos)
      << more.message();
}

}  // namespace
}  // namespace sluice::core
