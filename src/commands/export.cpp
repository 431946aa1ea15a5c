// SPDX-License-Identifier: Apache-2.0
#include "state/export.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/bytes.h"
#include "base/counts.h"
#include "commands/chat_turns.h"
#include "commands/commands.h"
#include "commands/outcome.h"
#include "commands/say.h"
#include "commands/working.h"
#include "run/passes/folder_defaults.h"

namespace sluice::core {
namespace {

struct WrittenAs {
  std::string_view name;
  std::optional<TensorType> type;
};
constexpr WrittenAs kFormats[] = {
    {"input", std::nullopt}, {"f32", TensorType::F32}, {"bf16", TensorType::BF16}, {"f16", TensorType::F16}};

Result<ExportOptions> options_of(const ExportRequest& request) {
  ExportOptions options;
  const auto at = std::find_if(std::begin(kFormats), std::end(kFormats),
                               [&](const WrittenAs& f) { return f.name == request.dtype; });
  if (at == std::end(kFormats))
    return error("--dtype {}: allowed are input, f32, bf16 and f16", request.dtype);
  options.type = at->type;
  const auto bytes = parse_bytes(request.shard_size);
  if (!bytes.ok()) return error_at("--shard-size", bytes.error());
  options.shard_bytes = *bytes;
  options.best = request.best;
  options.unread = request.drop_unread ? Unread::Drop : Unread::Refuse;
  options.around = request.around;
  return options;
}

std::string names_of(const std::vector<TensorType>& types) {
  std::string out;
  for (const TensorType type : types) {
    for (const WrittenAs& f : kFormats)
      if (f.type == type) out += fmt::format("{}{}", out.empty() ? "" : " and ", f.name);
  }
  return out;
}

// Says so where a checkpoint's template ends answers with a token at which other programs do not stop.
// Without tokenizer or template nobody has learnt turns.
std::string other_end(const std::filesystem::path& checkpoint) {
  std::error_code ignored;
  if (!std::filesystem::exists(checkpoint / "checkpoint.json", ignored)) return {};
  const auto tokenizer = Tokenizer::open(checkpoint / "tokenizer.json");
  if (!tokenizer.ok()) return {};
  const auto turns = ChatTurns::open(checkpoint, *tokenizer, RunConfig(), "");
  const auto defaults = generation_defaults_of(checkpoint);
  if (!turns.ok() || !defaults.ok()) return {};
  return no_end_of_folder(checkpoint, *defaults, tokenizer->id(turns->end()), *tokenizer);
}

void show(const ExportRequest& request, const Exported& done) {
  say("{}: {} in {}, {}, from {}{}\n", request.to, counted(done.parameters, "parameter"),
      names_of(done.types), format_bytes(done.bytes), done.from_masters ? "the master weights of " : "",
      done.from.string());
  if (done.weights.size() <= 2) {
    say("  {}\n", fmt::join(done.weights, ", "));
  } else {
    say("  {} to {}, and their index\n", done.weights.front(), done.weights[done.weights.size() - 2]);
  }
  say("  config.json{}{}\n", done.others.empty() ? "" : ", ", fmt::join(done.others, ", "));
  if (done.others.empty())
    say("  no tokenizer, as none is in {}; programs that read or write text need one beside these files\n",
        done.from.string());
  if (!done.left_out.empty()) {
    say("  left out: {}{}, which the model does not have\n", done.left_out.front(),
        done.left_out.size() == 1
            ? ""
            : fmt::format(" and {}", counted(int64_t(done.left_out.size()) - 1, "more tensor")));
  }
  for (const std::string& notice : done.notices) say("  note: {}\n", notice);
  if (const std::string end = other_end(done.from); !end.empty()) say("  note: {}\n", end);
}

Result<Ending> run(const ExportRequest& request, Requests& asked) {
  SLUICE_ASSIGN(const ExportOptions options, options_of(request));
  asked.heeded = true;
  Working working("reading");
  const auto done = export_model(request.from, request.to, options,
                                 [&](std::string_view what, int64_t done_bytes, int64_t total) -> Status {
                                   if (asked.stop) return error(ErrorKind::Cancelled, "asked to stop");
                                   working.say(fmt::format("{}, MiB", what), done_bytes / kMiB, total / kMiB);
                                   return {};
                                 });
  working.stop();
  if (!done.ok()) {
    if (done.error().kind == ErrorKind::Cancelled) return Ending::Stopped;
    return done.error();
  }
  show(request, *done);
  return Ending::Done;
}

}  // namespace

Outcome export_model(const ExportRequest& request, Requests& asked) {
  return outcome(run(request, asked));
}

}  // namespace sluice::core
