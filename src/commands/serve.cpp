// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "commands/outcome.h"
#include "io/descriptor.h"

namespace sluice::core {
namespace {

// Nothing of the folder that it is started in is taken for the package.
constexpr const char* kProgram = R"py(
import importlib.util, sys
if sys.path and not sys.path[0]:
    del sys.path[0]
if importlib.util.find_spec("sluice") is None:
    sys.exit("sluice: serve: " + sys.executable + " has no package sluice; in the source tree, `pip install .` installs it (docs/python.md)")
from sluice.serve import main
sys.exit(main())
)py";

}  // namespace

Outcome serve(const ServeRequest& request) {
  // `python -m sluice` names its own interpreter.
  const char* const own = std::getenv("SLUICE_PYTHON");
  const std::string python = own != nullptr && *own != '\0' ? own : "python3";
  std::vector<std::string> words{python, "-c", kProgram, "--verbs"};
  const auto add = [&words](const char* option, const std::string& value) {
    if (!value.empty()) words.insert(words.end(), {option, value});
  };
  for (const std::string& setting : request.settings) add("--set", setting);
  add("--name", request.name);
  add("--allow", request.allow);
  add("--port", std::to_string(request.port));
  add("--sample-rows", std::to_string(request.sample_rows));
  if (!request.config_path.empty()) words.insert(words.end(), {"--", request.config_path});
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  std::fflush(nullptr);
  ::execvp(python.c_str(), arguments.data());
  return {Ending::Failed, file_error("run", python).message};
}

}  // namespace sluice::core
