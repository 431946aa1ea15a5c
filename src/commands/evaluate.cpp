// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/counts.h"
#include "base/stopwatch.h"
#include "checkpoint/store.h"
#include "commands/commands.h"
#include "commands/console.h"
#include "commands/evaluate_each.h"
#include "commands/outcome.h"
#include "commands/say.h"
#include "config/files/load_config.h"
#include "dataset/byte_tokenizer.h"
#include "draw/axis.h"
#include "io/file.h"
#include "run/data/data.h"
#include "run/inference/evaluator.h"
#include "run/inputs/paths.h"
#include "run/inputs/resolve.h"
#include "run/prepare/checks.h"
#include "run/prepare/manifest.h"
#include "setup/settle.h"

namespace sluice::core {
namespace fs = std::filesystem;
namespace {

// Rows of more tokens are asked for: short texts would be padding.
constexpr int64_t kMostRowTokens = 2048;

// The model in a folder, which may be an adapter with its base.
std::vector<std::string> model_in(const EvaluateRequest& request, const fs::path& folder) {
  std::vector<std::string> out{"model.config=" + folder.string(), "model.weights=" + folder.string()};
  if (!request.base.empty()) out.push_back("adapter.base=" + request.base);
  return out;
}

// Tokens that texts of it may have; 0: nobody says.
Result<int64_t> context_in(const EvaluateRequest& request, const fs::path& folder) {
  SLUICE_ASSIGN(const RunConfig config, load_config("", model_in(request, folder)));
  SLUICE_ASSIGN(const ModelSpec model, resolve_model(config));
  return positions_of(model);
}

Result<RunConfig> evaluation_config(const EvaluateRequest& request, const fs::path& folder) {
  int64_t seq_len = request.seq_len;
  if (seq_len == 0) {
    SLUICE_ASSIGN(const int64_t context, context_in(request, folder));
    seq_len = context == 0 ? kMostRowTokens : std::min(context, kMostRowTokens);
  }
  std::vector<std::string> settings = model_in(request, folder);
  settings.emplace_back("data.heldout=0");
  settings.insert(settings.end(), request.settings.begin(), request.settings.end());
  for (const char* key : {"train.seq_len", "train.tokens_per_step"})
    settings.push_back(fmt::format("{}={}", key, seq_len));
  SLUICE_ASSIGN(RunConfig config, load_config("", settings));
  SLUICE_TRY(expect_read(request.settings, "sluice evaluate", keys_read({"data.", "shape.chunk_tokens"})));
  for (const std::string& path : request.files) {
    std::error_code ignored;
    config.data.paths.push_back(fs::absolute(path, ignored).lexically_normal().string());
  }
  return config;
}

// As the run at `run` would go on from its newest checkpoint: with its data, and its shape of a step, whose
// rounding is part of its losses.
Result<RunConfig> own_config(const EvaluateRequest& request, const fs::path& folder, const fs::path& run) {
  const auto newest = latest_checkpoint(run / "checkpoints");
  if (!newest) return error("{}: there is no checkpoint", run.string());
  std::vector<std::string> settings = model_in(request, folder);
  settings.push_back("run.resume=" + newest->string());
  settings.insert(settings.end(), request.settings.begin(), request.settings.end());
  SLUICE_ASSIGN(RunConfig config, load_config((run / "config.toml").string(), settings));
  SLUICE_TRY(expect_read(request.settings, "sluice evaluate",
                         keys_read({"data.", "shape.chunk_tokens", "eval.rows"})));
  if (config.chosen_objective().compares != Compares::Nothing)
    return error(
        "{}: its held-out loss is that of train.objective = {}, which metrics.jsonl has; files give the loss "
        "of text",
        run.string(), config.train.objective);
  SLUICE_ASSIGN(const RunFacts facts, facts_of(config));
  return cut_as(std::move(config), facts.shape);
}

// Evaluated text, and the kind of its rows.
struct EvaluatedRows {
  BatchSource* rows;
  int64_t seq_len;         // of each
  int64_t count;           // of the rows
  double bytes_per_token;  // 0: unknown
  std::vector<std::string> names;
  bool packed;
  int64_t head_tokens = 0;  // 0: chosen
  RunData data;
};

// A row that so many tokens fill.
int64_t shorter_row(int64_t tokens) {
  constexpr int64_t kLeastRowTokens = 16;
  return std::max(kLeastRowTokens, int64_t(std::bit_ceil(uint64_t(tokens))));
}

// Files; where they are less than a row, in a shorter one.
Result<EvaluatedRows> open_files(const EvaluateRequest& request, const RunConfig& config, int64_t vocab,
                                 Console& console) {
  SLUICE_ASSIGN(RunData data, open_data(config, vocab, console, DataUse::Evaluate));
  const int64_t shorter = shorter_row(data.train_documents.tokens);
  if (request.seq_len == 0 && shorter < config.train.seq_len) {
    SLUICE_ASSIGN(data, open_data(in_rows(config, shorter, shorter), vocab, console, DataUse::Evaluate));
  }
  BatchSource* rows = data.train.get();
  return EvaluatedRows{.rows = rows,
                       .seq_len = rows->sequence(),
                       .count = rows->epoch_rows(),
                       .bytes_per_token = data.train_bytes_per_token,
                       .names = data.names,
                       .packed = rows->packed(),
                       .data = std::move(data)};
}

// The held-out rows of a run, chosen as the run does.
Result<EvaluatedRows> open_held_out(const RunConfig& config, int64_t vocab, Console& console) {
  SLUICE_ASSIGN(RunData data, open_data(config, vocab, console));
  if (data.heldout == nullptr)
    return error("{}: the run holds no text out (data.heldout = 0); name files, directories or patterns",
                 config.run.dir);
  SLUICE_ASSIGN(const CheckpointInfo info, read_checkpoint_info(config.checkpoint()));
  const std::string before = value_of(info.manifest, "data.content");
  const auto& earlier = data.contents_before;
  if (before != data.content && std::find(earlier.begin(), earlier.end(), before) == earlier.end())
    data.notices.emplace_back("the data is not what the run learnt from: its held-out rows may be others");
  BatchSource* rows = data.heldout.get();
  return EvaluatedRows{.rows = rows,
                       .seq_len = rows->sequence(),
                       .count = count_rows(*rows, config.eval.rows).rows,
                       .bytes_per_token = data.heldout_bytes_per_token,
                       .names = data.heldout_names,
                       .packed = packs_documents(config),
                       .head_tokens = config.shape.head_tokens,
                       .data = std::move(data)};
}

// Lines, each for itself.
Result<EachTexts> open_each(const EvaluateRequest& request, const RunConfig& config, int64_t vocab) {
  const auto tokenizer = tokenizer_of(config);
  if (!tokenizer && vocab > ByteTokenizer::kVocab) return no_tokenizer(config, vocab, "--each");
  const EachRequest lines{.path = request.each,
                          .tokenizer = tokenizer ? tokenizer->string() : std::string(),
                          .seq_len = config.train.seq_len,
                          .vocab = vocab,
                          .cut_prompts = request.cut_prompts};
  return read_each(lines);
}

struct Evaluated {
  std::string model;  // the folder
  int64_t seq_len = 0;
  double bytes_per_token = 0;  // 0: unknown
  Evaluation losses;
  std::vector<std::string> names;  // of losses.paths
  double seconds = 0;

  double bits_per_byte() const { return losses.loss() / std::log(2.0) / bytes_per_token; }
};

std::string as_json(const Evaluated& e) {
  const RowLoss all = e.losses.total();
  nlohmann::ordered_json out = {{"format", "sluice evaluate 1"},
                                {"model", e.model},
                                {"loss", all.mean()},
                                {"perplexity", std::exp(all.mean())}};
  if (e.bytes_per_token > 0) out["bits_per_byte"] = e.bits_per_byte();
  out["accuracy"] = double(all.hits) / double(all.targets);
  if (const auto error = e.losses.standard_error()) out["standard_error"] = *error;
  out["tokens"] = all.targets;
  out["rows"] = e.losses.rows.size();
  out["seq_len"] = e.seq_len;
  out["files"] = nlohmann::ordered_json::array();
  for (size_t p = 0; p < e.losses.paths.size(); ++p) {
    const RowLoss& path = e.losses.paths[p];
    if (path.targets == 0) continue;
    out["files"].push_back({{"path", e.names[p]},
                            {"loss", path.mean()},
                            {"accuracy", double(path.hits) / double(path.targets)},
                            {"tokens", path.targets}});
  }
  return out.dump(2) + "\n";
}

std::string describe(const Evaluated& e) {
  const RowLoss all = e.losses.total();
  const auto error = e.losses.standard_error();
  std::string out =
      fmt::format("loss           {:.6f} nats a token{}\nperplexity     {:.6g}\n", all.mean(),
                  error ? fmt::format(", standard error {:.2g}", *error) : "", std::exp(all.mean()));
  if (e.bytes_per_token > 0) out += fmt::format("bits per byte  {:.4f}\n", e.bits_per_byte());
  out += fmt::format("right          {:.2f} % of the tokens are those that the model finds likeliest\n",
                     100 * double(all.hits) / double(all.targets));
  out += fmt::format("of             {} in {} of {}\n", counted(all.targets, "token"),
                     counted(int64_t(e.losses.rows.size()), "row"), grouped(double(e.seq_len), 0));
  for (size_t p = 0; p < e.losses.paths.size(); ++p) {
    const RowLoss& path = e.losses.paths[p];
    if (path.targets > 0)
      out += fmt::format("  {:.6f} of {} of {}\n", path.mean(), counted(path.targets, "token"), e.names[p]);
  }
  return out;
}

void tell_cost(const Evaluated& e, const Evaluator& evaluator, const BytesByTier& caps) {
  const BytesByTier& peak = evaluator.peak_memory();
  say(stderr, "{} in {:.2f} s; memory  device {} of {}, host {} of {}\n",
      counted(int64_t(e.losses.rows.size()) * e.seq_len, "token"), e.seconds,
      format_bytes(fullest_device(peak)), format_bytes(caps[kDevice]), format_bytes(peak[kHost]),
      format_bytes(caps[kHost]));
}

// Lines by themselves, or files.
Status check_asked(const EvaluateRequest& request) {
  if (request.each.empty() || request.files.empty()) return {};
  return error("--each {} and {}: allowed is one of them; --each evaluates lines of JSON by themselves",
               request.each, request.files.front());
}

// Whose own held-out text is asked for; empty: files are.
Result<fs::path> run_asked_for(const EvaluateRequest& request) {
  if (!request.files.empty() || !request.each.empty()) return fs::path();
  std::error_code ignored;
  if (!fs::exists(fs::path(request.model) / "config.toml", ignored))
    return error(
        "{} is not the directory of a run, which has held-out text of its own; name files, directories or "
        "patterns",
        request.model);
  if (request.seq_len > 0)
    return error(
        "--seq-len {}: the run's own held-out text is in rows of train.seq_len; name files for others",
        request.seq_len);
  return fs::path(request.model);
}

// A model in memory, and how it is asked.
struct Opened {
  std::unique_ptr<EvaluatorPlan> plan;
  std::unique_ptr<Evaluator> evaluator;

  int64_t sequences() const { return plan->shape.sequences(); }
};

Result<Opened> open_evaluator(const RunConfig& config, const Machine& machine, EvaluatorSetup setup,
                              Console& console) {
  SLUICE_ASSIGN(setup.numerics, resolve_numerics(config, machine));
  setup.chunk_tokens = config.shape.chunk_tokens;
  setup.caps = machine.caps_here(config.caps);
  console.progress({"planning"});
  SLUICE_ASSIGN(EvaluatorPlan plan, plan_evaluator(std::move(setup), machine.profile));
  Opened out{std::make_unique<EvaluatorPlan>(std::move(plan)), nullptr};
  SLUICE_ASSIGN(out.evaluator, Evaluator::open(*out.plan, machine, weights_from(config), console));
  return out;
}

// Passes over rows, with what is told of them.
EvaluationPass passes(const Opened& opened, int64_t rows, Console& console) {
  return [&opened, rows, &console, done = int64_t{0}](const Rows& part) mutable {
    console.progress({"evaluating rows", std::min(rows, done), rows});
    done += opened.sequences();
    return opened.evaluator->evaluate(part);
  };
}

Result<Ending> run_each(const EvaluateRequest& request, const RunConfig& config, ModelSpec model,
                        const Notices& notices, const Machine& machine, Requests& asked) {
  Console console;
  SLUICE_ASSIGN(EachTexts each, open_each(request, config, model.vocab));
  // Where they are less than a row, in a shorter one.
  const int64_t shorter = request.seq_len == 0 ? shorter_row(each.tokens()) : config.train.seq_len;
  const int64_t seq_len = std::min(shorter, config.train.seq_len);
  for (const std::string& notice : notices) say(stderr, "{}\n", notice);
  std::vector<TextScore> scores(each.texts.size());
  const CountedTexts source(std::move(each.texts), seq_len);
  const int64_t rows = source.epoch_rows();
  SLUICE_ASSIGN(
      const Opened opened,
      open_evaluator(config, machine,
                     {.model = std::move(model), .seq_len = seq_len, .packed = true, .rows = rows}, console));
  asked.stop_is_handled = true;
  const Status status = evaluate_each(
      source, 0, rows, [&](int64_t) { return opened.sequences(); }, passes(opened, rows, console),
      [&] { return asked.stop.load(); },
      [&](int64_t row, const Rows&, int64_t at, const TokenLosses& losses) {
        for (const auto& [text, score] : source.scores(row, at, losses)) scores[text] = score;
      });
  console.stop();
  if (!status.ok() && status.error().kind == ErrorKind::Cancelled) return Ending::Stopped;
  SLUICE_TRY(status);
  if (each.cut > 0) say(stderr, "{} lost the beginning of their prompts\n", counted(each.cut, "line"));
  say("{}", each_as_json(each, scores));
  return Ending::Done;
}

Result<Ending> run_evaluation(const EvaluateRequest& request, Requests& asked) {
  SLUICE_TRY(check_asked(request));
  SLUICE_TRY(check_texts(request.files));
  SLUICE_ASSIGN(const fs::path folder, folder_to_read(request.model, request.best));
  SLUICE_ASSIGN(const fs::path run, run_asked_for(request));
  SLUICE_ASSIGN(RunConfig config,
                run.empty() ? evaluation_config(request, folder) : own_config(request, folder, run));
  SLUICE_ASSIGN(ModelSpec model, resolve_model(config));
  SLUICE_ASSIGN(const Machine machine, resolve_machine(config, ""));
  if (!machine.traits().runs_models)
    return error("run.backend = {}: no model runs on a simulated machine", machine.backend->name);
  SLUICE_ASSIGN(Notices checked, check_early(config, machine, model));
  Notices notices = config.notices;
  add_notices(std::move(checked), notices);
  notices.insert(notices.end(), model.notices.begin(), model.notices.end());
  if (!request.each.empty()) return run_each(request, config, std::move(model), notices, machine, asked);
  SLUICE_ASSIGN(std::string date, date_of(config));
  config = started(std::move(config), {.date = std::move(date)});
  Console console;
  SLUICE_ASSIGN(EvaluatedRows subject, run.empty() ? open_files(request, config, model.vocab, console)
                                                   : open_held_out(config, model.vocab, console));
  console.stop();
  const TextRows texts{subject.seq_len, subject.packed, subject.data.train_documents.longest};
  for (std::string& notice : notices_of_length(model, texts, "tokens of a row"))
    subject.data.notices.push_back(std::move(notice));
  for (const auto* of : {&notices, &subject.data.notices}) {
    for (const std::string& notice : *of) say(stderr, "{}\n", notice);
  }
  SLUICE_ASSIGN(const Opened opened, open_evaluator(config, machine,
                                                    {.model = std::move(model),
                                                     .seq_len = subject.seq_len,
                                                     .packed = subject.packed,
                                                     .rows = subject.count,
                                                     .head_tokens = subject.head_tokens},
                                                    console));
  asked.stop_is_handled = true;
  const Stopwatch watch;
  auto losses = evaluate_rows(
      *subject.rows, subject.count, [&](int64_t) { return opened.sequences(); },
      passes(opened, subject.count, console), [&] { return asked.stop.load(); });
  console.stop();
  if (!losses.ok() && losses.error().kind == ErrorKind::Cancelled) return Ending::Stopped;
  if (!losses.ok()) return losses.error();
  Evaluated out{folder.string(),    subject.seq_len,          subject.bytes_per_token,
                std::move(*losses), std::move(subject.names), watch.seconds()};
  say("{}", request.json ? as_json(out) : describe(out));
  tell_cost(out, *opened.evaluator, config.caps);
  return Ending::Done;
}

}  // namespace

Outcome evaluate(const EvaluateRequest& request, Requests& asked) {
  return outcome(run_evaluation(request, asked));
}

}  // namespace sluice::core
