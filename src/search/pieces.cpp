// SPDX-License-Identifier: Apache-2.0
#include "search/pieces.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>

namespace sluice::core {
namespace {

bool is_of_weight(const Object& object) {
  return object.kind == ObjectKind::Param || object.kind == ObjectKind::Grad ||
         object.kind == ObjectKind::OptState;
}

class Finder {
 public:
  explicit Finder(const Program& program)
      : program_(program), piece_(program.objects().size(), Pieces::kNone) {}
  Pieces run();

 private:
  using Tasks = std::vector<const Task*>;
  // By layer its tasks of the forward pass over one chunk.
  std::vector<Tasks> layers() const;
  // Where the pieces of a layer begin in its tasks.
  std::vector<size_t> cuts(const Tasks& tasks) const;
  void give(const Tasks& tasks, int32_t layer);
  void spread_over_weights();
  int32_t piece_of(const Task& task) const;

  const Program& program_;
  std::vector<int32_t> piece_;                                       // by object that is a weight's
  std::map<std::pair<int32_t, std::string_view>, int32_t> of_role_;  // of activations, by layer and role
  Pieces out_;
};

std::vector<Finder::Tasks> Finder::layers() const {
  std::vector<Tasks> out;
  for (const Task& task : program_.tasks()) {
    if (task.layer < 0) continue;
    if (size_t(task.layer) >= out.size()) out.resize(size_t(task.layer) + 1);
    if (task.phase != Phase::Forward) continue;
    Tasks& tasks = out[size_t(task.layer)];
    if (tasks.empty() || (tasks.front()->round == task.round && tasks.front()->chunk == task.chunk))
      tasks.push_back(&task);
  }
  return out;
}

std::vector<size_t> Finder::cuts(const Tasks& tasks) const {
  // From the task that writes an activation, or 0 for what comes from before, to the last one that reads it.
  struct Life {
    size_t begin, end;
  };
  std::map<uint32_t, Life> lives;
  int64_t stream_bytes = 0;
  for (size_t t = 0; t < tasks.size(); ++t) {
    for (const Use& u : tasks[t]->uses) {
      const Object& object = program_.object(u.object);
      if (object.kind != ObjectKind::Activation) continue;
      const bool reads = u.access == Access::Read;
      const auto [life, fresh] = lives.try_emplace(u.object.value, Life{reads ? 0 : t + 1, t});
      life->second.end = t;
      if (fresh && reads) stream_bytes += object.bytes;
    }
  }
  std::vector<size_t> out{0};
  for (size_t cut = 1; cut < tasks.size(); ++cut) {
    int64_t crosses = 0;
    for (const auto& [o, life] : lives) {
      if (life.begin <= cut && cut <= life.end) crosses += program_.objects()[o].bytes;
    }
    if (crosses <= stream_bytes) out.push_back(cut);
  }
  return out;
}

void Finder::give(const Tasks& tasks, int32_t layer) {
  const std::vector<size_t> cuts = this->cuts(tasks);
  if (tasks.empty()) out_.layer.push_back(layer);  // updated only
  for (size_t t = 0; t < tasks.size(); ++t) {
    if (std::ranges::binary_search(cuts, t)) out_.layer.push_back(layer);
    const auto piece = int32_t(out_.layer.size()) - 1;
    for (const Use& u : tasks[t]->uses) {
      const Object& object = program_.object(u.object);
      if (object.layer != layer) continue;
      if (is_of_weight(object)) piece_[u.object.value] = piece;
      // Its first input comes from the layer before.
      if (object.kind == ObjectKind::Activation && u.access != Access::Read)
        of_role_.emplace(std::pair(layer, std::string_view(object.role)), piece);
    }
  }
}

// Weights that are updated together stay together.
void Finder::spread_over_weights() {
  for (bool again = true; again;) {
    again = false;
    for (const Task& task : program_.tasks()) {
      if (task.phase != Phase::Update || task.layer < 0) continue;
      int32_t piece = Pieces::kNone;
      for (const Use& u : task.uses) piece = std::max(piece, piece_[u.object.value]);
      for (const Use& u : task.uses) {
        int32_t& of = piece_[u.object.value];
        if (of == piece || !is_of_weight(program_.object(u.object))) continue;
        of = piece;
        again = true;
      }
    }
  }
}

int32_t Finder::piece_of(const Task& task) const {
  int32_t piece = Pieces::kNone;
  for (const Use& u : task.uses) piece = std::max(piece, piece_[u.object.value]);
  if (piece != Pieces::kNone) return piece;
  for (const Use& u : task.uses) {
    const Object& object = program_.object(u.object);
    if (object.layer != task.layer) continue;
    const auto it = of_role_.find({task.layer, object.role});
    if (it != of_role_.end()) piece = std::max(piece, it->second);
  }
  return piece;
}

Pieces Finder::run() {
  std::vector<int32_t> first;  // of each layer
  for (const Tasks& tasks : layers()) {
    first.push_back(int32_t(out_.layer.size()));
    give(tasks, int32_t(first.size()) - 1);
  }
  spread_over_weights();
  for (const Task& task : program_.tasks()) {
    int32_t& piece = out_.of.emplace_back(Pieces::kNone);
    if (task.layer < 0) continue;
    piece = piece_of(task);
    if (piece == Pieces::kNone) piece = first[size_t(task.layer)];
  }
  return std::move(out_);
}

}  // namespace

Pieces pieces_of(const Program& program) {
  return Finder(program).run();
}

}  // namespace sluice::core
