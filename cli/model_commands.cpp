// SPDX-License-Identifier: Apache-2.0
// Commands about a model, its data and its text.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "interrupt.h"
#include "options.h"

namespace {

void add_estimate(CLI::App& app, int& status) {
  const auto request = std::make_shared<sluice::core::EstimateRequest>();
  CLI::App& estimate = add_command(
      app, "estimate", "say what a model takes: memory, FLOPs, time and cost, with formulas",
      "sluice estimate llama3-8b --machine a100 --seq-len 8k\n"
      "sluice estimate llama3-8b --machine h100 --devices 8 --tokens 15B --price 2.5 --mfu 0.4\n"
      "    hours and cost of 15 billion tokens on 8 cards\n"
      "sluice estimate layers=32,dim=4096,ffn=11008,heads=32,vocab=32000 --machine a100 --device-mem 80GB\n"
      "    a model of which only dimensions are known\n"
      "sluice estimate llama3-8b --machine rtx4090 --plan --host-mem 64GiB --tokens 1B --price 0.4\n"
      "    what Sluice makes of it: speed and cost under these memories, and what fits at most");
  const OptionsOf option{estimate};
  const CLI::Validator whole = number<int64_t>(kWhole), real = number<double>("a number");
  option("MODEL", request->model, model_help() + ", or dimensions (layers=...), or params=52B", "MODEL",
         "Arguments")
      ->required();
  option("--seq-len", request->seq_len, "tokens per sequence", "N", "Batch")->transform(tokens());
  option("--batch", request->batch, "sequences at once on each device", "N", "Batch")->check(whole);
  option("--accumulate", request->accumulate, "such batches per step", "N", "Batch")->check(whole);
  option("--devices", request->devices, "devices that share the work", "N", "Batch")->check(whole);
  option("--tp", request->tp, "devices that share each matrix", "N", "Batch")->check(whole);
  option("--pp", request->pp, "devices that share the layers", "N", "Batch")->check(whole);
  option("--optimizer", request->optimizer, "with number formats: " + joined(sluice::core::names().recipes),
         "OPTIMIZER", "Memory");
  option("--device-mem", request->device_mem, "instead of the card's memory, such as 80GB", "SIZE", "Memory");
  CLI::Option* plan =
      estimate
          .add_flag("--plan", request->plan,
                    "also plan under these memories: speed, cost, largest model, longest sequence")
          ->group("Plans");
  option("--host-mem", request->host_mem, "host memory beside the device's, such as 64GiB,128GiB",
         "SIZE[,SIZE]", "Plans")
      ->needs(plan);
  option("--tokens", request->tokens, "tokens to evaluate or train on: 100M, 3B, 1.4T", "AMOUNT", "Time");
  option("--mfu", request->mfu, "share of the peak at which hours are computed; 1 unless given", "X", "Time")
      ->check(real);
  option("--price", request->price, "USD per device and hour", "USD", "Time")->check(real);
  CLI::Option* speed =
      option("--tokens-per-s", request->tokens_per_s, "measured, of all devices: for MFU", "X", "Time")
          ->check(real);
  option("--step-s", request->step_s, "the same as seconds of a step", "X", "Time")
      ->check(real)
      ->excludes(speed);
  option("--mesh", request->mesh,
         "when FSDP x TP is bound by compute: fsdp=16/2,tp=4/1,link=180e9,peak=460e12 (devices/axes)", "MESH",
         "Machine");
  option(
      "--machine", request->machine,
      "what depends on one is left out without: a name that sluice machines lists, or a machine file (.toml)",
      "MACHINE", "Machine");
  option("--set", request->settings,
         "machine.KEY=VALUE, a key of a machine file; with --plan also keys of the run; may be repeated",
         "KEY=VALUE", "Machine")
      ->allow_extra_args(false);
  option("--section", request->section, "only these parts of the page: parameters,memory", "NAME[,NAME]",
         "Output");
  estimate.get_option("--mfu")->needs(estimate.get_option("--machine"));
  estimate.add_flag("--json", request->json, "print numbers and formulas for programs")->group("Output");
  option("--html", request->html, "write one self-contained page to this file, with the picture", "FILE",
         "Output");
  estimate.callback([=, &status] { status = report(sluice::core::estimate(*request)); });
}

void add_models(CLI::App& app, int& status) {
  const auto request = std::make_shared<sluice::core::ModelsRequest>();
  CLI::App& command = add_command(app, "models", "list the families of models that load",
                                  "sluice models\n"
                                  "sluice models lfm2\n"
                                  "    of one model_type of a config.json");
  const OptionsOf option{command};
  option("FAMILY", request->family, "only this model_type", "TYPE", "Arguments");
  command.add_flag("--json", request->json, "print JSON")->group("Output");
  command.callback([=, &status] { status = report(sluice::core::models(*request)); });
}

void add_data(CLI::App& app, int& status) {
  const auto request = std::make_shared<sluice::core::DataRequest>();
  CLI::App& command =
      add_command(app, "data", "show what a run would learn, before it runs",
                  "sluice data chat.toml\n"
                  "sluice data chat.toml --rows 5 --html data.html\n"
                  "sluice data chat.toml --list nothing-learnt\n"
                  "    file and line of every document of which nothing is learnt\n"
                  "sluice data models/SmolLM2-135M-Instruct chats.jsonl --set train.seq_len=2k\n"
                  "    files by a model's tokenizer and chat template, without a configuration");
  const OptionsOf option{command};
  option("CONFIG|FILE", request->paths,
         "a configuration (.toml); or files to learn, and in front of them the folder of a model, "
         "without which text is bytes",
         "FILE", "Arguments")
      ->required();
  option("--rows", request->rows, "how many of the first rows to show", "N", "Output")
      ->check(number<int64_t>(kWhole));
  option("--html", request->html, "write a page to this file", "FILE", "Output");
  option("--list", request->list,
         "print file and line of everything of this kind that a warning counts, such as nothing-learnt, "
         "empty-answers, held-out-too",
         "KIND", "Output");
  command
      .add_flag("--show-template", request->show_template,
                "print the chat template that is learnt with, where it is from and what it reads")
      ->group("Output");
  command.add_flag("--json", request->json, "print everything, or the list, as JSON")->group("Output");
  excludes_all(command.get_option("--show-template"), command, {"--json", "--html", "--list", "--rows"});
  excludes_all(command.get_option("--list"), command, {"--rows", "--html"});
  add_set(command, request->settings);
  command.callback([=, &status] { status = report(sluice::core::data(*request)); });
}

void add_tokens(CLI::App& app, int& status) {
  const auto request = std::make_shared<sluice::core::TokensRequest>();
  CLI::App& command = add_command(app, "tokens", "show the tokens that a model's tokenizer makes of text",
                                  "sluice tokens models/SmolLM2-135M notes.txt\n"
                                  "    the folder has a tokenizer.json\n"
                                  "sluice tokens models/SmolLM2-135M --json - < notes.txt\n"
                                  "sluice tokens notes.txt\n"
                                  "    as bytes");
  const OptionsOf option{command};
  option("FILE", request->paths,
         "text files, or - for the standard input; in front of them the folder of a model, without which "
         "text is bytes",
         "FILE", "Arguments")
      ->required();
  option("--show", request->show, "how many tokens of each file to show; 0: only counts", "N", "Output")
      ->check(number<int64_t>(kWhole));
  command.add_flag("--json", request->json, "print all of them as JSON")->group("Output");
  excludes_all(command.get_option("--json"), command, {"--show"});
  command.callback([=, &status] { status = report(sluice::core::tokens(*request)); });
}

void add_generate(CLI::App& app, int& status) {
  const auto request = std::make_shared<sluice::core::GenerateRequest>();
  sluice::core::GenerateRequest& r = *request;
  CLI::App& command =
      add_command(app, "generate", "generate text from prompts under memory caps",
                  "sluice generate models/SmolLM2-135M --prompt 'Once upon a time'\n"
                  "sluice generate models/SmolLM2-135M-Instruct --chat --prompt 'Why is the sky blue?'\n"
                  "    the prompt is what a user says, and the text is the answer\n"
                  "sluice generate models/Llama-3-8B --file prompts.txt --device-mem 9GiB --json\n"
                  "    a prompt per line; the weights stream, and 8 texts share each pass over them\n"
                  "sluice generate llama3-8b --plan --machine rtx4090 --device-mem 9GiB --host-mem 32GiB\n"
                  "    what stays on the device, what streams, and how fast that is");
  const OptionsOf option{command};
  const CLI::Validator whole = number<int64_t>(kWhole), real = number<double>("a number");
  option("MODEL", r.model, "folder of a model; or a preset with random weights, to measure", "DIR",
         "Arguments")
      ->required();
  option("--base", r.base, "of an adapter: the folder of its base, where it is not where the adapter says",
         "DIR", "Arguments");
  option("--prompt", r.prompts, "text to go on from; may be repeated", "TEXT", "Prompts")
      ->allow_extra_args(false);
  option("--file", r.file,
         "a prompt per line; of a .jsonl file the lines' \"prompt\", or with --chat their \"messages\"; - is "
         "the standard input",
         "FILE", "Prompts");
  CLI::Option* chat = command.add_flag(
      "--chat", r.chat, "prompts are what a user says: the model's chat template makes turns of them");
  chat->group("Prompts");
  option("--system", r.system, "a system message before each", "TEXT", "Prompts")->needs(chat);
  option("--answer", r.answer, "what each answer begins with, and the text goes on from", "TEXT", "Prompts")
      ->needs(chat);
  option("--tools", r.tools, "tools that may be called: a list of JSON", "FILE", "Prompts")->needs(chat);
  option("--documents", r.documents, "what the answers are found in: a list of JSON", "FILE", "Prompts")
      ->needs(chat);
  option("--tokens", r.tokens, "of each text at most; as the folder says, or 256, or what the context leaves",
         "N", "Text")
      ->transform(tokens());
  option("--samples", r.samples, "texts of each prompt", "N", "Text")->check(CLI::Range(1, 4096));
  option("--temperature", r.temperature, "0: the most likely token; default: what the folder says", "X",
         "Text")
      ->check(real);
  option("--top-k", r.top_k, "draw from the so many most likely tokens; 0: from all", "N", "Text")
      ->check(whole);
  option("--top-p", r.top_p, "draw from the most likely tokens of this probability together", "X", "Text")
      ->check(real);
  option("--min-p", r.min_p, "draw from tokens that have so much of the most likely one's probability", "X",
         "Text")
      ->check(real);
  option("--repetition-penalty", r.repetition_penalty, "above 1: tokens that were there become less likely",
         "X", "Text")
      ->check(real);
  option("--seed", r.seed, "of what is drawn; 1 unless given", "N", "Text")->check(whole);
  option("--stop", r.stop, "end a text before this string; may be repeated", "TEXT", "Text")
      ->allow_extra_args(false);
  option("--stop-token", r.stop_tokens, "end a text at this token, too; may be repeated", "N", "Text")
      ->allow_extra_args(false)
      ->check(whole);
  command.add_flag("--ignore-stop-tokens", r.ignore_stop_tokens, "go on at the folder's end tokens")
      ->group("Text");
  option("--ignore", r.ignore,
         "a key of the folder's generation_config.json that is not followed; may be repeated", "KEY", "Text")
      ->allow_extra_args(false);
  add_caps(command, r.settings, "9GiB", "32GiB");
  option("--batch", r.batch,
         "texts that share a pass, at most; default: as many as are fastest by prediction", "N", "Passes")
      ->check(CLI::Range(1, 1024));
  option("--prompt-tokens", r.prompt_tokens, "of each prompt in one pass", "N", "Passes")
      ->check(CLI::Range(1, 65536));
  CLI::Option* plan = command.add_flag("--plan", r.plan, "explain the plans and generate nothing");
  plan->group("Output");
  CLI::Option* json = command.add_flag("--json", r.json, "print a line of JSON per text");
  json->group("Output");
  command.add_flag("--log-probs", r.log_probs, "with log p of each token, as the model has it")
      ->needs(json)
      ->group("Output");
  command
      .add_flag("--raw", r.raw,
                "print text as it is on a terminal, too, and not with control characters spelt out")
      ->group("Output");
  option("--machine", r.machine, machine_help(), "MACHINE", "Configuration")->needs(plan);
  excludes_all(plan, command, {"--json", "--raw"});
  excludes_all(command.get_option("--json"), command, {"--raw"});
  add_backend(command, r.settings);
  add_set(command, r.settings);
  command.callback([=, &status] { status = report(sluice::core::generate(*request, watch_signals())); });
}

void add_evaluate(CLI::App& app, int& status) {
  const auto request = std::make_shared<sluice::core::EvaluateRequest>();
  sluice::core::EvaluateRequest& r = *request;
  CLI::App& command = add_command(app, "evaluate", "tell the loss of a model on text, under memory caps",
                                  "sluice evaluate runs/notes\n"
                                  "    a run, on the text that it holds out itself\n"
                                  "sluice evaluate models/SmolLM2-135M notes.md docs\n"
                                  "    text, each file one document\n"
                                  "sluice evaluate runs/finetune heldout.jsonl --best\n"
                                  "    what its best model makes of prompts with completions, or of chats\n"
                                  "sluice evaluate models/Llama-3-8B notes.md --device-mem 9GiB --json\n"
                                  "    the weights stream\n"
                                  "sluice evaluate models/SmolLM2-135M --each questions.jsonl\n"
                                  "    a line of JSON for each prompt with its completion");
  const OptionsOf option{command};
  option("MODEL", r.model, "a model's folder, a checkpoint, or the directory of a run", "DIR", "Arguments")
      ->required();
  option("FILE", r.files,
         "files of text, JSONL or tokens, directories or patterns, as data.paths has them; of a run, unless "
         "given, "
         "what it holds out",
         "FILE", "Arguments");
  command.add_flag("--best", r.best, "of a run: the model with the lowest held-out loss, not the newest")
      ->group("Arguments");
  option("--base", r.base, "of an adapter: the folder of its base, where it is not where the adapter says",
         "DIR", "Arguments");
  option("--seq-len", r.seq_len, "tokens of a row; what the model was made for, up to 2048, unless given",
         "N", "Rows")
      ->transform(tokens());
  CLI::Option* const each = option(
      "--each", r.each,
      "lines of JSON, each for itself: \"prompt\" and \"completion\", which is what counts, or \"text\"; "
      "- is the standard input",
      "FILE", "One by one");
  command
      .add_flag("--cut-prompts", r.cut_prompts,
                "with --each: what is longer than a row loses the beginning of its prompt")
      ->group("One by one")
      ->needs(each);
  add_caps(command, r.settings, "9GiB", "32GiB");
  command.add_flag("--json", r.json, "print JSON")->group("Output");
  add_backend(command, r.settings);
  add_set(command, r.settings);
  command.callback([=, &status] { status = report(sluice::core::evaluate(*request, watch_signals())); });
}

void add_export(CLI::App& app, int& status) {
  const auto request = std::make_shared<sluice::core::ExportRequest>();
  CLI::App& command =
      add_command(app, "export", "write a model as a folder that transformers and llama.cpp take",
                  "sluice export runs/notes out --dtype bf16\n"
                  "    the newest checkpoint of a run\n"
                  "sluice export runs/notes out --best\n"
                  "    its model with the lowest held-out loss\n"
                  "sluice export runs/notes/checkpoints/step-200 out --dtype f32\n"
                  "    its master weights, where it has any\n"
                  "sluice export models/SmolLM2-135M out --shard-size 100MB");
  const auto argument = [&](const char* name, std::string& value, const char* meaning) {
    command.add_option(name, value, meaning)->required()->type_name("DIR")->group("Arguments");
  };
  argument("FROM", request->from, "a checkpoint, the directory of a run, or a model's folder");
  argument("OUT", request->to, "a folder that is not there yet");
  command
      .add_flag("--best", request->best, "of a run: the model with the lowest held-out loss, not the newest")
      ->group("Arguments");
  command
      .add_flag("--merged", request->merged,
                "of an adapter: add it to its base, in f32 and rounded once, and write that model")
      ->group("Arguments");
  const OptionsOf option{command};
  option("--base", request->base,
         "of an adapter: the folder of its base, where it is not where the adapter says", "DIR", "Arguments");
  option("--layout", request->layout,
         "of an adapter of experts: folder, each expert's own, or peft5, one of all experts of a layer, "
         "as PEFT has it beside classes of transformers 5",
         "NAME", "Output");
  command
      .add_flag("--drop-unread", request->drop_unread,
                "leave out tensors of the folder that the model does not read (model.unread)")
      ->group("Arguments");
  command
      .add_flag("--end-token", request->end_token,
                "write the token that ends a turn of the chat template as eos_token of tokenizer_config.json")
      ->group("Output");
  option("--around", request->around,
         "of a run: the folder of a model such as gemma3 or mistral3, whose text part this is; the "
         "export has its other tensors, too",
         "DIR", "Output");
  option("--without", request->without,
         "leave out those of the other tensors whose names begin with NAME and a dot, such as mtp", "NAME",
         "Output");
  option("--dtype", request->dtype,
         "number format of the weights: f32, bf16, f16, or input: each as it is; the default", "DTYPE",
         "Output");
  option("--shard-size", request->shard_size, "the most that one file of weights holds; 5GB unless given",
         "SIZE", "Output");
  command.callback([=, &status] { status = report(sluice::core::export_model(*request, watch_signals())); });
}

}  // namespace

void add_model_commands(CLI::App& app, int& status) {
  add_models(app, status);
  add_estimate(app, status);
  add_data(app, status);
  add_tokens(app, status);
  add_generate(app, status);
  add_evaluate(app, status);
  add_export(app, status);
}
