// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/export.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "base/bytes.h"
#include "base/counts.h"
#include "base/printable.h"
#include "checkpoint/store.h"
#include "commands/chat_turns.h"
#include "commands/commands.h"
#include "commands/outcome.h"
#include "commands/say.h"
#include "commands/working.h"
#include "config/files/load_config.h"
#include "io/file.h"
#include "io/model_folder.h"
#include "run/loaded/folder_defaults.h"

namespace sluice::core {
namespace {

struct WrittenAs {
  std::string_view name;
  std::optional<TensorType> type;
};
constexpr WrittenAs kFormats[] = {
    {"input", std::nullopt}, {"f32", TensorType::F32}, {"bf16", TensorType::BF16}, {"f16", TensorType::F16}};

std::string names_of(const std::vector<TensorType>& types) {
  std::string out;
  for (const TensorType type : types) {
    for (const WrittenAs& f : kFormats)
      if (f.type == type) out += fmt::format("{}{}", out.empty() ? "" : " and ", f.name);
  }
  return out;
}

// How the turns of a checkpoint's chats end. Without tokenizer or template nobody has learnt turns.
struct End {
  std::string token;
  int32_t id = -1;
  std::string note;  // where programs do not stop at it; empty: they all do
};
End end_of(const std::filesystem::path& checkpoint) {
  std::error_code ignored;
  if (!std::filesystem::exists(checkpoint / "checkpoint.json", ignored)) return {};
  const auto tokenizer = Tokenizer::open(checkpoint / "tokenizer.json");
  if (!tokenizer.ok()) return {};
  const auto turns = ChatTurns::open(checkpoint, *tokenizer, RunConfig(), {});
  const auto defaults = generation_defaults_of(checkpoint);
  const auto settings = special_tokens_of(checkpoint);
  if (!turns.ok() || !defaults.ok() || !settings.ok()) return {};
  End end{turns->end(), tokenizer->id(turns->end()), {}};
  if (end.id < 0) return end;
  end.note = no_end_of_folder(checkpoint, *defaults, end.id, *tokenizer);
  // It takes eos_token of tokenizer_config.json, and tokens that it knows by their text.
  constexpr std::string_view kKnown[] = {"<|im_end|>",        "<|eot_id|>",    "<|eom_id|>",      "<|end|>",
                                         "<end_of_turn>",     "<|endoftext|>", "<|end_of_text|>", "</s>",
                                         "<|return|>",        "<|call|>",      "<EOT>",           "<eos>",
                                         "<end_of_utterance>"};
  const bool known = std::find(std::begin(kKnown), std::end(kKnown), end.token) != std::end(kKnown);
  if (end.note.empty() && !known && settings->eos != end.token)
    end.note = fmt::format(
        "answers end with {}, at which llama.cpp does not stop by itself, as eos_token of "
        "tokenizer_config.json is "
        "{}; --end-token writes {} there",
        end.token, settings->eos.value_or("none"), end.token);
  return end;
}

// The tokenizer's files with the end of a turn as eos_token.
Result<std::map<std::string, std::string>> with_end_token(const std::filesystem::path& from) {
  const End end = end_of(from);
  if (end.id < 0)
    return error("--end-token: {} is no checkpoint with a chat template whose turns end with a token",
                 from.string());
  std::map<std::string, std::string> texts;
  std::error_code ignored;
  for (const char* name : {"tokenizer_config.json", "special_tokens_map.json"}) {
    const bool first = texts.empty();
    if (!std::filesystem::exists(from / name, ignored) && !first) continue;
    nlohmann::ordered_json config = nlohmann::ordered_json::object();
    if (std::filesystem::exists(from / name, ignored)) {
      SLUICE_ASSIGN(const std::string text, read_file(from / name));
      config = nlohmann::ordered_json::parse(text, nullptr, false);
    }
    if (!config.is_object()) return error("{}: it is no JSON object", (from / name).string());
    config["eos_token"] = end.token;
    texts[name] = config.dump(2) + "\n";
  }
  return texts;
}

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
  options.without = request.without;
  options.merged = request.merged;
  options.experts_in_one = request.layout == "peft5";
  if (!options.experts_in_one && request.layout != "folder")
    return error("--layout {}: allowed are folder and peft5", request.layout);
  if (request.end_token) options.texts = with_end_token;
  return options;
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
  say("  {}{}{}\n", done.config, done.others.empty() ? "" : ", ", fmt::join(done.others, ", "));
  if (done.merge) {
    const MergeLoss& m = *done.merge;
    say("  {} with an adapter; rounding takes more than half of the change of {} of them ({:.1f} %), in the "
        "median {:.2g} of it{}\n",
        counted(m.tensors, "tensor"), m.lost, 100 * double(m.lost) / double(std::max<int64_t>(1, m.tensors)),
        m.median, done.types == std::vector{TensorType::F32} ? "" : "; --dtype f32 keeps it");
  }
  if (done.others.empty() && done.config == kConfigName)
    say("  no tokenizer, as none is in {}; programs that read or write text need one beside these files\n",
        done.from.string());
  if (!done.left_out.empty()) {
    say("  left out: {}{}, which the model does not have\n", done.left_out.front(),
        done.left_out.size() == 1
            ? ""
            : fmt::format(" and {}", counted(int64_t(done.left_out.size()) - 1, "more tensor")));
  }
  for (const std::string& notice : done.notices) say("  note: {}\n", printable_message(notice));
  const End end = end_of(done.from);
  if (!end.note.empty() && !request.end_token) say("  note: {}\n", end.note);
}

// The folder of the base of an adapter; empty: a model is exported.
Result<std::filesystem::path> base_of(const ExportRequest& request) {
  SLUICE_ASSIGN(const std::filesystem::path folder, folder_to_read(request.from, request.best));
  if (is_adapter_folder(folder)) return base_of_adapter(folder, request.base);
  if (request.base.empty()) return std::filesystem::path();
  return error("--base {}: {} is a model by itself, not an adapter of one", request.base, folder.string());
}

Result<Ending> run(const ExportRequest& request, Requests& asked) {
  SLUICE_ASSIGN(ExportOptions options, options_of(request));
  SLUICE_ASSIGN(options.base, base_of(request));
  asked.stop_is_handled = true;
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
