// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "chat/chat_template.h"
#include "commands/commands.h"
#include "commands/console.h"
#include "commands/outcome.h"
#include "commands/say.h"
#include "commands/terminal.h"
#include "config/files/load_config.h"
#include "io/file.h"
#include "run/data/data_view.h"
#include "run/inputs/paths.h"
#include "run/inputs/resolve.h"
#include "setup/settle.h"
#include "tokenizer/tokenizer.h"

namespace sluice::core {
namespace fs = std::filesystem;
namespace {

// The configuration without a file: a model's folder, if text is not bytes, and files.
Result<RunConfig> config_of_files(std::vector<std::string> paths, const std::vector<std::string>& settings) {
  std::error_code ignored;
  std::vector<std::string> all{"data.heldout=0"};
  const auto is_model = [&](const std::string& path) {
    return fs::exists(fs::path(path) / "tokenizer.json", ignored) ||
           fs::exists(fs::path(path) / "config.json", ignored);
  };
  if (is_model(paths.front())) {
    all.push_back("model.config=" + paths.front());
    paths.erase(paths.begin());
  }
  all.insert(all.end(), settings.begin(), settings.end());
  SLUICE_ASSIGN(RunConfig config, load_config("", all));
  SLUICE_TRY(check_texts(paths));
  if (paths.empty()) return error("{}: there is no file beside the model's folder", config.model.config);
  for (const std::string& path : paths) config.data.paths.push_back(fs::absolute(path, ignored).string());
  return config;
}

// The vocabulary of a tokenizer alone, in a folder that has no config.json; nothing: there is a model.
Result<std::optional<int64_t>> vocab_of_tokenizer(const RunConfig& config) {
  std::error_code ignored;
  const bool folder = fs::is_directory(config.model.config, ignored);
  if (folder && !fs::exists(fs::path(config.model.config) / "config.json", ignored)) {
    SLUICE_ASSIGN(const Tokenizer tokenizer,
                  Tokenizer::open(fs::path(config.model.config) / "tokenizer.json"));
    return std::optional(tokenizer.vocab());
  }
  return std::optional<int64_t>();
}

// Every place of a kind of finding, in the order of the data.
struct Listing {
  FindingKind kind = FindingKind::NothingLearnt;
  std::vector<std::string> places;

  Findings::Told told() {
    return [this](FindingKind found, const std::string& place) {
      if (found == kind) places.push_back(place);
    };
  }
};

void show_list(const Listing& listing, bool json) {
  if (json) {
    const nlohmann::ordered_json out = {
        {"format", "sluice data list 1"}, {"kind", name_of(listing.kind)}, {"places", listing.places}};
    say_exactly(stdout, out.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n");
    return;
  }
  std::string all;
  for (const std::string& place : listing.places) all += place + "\n";
  show_text(all.empty() ? fmt::format("{}: there is none\n", name_of(listing.kind)) : all);
}

// The variables that templates usually ask for beside messages.
constexpr std::string_view kVariables[] = {"tools",           "documents",       "bos_token",
                                           "eos_token",       "strftime_now",    "date_string",
                                           "enable_thinking", "reasoning_effort"};

// Which template, from where, what it reads, and its text.
Status show_template(const RunConfig& config) {
  const auto tokenizer = tokenizer_of(config);
  if (!tokenizer) return error("--show-template: a model of bytes has no chat template");
  auto date = ChatDate::parse(config.data.date);
  if (!date.ok()) return error_at("data.date", date.error());
  SLUICE_ASSIGN(const ChatTemplate chat,
                ChatTemplate::open(tokenizer->parent_path(), config.data.chat_template, *date,
                                   config.data.template_kwargs));
  std::string reads;
  for (const std::string_view name : kVariables) {
    if (chat.mentions(name)) reads += fmt::format("{}{}", reads.empty() ? "" : ", ", name);
  }
  const AnswerShape answer = chat.answer();
  const auto spelt = [](const std::string& text) { return nlohmann::json(text).dump(); };
  std::string shape = fmt::format("header     {}\nend        {}", spelt(answer.header), spelt(answer.end));
  if (!answer.last_end.empty()) shape += fmt::format("; the last one's {}", spelt(answer.last_end));
  shape += fmt::format("\nthought    {}", answer.thought.empty() ? "none" : spelt(answer.thought));
  if (!answer.unthought.empty())
    shape += fmt::format("; without one {}, which is not learnt", spelt(answer.unthought));
  show_text(fmt::format("template   {}\nfrom       {}\nreads      messages{}{}\nmarks      {}\n{}\n\n",
                        chat.name(), chat.source(), reads.empty() ? "" : ", ", reads,
                        chat.marks() ? "{% generation %}" : "none", shape));
  say_exactly(stdout, chat.text() + "\n");
  return {};
}

Status show_data(const DataRequest& request) {
  if (request.paths.empty()) return error("there is no configuration, and no file to look at");
  std::optional<Listing> listing;
  if (!request.list.empty()) {
    auto kind = parse_finding_kind(request.list);
    if (!kind.ok()) return error_at("--list", kind.error());
    listing = Listing{*kind, {}};
  }
  const bool is_config = request.paths.size() == 1 && fs::path(request.paths[0]).extension() == ".toml";
  SLUICE_ASSIGN(RunConfig config, is_config ? load_config(request.paths[0], request.settings)
                                            : config_of_files(request.paths, request.settings));
  if (config.data.paths.empty()) return error("data.paths is empty: such a run learns random tokens");
  if (!request.html.empty()) SLUICE_TRY(check_output("--html", request.html));
  SLUICE_ASSIGN(const std::optional<int64_t> vocab, vocab_of_tokenizer(config));
  ModelSpec model;
  if (!vocab) {
    SLUICE_ASSIGN(model, resolve_model(config));
  }
  SLUICE_ASSIGN(std::string date, date_of(config));
  config = started(std::move(config), {.date = std::move(date)});
  if (request.show_template) return show_template(config);
  Console console;
  auto view = view_data(config, vocab.value_or(model.vocab), request.rows, console,
                        listing ? listing->told() : Findings::Told());
  console.stop();
  if (listing && !listing->places.empty()) {
    show_list(*listing, request.json);  // also of data that cannot be learnt, which is said behind it
    return view.ok() ? Status() : Status(view.error());
  }
  if (!view.ok()) return view.error();
  const TextRows rows{view->sequence, view->mode == BatchMode::Packed, view->train.longest};
  for (std::string& notice : notices_of_length(model, rows, "train.seq_len"))
    view->warnings.push_back(std::move(notice));
  // Files alone are no run.
  if (!is_config) view->step_notices.clear();
  view->warnings.insert(view->warnings.end(), view->step_notices.begin(), view->step_notices.end());
  if (listing) {
    show_list(*listing, request.json);
  } else if (request.json) {
    say_exactly(stdout, to_json(*view));
  } else {
    show_text(overview(*view));
    say_exactly(stdout, rows_as_text(*view, takes_colours(stdout)));
  }
  if (request.html.empty()) return {};
  SLUICE_TRY(write_file(request.html, to_html(*view)));
  if (!request.json) say("page: {}\n", request.html);
  return {};
}

}  // namespace

Outcome data(const DataRequest& request) {
  return outcome(show_data(request));
}

}  // namespace sluice::core
