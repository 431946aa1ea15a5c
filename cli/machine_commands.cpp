// SPDX-License-Identifier: Apache-2.0
// Commands about machines, and what there is to set.
#include <memory>
#include <string>

#include "interrupt.h"
#include "options.h"

namespace {

void add_doctor(CLI::App& app, int& status) {
  const auto request = std::make_shared<sluice::core::DoctorRequest>();
  CLI::App& doctor =
      add_command(app, "doctor", "show what this machine has and what is missing",
                  "sluice doctor\n"
                  "sluice doctor --calibrate configs/quickstart.toml\n"
                  "    also how long every op of its step takes here\n"
                  "sluice doctor --calibrate configs/quickstart.toml --machine-file here.toml");
  const OptionsOf option{doctor};
  option("CONFIG", request->config_path, "configuration file whose step to time", "FILE", "Arguments");
  doctor
      .add_flag("--calibrate", request->calibrate,
                "time the links and every op of a step in its mix, and keep the times")
      ->group("Measuring");
  option("--machine-file", request->machine_file,
         "write what was timed to this file, for --machine elsewhere; with --calibrate", "FILE", "Output");
  add_set(doctor, request->settings);
  for (const char* of_steps : {"CONFIG", "--set"})
    doctor.get_option(of_steps)->needs(doctor.get_option("--calibrate"));
  doctor.callback([=, &status] { status = report(sluice::core::doctor(*request)); });
}

void add_machines(CLI::App& app, int& status) {
  struct Options {
    std::string name;
    bool json = false;
  };
  const auto options = std::make_shared<Options>();
  CLI::App& machines =
      add_command(app, "machines", "list the machines that can be planned for without being there",
                  "sluice machines\n"
                  "sluice machines rtx4090 > mine.toml\n"
                  "    all that is known of one, as a file to change\n"
                  "sluice plan --machine mine.toml --set model.preset=llama3-1b");
  const OptionsOf option{machines};
  option("MACHINE", options->name, "only this one, as a machine file: a name, or the path of such a file",
         "MACHINE", "Arguments");
  machines.add_flag("--json", options->json, "print JSON")->group("Output");
  machines.callback([=, &status] { status = report(sluice::core::machines(options->name, options->json)); });
}

void add_bench(CLI::App& app, int& status) {
  const auto request = std::make_shared<sluice::core::BenchRequest>();
  const auto only_of = std::make_shared<std::vector<std::pair<CLI::Option*, std::string>>>();
  CLI::App& bench = add_command(
      app, "bench", "measure the parts of a step, and what number formats do",
      "sluice bench model small medium --seq-len 128,512 --compute f32,bf16\n"
      "    forward, backward, optimizer and whole step; the same command goes on where it "
      "was stopped\n"
      "sluice bench kernels small --seq-len 128,512\n"
      "    the same steps by op\n"
      "sluice bench attention --seq-len 256,1k,4k --head-dim 16,64\n"
      "    against an attention that keeps its scores\n"
      "sluice bench links --devices all\n"
      "    between the host and each GPU and between neighbours, alone and all at once\n"
      "sluice bench sizes small\n"
      "    products of a step at their sizes, and at those that estimate advises\n"
      "mpirun -np 2 sluice bench allreduce --bytes 1MiB,64MiB --compute f32,bf16\n"
      "    sums over processes in a fixed order, beside the library's own; sendrecv: what links carry\n"
      "mpirun -np 2 sluice bench ddp small --seq-len 128\n"
      "    a step whose gradients are summed over processes, by tensor and all at once\n"
      "sluice bench precision\n"
      "    what f16 and bf16 do to long sums, and which format every tensor has");
  // `benches`: those that an option is of, between spaces; none: of all.
  const auto option = [&](const char* name, auto& value, const std::string& meaning, const char* type,
                          const char* group, const std::string& benches = "") {
    CLI::Option* const added = bench.add_option(name, value, meaning)->type_name(type)->group(group);
    if (!benches.empty()) only_of->emplace_back(added, " " + benches + " ");
    return added;
  };
  const CLI::Validator whole = number<int64_t>(kWhole);
  option("WHAT", request->what, joined(sluice::core::names().benches), "BENCH", "Arguments")->required();
  option("MODEL", request->models,
         model_help() + ", or dimensions (layers=12,dim=768,ffn=3072,heads=12,vocab=10000)", "MODEL",
         "Arguments");
  const std::string of_steps = "model ddp kernels memory", of_cells = of_steps + " attention";
  option("--seq-len", request->seq_len, "tokens per sequence: 128,512,1k; 128 unless given", "LIST", "Steps",
         of_cells + " sizes");
  option("--batch", request->batch, "sequences at once; 4 unless given, of attention 8", "N", "Steps",
         of_cells + " sizes")
      ->check(whole);
  option("--head-dim", request->head_dim, "of attention: columns of its head: 16,64,256,512; 64 unless given",
         "LIST", "Steps", "attention");
  option(
      "--compute", request->compute,
      "f32, bf16 or both; auto: bf16 where it is fast, of attention on a GPU; of allreduce and sendrecv f32",
      "FORMAT[,FORMAT]", "Steps", of_cells + " sizes allreduce sendrecv");
  option("--bytes", request->bytes,
         "of allreduce and sendrecv: what each process has; 1MiB,4MiB,16MiB,64MiB unless given", "LIST",
         "Steps", "allreduce sendrecv");
  option("--steps", request->steps, "steps to time; 5 unless given", "N", "Steps", of_cells)->check(whole);
  option("--warm-up", request->warm_up, "steps before those; 1 unless given", "N", "Steps", of_cells)
      ->check(whole);
  option("--devices", request->devices,
         "of links: devices that share a step: all, how many, or indices: 0,2 (run.devices)", "LIST",
         "Configuration", "links");
  option("--out", request->out_dir, "where tables, pictures and pages go; runs/bench unless given", "DIR",
         "Output");
  only_of->emplace_back(
      bench.add_flag("--fresh", request->fresh, "measure again what is there")->group("Output"),
      " model attention kernels memory ");
  add_set(bench, request->settings);
  bench.callback([=, &status] {
    for (const auto& [given, benches] : *only_of) {
      if (given->count() == 0 || benches.find(" " + request->what + " ") != std::string::npos) continue;
      throw CLI::ValidationError(
          given->get_name(),
          "bench " + request->what + " has no such option; it is of" + benches.substr(0, benches.size() - 1));
    }
    status = report(sluice::core::bench(*request, watch_signals()));
  });
}

void add_keys(CLI::App& app, int& status) {
  const auto filter = std::make_shared<std::string>();
  CLI::App& keys =
      add_command(app, "keys", "list configuration keys with default, allowed values and meaning",
                  "sluice keys\n"
                  "sluice keys memory\n"
                  "    those with 'memory' in their name or meaning\n"
                  "sluice train configs/quickstart.toml --set memory.device=64MiB");
  const OptionsOf option{keys};
  option("FILTER", *filter, "part of a name or meaning", "KEY", "Arguments");
  keys.callback([=, &status] { status = report(sluice::core::keys(*filter)); });
}

}  // namespace

void add_machine_commands(CLI::App& app, int& status) {
  add_machines(app, status);
  add_doctor(app, status);
  add_bench(app, status);
  add_keys(app, status);
}
