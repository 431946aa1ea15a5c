// SPDX-License-Identifier: Apache-2.0
// A base larger than the host: runs that read it from its files in every pass have the bits of runs that have
// it in memory, under all caps, threads and devices; a file that changes meanwhile ends them.
#include <chrono>
#include <filesystem>

#include "backend/cpu/cpu_backend.h"
#include "checkpoint/base_files.h"
#include "checkpoint/weights.h"
#include "equivalence/small_runs.h"
#include "io/safetensors.h"
#include "model/weights.h"
#include "search/planner.h"
#include "support/temp_dir.h"

namespace sluice::core {
namespace {

namespace fs = std::filesystem;
using rig::must;

constexpr StepShape kShape{16, 16, 2, 1, 16};

ModelSpec with_adapters(bool reads) {
  ModelSpec spec =
      model_of({.dim = 64, .layers = 3, .heads = 4, .kv_heads = 2, .head_dim = 16, .ffn = 128, .vocab = 97});
  Adapters adapters;
  adapters.rank = 2;
  must(adapt(spec, adapters, "adapter"));
  spec.files_have = true;
  spec.reads_files = reads;
  return spec;
}

// All that an adapter's run ends in: what is trained, and its state.
rig::History trained(rig::Rig& rig) {
  rig::History out;
  for (int64_t step = 1; step <= 2; ++step) {
    const rig::Losses l = rig.step(step, rig::random_tokens(rig.request().shape, 97, uint64_t(step)));
    out.losses.push_back(l.loss);
    out.norms.push_back(l.norm);
  }
  out.state = rig::read_state(rig.training(), {ObjectKind::Param, ObjectKind::OptState});
  return out;
}

class ReadBases : public testing::Test {
 protected:
  ReadBases() {
    // A folder of the base alone.
    ModelSpec spec = with_adapters(false);
    spec.adapters = {};
    const BuiltProgram base = build_training(spec, kShape, {}, {});
    std::vector<TensorInfo> infos;
    std::vector<std::vector<float>> values;
    for (const Weight& weight : base.weights) {
      int64_t first = 0;
      for (const WeightSource& source : weight.sources) {
        infos.push_back({source.tensor, TensorType::F32, source.shape(weight.matrix)});
        random_values(weight, 3, first, source.elements(), values.emplace_back());
        first += source.elements();
      }
    }
    SafeTensorsWriter writer = must(SafeTensorsWriter::create(file(), infos));
    for (size_t i = 0; i < infos.size(); ++i)
      must(writer.write(infos[i].name, 0, std::as_bytes(std::span(values[i]))));
    must(writer.commit());
  }
  fs::path file() const { return dir_ / "model.safetensors"; }

  Question question(bool reads) const {
    Question q;
    q.model = with_adapters(reads);
    q.shape = kShape;
    q.quick = true;
    return q;
  }
  // Loaded, on a backend that reads the folder where the plan has it read.
  std::unique_ptr<rig::Rig> open(const Question& q, int devices, int threads) const {
    auto rig = std::make_unique<rig::Rig>(
        q, make_cpu_backend({.threads = threads, .devices = devices, .reads_disk = q.model.reads_files}));
    if (q.model.reads_files) rig->backend().set_disk(must(open_base(rig->model(), rig->plan(), dir_ / "")));
    rig->initialize();
    must(load_weights(rig->model(), dir_ / "", rig->training(), Held::Base));
    return rig;
  }
  // Bytes that the plan has on the disk.
  static int64_t on_disk(const rig::Rig& rig) {
    int64_t bytes = 0;
    for (size_t o = 0; o < rig.plan().homes.size(); ++o)
      bytes += rig.plan().homes[o].on(kDisk) ? rig.model().program.objects()[o].bytes : 0;
    return bytes;
  }
  // Bytes of all that files have, and of all else that outlives steps.
  struct Sizes {
    int64_t base = 0, rest = 0;
  };
  Sizes sizes() const {
    Sizes out;
    const BuiltProgram model = build_training(with_adapters(true), kShape, {}, {});
    for (const Object& o : model.program.objects()) {
      if (o.in_files) out.base += o.bytes;
      if (o.persistent && !o.in_files) out.rest += o.bytes;
    }
    return out;
  }
  TempDir dir_;
};

TEST_F(ReadBases, HaveTheBitsOfBasesInMemory) {
  const rig::History expected = trained(*open(question(false), 1, 1));
  const auto [base, rest] = sizes();
  struct Case {
    int devices, threads;
    int64_t host, device;
  };
  // A base of four times the host's room, and more of either memory.
  for (const auto& [devices, threads, host, device] : {Case{1, 1, rest + base / 4, base / 2},
                                                       {1, 3, rest + base / 4, 2 * base / 3},
                                                       {2, 2, rest + base / 4, base / 2},
                                                       {1, 2, rest + base / 2, base / 2}}) {
    Question q = question(true);
    q.caps = BytesByTier({{kHost, host}});
    q.caps.set_devices(device);
    q.caps[kDisk] = kUnlimited;
    const auto rig = open(q, devices, threads);
    EXPECT_GT(on_disk(*rig), 0) << devices << " " << host;
    EXPECT_LE(rig->plan().arenas[kHost].bytes, host);
    EXPECT_TRUE(trained(*rig) == expected) << devices << " devices, " << threads << " threads, host " << host;
  }
}

// The error is the lane's: it has the object, the file and the place in it.
TEST_F(ReadBases, EndARunWhereTheirFileDoes) {
  const auto [base, rest] = sizes();
  for (const bool shorter : {false, true}) {
    Question q = question(true);
    q.caps = BytesByTier({{kHost, rest + base / 4}, {kDisk, kUnlimited}});
    q.caps.set_devices(base / 2);
    const auto rig = open(q, 1, 1);
    const rig::Tokens tokens = rig::random_tokens(kShape, 97, 1);
    rig->step(1, tokens);
    if (shorter) {
      fs::resize_file(file(), 1000);
    } else {
      fs::last_write_time(file(), fs::last_write_time(file()) + std::chrono::seconds(2));
    }
    const Status failed = rig->training().step();
    ASSERT_FALSE(failed.ok());
    for (const std::string& part :
         {file().string(), std::string("byte "), std::string(shorter ? "it ends at" : "changed")})
      EXPECT_NE(failed.message().find(part), std::string::npos) << failed.message();
  }
}

// In every pass; nothing is written to the disk, and nothing is read from there that no file has.
TEST_F(ReadBases, AreProved) {
  const auto [base, rest] = sizes();
  Question q = question(true);
  q.caps = BytesByTier({{kHost, rest + base / 4}, {kDisk, kUnlimited}});
  q.caps.set_devices(base / 2);
  const auto rig = open(q, 1, 1);
  const Program& program = rig->model().program;
  const PlanTotals t = totals(program, rig->plan());
  EXPECT_GE(t.reads.bytes, on_disk(*rig) * kShape.rounds);
  EXPECT_LE(t.reads.bytes, t.loads.bytes);
  EXPECT_NE(describe(program, rig->plan()).find("disk     "), std::string::npos);
  const std::vector<int64_t> workspaces = cost_of(program, rig::profile_of(rig->backend())).workspace_bytes;
  must(verify(program, rig->plan(), workspaces));
  const auto refused = [&](const Plan& plan, std::string_view why) {
    const Status proved = verify(program, plan, workspaces);
    EXPECT_FALSE(proved.ok());
    EXPECT_NE(proved.message().find(why), std::string::npos) << proved.message();
  };
  Plan elsewhere = rig->plan();
  for (size_t o = 0; o < elsewhere.homes.size(); ++o) {
    if (program.objects()[o].in_files || !program.objects()[o].persistent) continue;
    elsewhere.homes[o].set(kDisk, 0);
    break;
  }
  refused(elsewhere, "and no file has it");
  Plan written = rig->plan();
  written.lanes.add(kDevice, kDisk);
  refused(written, "nothing is written to it");
}

}  // namespace
}  // namespace sluice::core
