// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/stopwatch.h"
#include "commands/chat_turns.h"
#include "commands/commands.h"
#include "commands/console.h"
#include "commands/generated_text.h"
#include "commands/outcome.h"
#include "commands/say.h"
#include "config/config.h"
#include "generate/defaults.h"
#include "io/file.h"
#include "model/families/families.h"
#include "run/cached_model.h"
#include "run/checks.h"
#include "run/resolve.h"
#include "tokenizer/tokenizer.h"
#include "tokens/byte_tokenizer.h"

namespace sluice::core {
namespace fs = std::filesystem;
namespace {

constexpr int64_t kDefaultTokens = 256;
// Capacities are multiples of it, so that prompts of about the same length share plans.
constexpr int64_t kCapacityGrain = 64;

// A checkpoint's folder, or a preset.
struct Source {
  fs::path folder;  // empty: a preset
  GenerationDefaults defaults;
  std::optional<Tokenizer> tokenizer;  // none: text is bytes
  std::optional<ChatTurns> turns;      // what prompts are; none: text to go on from
};

Result<std::string> read_if_there(const fs::path& path) {
  std::error_code ignored;
  if (!fs::exists(path, ignored)) return std::string();
  return read_file(path, kMostConfigBytes);
}

Result<Source> open_source(const std::string& model) {
  Source source;
  std::error_code ignored;
  if (!fs::is_directory(model, ignored)) {
    if (!preset_meant_by(model).empty()) return source;
    std::string presets;
    for (const std::string& name : model_presets()) presets += (presets.empty() ? "" : ", ") + name;
    return error(ErrorKind::NotFound, "{}: neither the folder of a model nor a preset, of which there are {}",
                 model, presets);
  }
  source.folder = model;
  SLUICE_ASSIGN(const std::string config, read_if_there(source.folder / "config.json"));
  SLUICE_ASSIGN(const std::string generation, read_if_there(source.folder / "generation_config.json"));
  auto defaults = parse_generation_defaults(config, generation);
  if (!defaults.ok()) return error_at(model, defaults.error());
  source.defaults = std::move(*defaults);
  const fs::path tokenizer = source.folder / "tokenizer.json";
  if (fs::exists(tokenizer, ignored)) {
    SLUICE_ASSIGN(source.tokenizer, Tokenizer::open(tokenizer));
  }
  return source;
}

Result<RunConfig> config_of(const GenerateRequest& request, const Source& source) {
  std::vector<std::string> settings;
  if (source.folder.empty()) {
    settings.push_back("model.preset=" + request.model);
  } else {
    settings.push_back("model.config=" + (source.folder / "config.json").string());
    settings.push_back("model.weights=" + source.folder.string());
  }
  settings.insert(settings.end(), request.settings.begin(), request.settings.end());
  return load_config("", settings);
}

Status open_turns(const GenerateRequest& request, const RunConfig& config, Source& source) {
  if (source.folder.empty())
    return error("--chat: {} is a preset, which has no chat template; name the folder of a model",
                 request.model);
  if (!source.tokenizer) return error("--chat: {} has no tokenizer.json", request.model);
  auto turns = ChatTurns::open(source.folder, *source.tokenizer, config, request.system);
  if (!turns.ok()) return error_at("--chat", turns.error());
  source.turns = std::move(*turns);
  return {};
}

SamplingRule rule_of(const GenerateRequest& r, SamplingRule rule) {
  rule.temperature = r.temperature.value_or(rule.temperature);
  rule.top_k = r.top_k.value_or(rule.top_k);
  rule.top_p = r.top_p.value_or(rule.top_p);
  rule.min_p = r.min_p.value_or(rule.min_p);
  rule.repetition_penalty = r.repetition_penalty.value_or(rule.repetition_penalty);
  rule.seed = uint64_t(r.seed.value_or(int64_t(rule.seed)));
  return rule;
}

// The lines of a file, without those that are empty; of JSON lines what their "prompt" says.
Result<std::vector<std::string>> prompts_of_file(const std::string& path) {
  std::string text;
  if (path == "-") {
    text.assign(std::istreambuf_iterator<char>(std::cin), {});
  } else {
    SLUICE_ASSIGN(text, read_file(path));
  }
  std::vector<std::string> prompts;
  int64_t number = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    std::string line = text.substr(begin, end - begin);
    begin = end + 1;
    ++number;
    if (line.ends_with('\r')) line.pop_back();
    if (line.empty()) continue;
    if (path.ends_with(".jsonl")) {
      const auto object = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
      if (!object.is_object() || !object.contains("prompt") || !object["prompt"].is_string())
        return error("{}: line {} is no JSON object with a string \"prompt\"", path, number);
      line = object["prompt"].get<std::string>();
    }
    prompts.push_back(std::move(line));
  }
  if (prompts.empty()) return error("{}: there is no prompt in it", path);
  return prompts;
}

Result<std::vector<int32_t>> encode(const Source& source, const std::string& text, int64_t vocab) {
  std::vector<int32_t> ids;
  if (source.turns) {
    SLUICE_ASSIGN(ids, source.turns->encode(text));
  } else if (source.tokenizer) {
    SLUICE_TRY(source.tokenizer->encode(text, /*special=*/true, ids));
  } else {
    ids = ByteTokenizer::encode(text);
  }
  for (const int32_t id : ids) {
    if (id >= vocab)
      return error("its tokenizer makes token {} of it, which the model's vocabulary of {} lacks", id, vocab);
  }
  return ids;
}

struct Work {
  std::vector<std::string> prompts;  // as given
  std::vector<GenerationTask> tasks;
};

// How many tokens may follow a prompt of so many.
Result<int64_t> tokens_after(const GenerateRequest& request, const GenerationDefaults& defaults,
                             int64_t prompt) {
  const int64_t context = defaults.context;
  const int64_t wanted = request.tokens.value_or(defaults.new_tokens.value_or(kDefaultTokens));
  if (wanted < 1) return error("--tokens {}: allowed are whole numbers from 1", wanted);
  if (context == 0 || prompt + wanted <= context) return wanted;
  if (prompt >= context) {
    return error(
        "it has {} tokens, and the model's context holds {}, with at least one after them; shorten it",
        prompt, context);
  }
  if (!request.tokens) return context - prompt;
  return error(
      "its {} tokens and the {} of --tokens are more than the {} of the model's context; up to {} may "
      "follow",
      prompt, wanted, context, context - prompt);
}

Result<GenerationTask> task_of(const GenerateRequest& request, const Source& source, const std::string& text,
                               int64_t vocab) {
  GenerationTask task;
  SLUICE_ASSIGN(task.prompt, encode(source, text, vocab));
  if (task.prompt.empty()) return error("it is empty; there is nothing to go on from");
  SLUICE_ASSIGN(task.most_tokens, tokens_after(request, source.defaults, int64_t(task.prompt.size())));
  return task;
}

// Tokens that a text may have; 0: any number. Frequencies that change as a text grows are those of a text
// that fits the context that they were trained for.
int64_t context_of(const ModelSpec& model, int64_t context) {
  if (model.rope.kind != Rope::Dynamic) return context;
  return context == 0 ? model.rope.original_context : std::min(context, model.rope.original_context);
}

Result<Work> work_of(const GenerateRequest& request, const Source& source, int64_t vocab) {
  Work work;
  work.prompts = request.prompts;
  if (!request.file.empty()) {
    SLUICE_ASSIGN(const std::vector<std::string> more, prompts_of_file(request.file));
    work.prompts.insert(work.prompts.end(), more.begin(), more.end());
  }
  if (work.prompts.empty())
    return error("there is no prompt: --prompt TEXT or --file FILE says what to go on from");
  for (size_t i = 0; i < work.prompts.size(); ++i) {
    auto task = task_of(request, source, work.prompts[i], vocab);
    if (!task.ok()) return error_at(fmt::format("prompt {}", i + 1), task.error());
    work.tasks.push_back(std::move(*task));
  }
  return work;
}

struct Ends {
  std::vector<int32_t> tokens;
  std::vector<std::string> strings;
};

// The end of a turn is a token of most models; of one that spells it, a string.
Ends ends_of(const GenerateRequest& request, const Source& source) {
  Ends ends{{}, request.stop};
  for (const int64_t token : request.stop_tokens) ends.tokens.push_back(int32_t(token));
  if (request.ignore_stop_tokens) return ends;
  const auto& strings = source.defaults.stop_strings;
  ends.strings.insert(ends.strings.end(), strings.begin(), strings.end());
  const auto& folder = source.defaults.stop_tokens;
  ends.tokens.insert(ends.tokens.end(), folder.begin(), folder.end());
  if (!source.turns || source.turns->end().empty()) return ends;
  const int32_t end = source.tokenizer->id(source.turns->end());
  end >= 0 ? ends.tokens.push_back(end) : ends.strings.push_back(source.turns->end());
  return ends;
}

// A model without tokenizer is given bytes; any of its tokens may come back.
Decode decode_of(const Source& source) {
  if (!source.tokenizer)
    return
        [](std::span<const int32_t> tokens) -> Result<std::string> { return ByteTokenizer::decode(tokens); };
  return [&tokenizer = *source.tokenizer](std::span<const int32_t> tokens) {
    return tokenizer.decode(tokens, /*skip_special=*/true);
  };
}

Result<GenerationSetup> setup_of(const GenerateRequest& request, const RunConfig& config,
                                 const Machine& machine, ModelSpec model, const Work& work) {
  GenerationSetup setup;
  setup.model = std::move(model);
  SLUICE_ASSIGN(setup.numerics, resolve_numerics(config, machine));
  setup.rows = std::min<int64_t>(request.batch, std::max<int64_t>(1, int64_t(work.tasks.size())));
  for (const GenerationTask& task : work.tasks)
    setup.capacity = std::max(setup.capacity, int64_t(task.prompt.size()) + task.most_tokens);
  setup.prompt_tokens = request.prompt_tokens;
  setup.capacity = align_up(std::max(setup.capacity, setup.prompt_tokens), kCapacityGrain);
  setup.caps = machine.caps_here(config.caps);
  return setup;
}

std::string described(const GenerationPlans& plans) {
  const GenerationSetup& s = plans.setup;
  const auto [texts, each] = std::pair{s.rows, s.capacity};
  return fmt::format("model    {}, {}\ntexts    {} at once of up to {} tokens, prompts {} tokens at a time\n",
                     text(s.model), name_of(s.numerics.compute), texts, each, s.prompt_tokens) +
         fmt::format("\na token of each text: {:.1f} tokens/s predicted\n{}",
                     1e9 * double(texts) / std::max(plans.tokens.plan.makespan_ns, 1.0),
                     explain(plans.tokens.model.program, plans.tokens.plan)) +
         fmt::format("\na pass over prompts\n{}", explain(plans.prompts.model.program, plans.prompts.plan));
}

void summarize(const GenerationCounts& counts, CachedModel& model, const BytesByTier& caps) {
  const auto rate = [](int64_t tokens, double s) { return s > 0 ? double(tokens) / s : 0.0; };
  say(stderr,
      "prompts {} tokens in {:.2f} s, {:.1f} tokens/s; text {} tokens, {:.1f} tokens/s in {} passes\n",
      counts.prompt_tokens, counts.prompt_s, rate(counts.prompt_tokens, counts.prompt_s), counts.new_tokens,
      rate(counts.in_token_passes, counts.token_s), counts.token_passes);
  const BytesByTier& peak = model.peak_memory();
  say(stderr, "memory  device {} of {}, host {} of {}\n", format_bytes(fullest_device(peak)),
      format_bytes(caps[kDevice]), format_bytes(peak[kHost]), format_bytes(caps[kHost]));
}

Result<Ending> run_generation(const GenerateRequest& request, Requests& asked) {
  SLUICE_ASSIGN(Source source, open_source(request.model));
  const SamplingRule rule = rule_of(request, source.defaults.rule);
  SLUICE_TRY(validate(rule));
  SLUICE_ASSIGN(RunConfig config, config_of(request, source));
  SLUICE_ASSIGN(ModelSpec model, resolve_model(config));
  const int64_t vocab = model.vocab;
  source.defaults.context = context_of(model, source.defaults.context);
  if (request.chat) SLUICE_TRY(open_turns(request, config, source));
  Work work;
  if (!request.plan || !request.prompts.empty() || !request.file.empty()) {
    SLUICE_ASSIGN(work, work_of(request, source, vocab));
  } else {
    // Without prompts the plan is for a full batch of what the defaults let them be.
    const int64_t most = source.defaults.new_tokens.value_or(kDefaultTokens);
    work.tasks.assign(size_t(request.batch), {{0}, request.tokens.value_or(most)});
  }
  SLUICE_ASSIGN(const Machine machine, resolve_machine(config, request.machine));
  if (!request.plan && !machine.traits().runs_models) {
    return error("{}: no model runs on a machine that is not here; --plan says how fast it would be there",
                 machine.description);
  }
  SLUICE_TRY(check_early(config, machine));
  Console console;
  for (const std::string& notice : model.notices) console.warned(notice);
  if (!source.defaults.passed_over.empty()) console.warned(source.defaults.passed_over);
  console.progress({"planning"});
  SLUICE_ASSIGN(GenerationSetup setup, setup_of(request, config, machine, std::move(model), work));
  SLUICE_ASSIGN(const GenerationPlans plans, plan_generation(std::move(setup), machine.profile));
  console.stop();
  if (request.plan) {
    say("{}", described(plans));
    return Ending::Done;
  }
  SLUICE_ASSIGN(const auto open, CachedModel::open(plans, machine, config.model.weights,
                                                   uint64_t(config.train.seed), console));
  console.stop();
  asked.heeded = true;
  Ends ends = ends_of(request, source);
  const GenerateOptions options{rule, std::move(ends.tokens)};
  GeneratedText sink({decode_of(source), std::move(ends.strings), request.json}, work.prompts, work.tasks,
                     asked.stop);
  SLUICE_ASSIGN(const GenerationCounts counts, generate(*open, work.tasks, options, sink));
  if (asked.stop) sink.leave();
  summarize(counts, *open, config.caps);
  return asked.stop ? Ending::Stopped : Ending::Done;
}

}  // namespace

Outcome generate(const GenerateRequest& request, Requests& asked) {
  return outcome(run_generation(request, asked));
}

}  // namespace sluice::core
