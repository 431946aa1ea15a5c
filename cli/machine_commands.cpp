// SPDX-License-Identifier: Apache-2.0
// Commands about machines, and what there is to set.
#include <memory>
#include <string>

#include "options.h"

namespace {

void add_doctor(CLI::App& app, int& status) {
  const auto request = std::make_shared<sluice::core::DoctorRequest>();
  CLI::App& doctor = add_command(app, "doctor", "show what this machine has and what is missing",
                                 "sluice doctor\n"
                                 "sluice doctor --calibrate configs/quickstart.toml\n"
                                 "    also how long every op of its step takes here");
  doctor.add_option("CONFIG", request->config_path, "configuration file whose step to time")
      ->type_name("FILE")
      ->group("Arguments");
  doctor
      .add_flag("--calibrate", request->calibrate,
                "time the links and every op of a step in its mix, and keep the times")
      ->group("Measuring");
  add_set(doctor, request->settings);
  doctor.callback([=, &status] { status = report(sluice::core::doctor(*request)); });
}

void add_keys(CLI::App& app, int& status) {
  const auto filter = std::make_shared<std::string>();
  CLI::App& keys =
      add_command(app, "keys", "list configuration keys with default, allowed values and meaning",
                  "sluice keys\n"
                  "sluice keys memory\n"
                  "    those with 'memory' in their name or meaning\n"
                  "sluice train configs/quickstart.toml --set memory.device=64MiB");
  keys.add_option("FILTER", *filter, "part of a name or meaning")->type_name("KEY")->group("Arguments");
  keys.callback([=, &status] { status = report(sluice::core::keys(*filter)); });
}

}  // namespace

void add_machine_commands(CLI::App& app, int& status) {
  add_doctor(app, status);
  add_keys(app, status);
}
