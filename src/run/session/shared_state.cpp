// SPDX-License-Identifier: Apache-2.0
#include "run/session/shared_state.h"

#include <algorithm>
#include <map>
#include <memory>
#include <string_view>

#include "checkpoint/checkpoint.h"
#include "lowering/build.h"

namespace sluice::core {
namespace {

BuiltProgram whole_model(const Prepared& p) {
  OptimizerConfig whole = p.optimizer;
  whole.sharded = {};
  return build_flush(p.model, p.numerics, whole);
}

// A process's report of its writing: plain data, which all have of each.
struct Written {
  bool wrote = false;  // false: it has none of the state, or `error` says why
  FileSum sum;
  ErrorKind kind = ErrorKind::Io;
  char error[1024] = {}, tensor[512] = {};  // the tensor that is refused, where it is that
};

template <size_t kSize>
void put(std::string_view text, char (&to)[kSize]) {
  std::copy_n(text.begin(), std::min(text.size(), kSize - 1), to);
}

template <class T>
std::span<std::byte> bytes_of(T& value) {
  return std::as_writable_bytes(std::span(&value, 1));
}

}  // namespace

bool saves_f32(const RunConfig& config) {
  return config.run.export_dtype == "f32";
}

CheckpointLayout saved_layout(const Prepared& p) {
  const Held held = p.model.adapters.any() ? Held::Adapter : Held::Whole;
  return layout_of(p.optimizer.sharded.is() ? whole_model(p) : p.stages.main.model, saves_f32(p.config),
                   held);
}

SharedState::SharedState(const Prepared& p, const Executor& executor)
    : executor_(executor),
      network_(*p.machine.options.network),
      whole_(whole_model(p)),
      state_(layout_of(p.stages.main.model, saves_f32(p.config)).state) {
  std::map<std::string_view, ObjectId> by_name;
  const std::vector<Object>& objects = executor.program().objects();
  for (uint32_t o = 0; o < objects.size(); ++o) by_name[objects[o].name] = ObjectId(o);
  for (const Object& object : whole_.program.objects()) {
    const auto it = by_name.find(object.name);
    own_.push_back(it == by_name.end() ? ObjectId() : it->second);
  }
  owner_.resize(own_.size());
  for (size_t w = 0; w < whole_.params.size(); ++w) {
    const std::vector<int64_t>& owners = p.stages.main.model.params[w].owners;
    for (const ParamObjects::Part& part : whole_.params[w].parts) {
      for (const ObjectId id : part.state) owner_[id.value] = int(owners[part.number]);
      if (part.master.valid()) owner_[part.master.value] = int(owners[part.number]);
    }
  }
}

PartReader SharedState::reader() const {
  auto piece = std::make_shared<std::vector<std::byte>>();
  return [piece, this](const StoredPart& part, int64_t offset,
                       int64_t bytes) -> Result<std::span<const std::byte>> {
    const uint32_t object = part.object.value;
    piece->resize(size_t(bytes));
    if (own_[object].valid()) {
      StoredPart own = part;
      own.object = own_[object];
      SLUICE_TRY(read_part(executor_, own, offset, *piece));
    } else {
      SLUICE_TRY(ask({Request::Read, object, part.offset + offset, bytes}));
      SLUICE_TRY(network_.exchange({}, 0, *piece, owner_[object]));
    }
    return std::span<const std::byte>(*piece);
  };
}

Result<FileSums> SharedState::write(const std::filesystem::path& dir, int64_t step) const {
  std::error_code failure;
  std::string path = std::filesystem::absolute(dir, failure).string();
  if (failure) return error(ErrorKind::Io, "{}: {}", dir.string(), failure.message());
  SLUICE_TRY(ask({Request::Write, 0, 0, int64_t(path.size()), step}));
  SLUICE_TRY(network_.broadcast(std::as_writable_bytes(std::span(path)), 0));
  SLUICE_ASSIGN(FileSums sums, write_with_all(path, step));
  for (const auto& [name, sum] : sums) {
    const std::filesystem::path file = dir / name;
    if (const auto bytes = std::filesystem::file_size(file, failure); failure || int64_t(bytes) != sum.bytes)
      return error(ErrorKind::Io, "{}: process 0 does not see the {} bytes that were written", file.string(),
                   sum.bytes);
  }
  return sums;
}

Result<FileSums> SharedState::write_with_all(const std::filesystem::path& dir, int64_t step) const {
  const int processes = network_.size();
  Written own;
  if (!state_.empty()) {
    const auto sum =
        write_state_file(state_, dir / state_name(network_.rank(), processes), step, reader_of(executor_));
    if (sum.ok()) {
      own.wrote = true;
      own.sum = *sum;
    } else {
      own.kind = sum.error().kind;
      put(sum.message(), own.error);
      put(sum.error().detail("tensor"), own.tensor);
    }
  }
  SLUICE_ASSIGN(const std::vector<Written> all, gathered(network_, own));
  FileSums sums;
  for (int process = 0; process < processes; ++process) {
    const Written& of = all[size_t(process)];
    if (of.error[0] != 0) {
      Error failed = error(of.kind, "process {} of {}: {}", process, processes, of.error);
      if (of.tensor[0] != 0) failed.details.emplace_back("tensor", of.tensor);
      return failed;
    }
    if (of.wrote) sums[state_name(process, processes)] = of.sum;
  }
  return sums;
}

Status SharedState::ask(Request request) const {
  return network_.broadcast(bytes_of(request), 0);
}

Status SharedState::ask_for_update() const {
  return network_.rank() == 0 ? ask({Request::Update, 0, 0, 0}) : Status();
}

Status SharedState::meet(const std::function<Status()>& update) const {
  if (network_.rank() == 0) return ask({Request::GoOn, 0, 0, 0});
  std::vector<std::byte> piece;
  while (true) {
    Request request{};
    SLUICE_TRY(network_.broadcast(bytes_of(request), 0));
    if (request.what == Request::GoOn) return {};
    if (request.what == Request::Update) {
      SLUICE_TRY(update());
      continue;
    }
    if (request.what == Request::Write) {
      std::string path(size_t(request.bytes), '\0');
      SLUICE_TRY(network_.broadcast(std::as_writable_bytes(std::span(path)), 0));
      // Process 0 knows the error, and reports it.
      (void)write_with_all(path, request.step);
      continue;
    }
    // All make the same calls: who has nothing of it sends nothing.
    piece.resize(owner_[request.object] == network_.rank() ? size_t(request.bytes) : 0);
    if (!piece.empty()) SLUICE_TRY(executor_.read(own_[request.object], piece, request.offset));
    SLUICE_TRY(network_.exchange(piece, 0, {}, 0));
  }
}

}  // namespace sluice::core
