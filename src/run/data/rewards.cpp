// SPDX-License-Identifier: Apache-2.0
#include "run/data/rewards.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "base/printable.h"
#include "io/file.h"

namespace sluice::core {
namespace {

// Numbers come as text, which has infinities, too.
constexpr const char* kProgram = R"(
import importlib.util, json, os, sys
path, name = sys.argv[1:]
sys.path.insert(0, os.path.dirname(path))
spec = importlib.util.spec_from_file_location("rewards", path)
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
function = getattr(module, name)
out = os.fdopen(os.dup(0), "w")
for line in os.fdopen(0, encoding="utf-8"):
    rewards = function(**json.loads(line))
    out.write(json.dumps([None if r is None else repr(float(r)) for r in rewards]) + "\n")
    out.flush()
)";

// The last line that a process left; empty: none.
std::string last_words(const std::filesystem::path& log) {
  const auto text = read_file(log);
  if (!text.ok()) return {};
  const size_t end = text->find_last_not_of(" \r\n");
  if (end == text->npos) return {};
  const size_t begin = text->rfind('\n', end) + 1;
  return text->substr(begin, end + 1 - begin);
}

}  // namespace

Result<std::unique_ptr<RewardFunction>> RewardFunction::start(std::string function,
                                                              std::filesystem::path log) {
  const size_t colon = function.rfind(':');
  std::string path = function.substr(0, colon), name = function.substr(colon + 1), program = kProgram;
  SLUICE_ASSIGN(const Descriptor out, Descriptor::open_own(log, O_TRUNC));
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    return error("rollout.rewards = {}: no channel to it can be made", function);
  Descriptor pipe(ends[0]), other(ends[1]);
  if (::fcntl(pipe.get(), F_SETFL, O_NONBLOCK) != 0)
    return error("rollout.rewards = {}: no channel to it can be made", function);
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  posix_spawn_file_actions_init(&actions);
  posix_spawnattr_init(&attributes);
  posix_spawn_file_actions_adddup2(&actions, other.get(), 0);
  for (const int fd : {1, 2}) posix_spawn_file_actions_adddup2(&actions, out.get(), fd);
  // Ctrl-C asks the run to stop, which comes to an end of its own.
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  std::string python = "python3", command = "-c";
  char* const arguments[] = {python.data(), command.data(), program.data(),
                             path.data(),   name.data(),    nullptr};
  pid_t process = 0;
  const int code = ::posix_spawnp(&process, "python3", &actions, &attributes, arguments, environ);
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  if (code != 0) return file_error("run", "python3", code);
  return std::unique_ptr<RewardFunction>(
      new RewardFunction(std::move(function), std::move(log), std::move(pipe), process));
}

RewardFunction::~RewardFunction() {
  pipe_.close();
  (void)::kill(process_, SIGKILL);
  (void)::waitpid(process_, nullptr, 0);
}

Error RewardFunction::failed(const std::string& how) const {
  const std::string words = last_words(log_);
  return error("rollout.rewards = {}: {}{}; {} has what it printed", function_, how,
               words.empty() ? "" : ": " + printable_message(words), log_.string());
}

Result<std::vector<double>> RewardFunction::ask(std::string_view request, size_t count, double timeout_s) {
  using Clock = std::chrono::steady_clock;
  const auto end =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(timeout_s));
  std::string left(request), reply;
  left += '\n';
  while (!reply.ends_with('\n')) {
    const auto rest = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now()).count();
    pollfd wait{pipe_.get(), short(left.empty() ? POLLIN : POLLIN | POLLOUT), 0};
    const int ready = rest <= 0 ? 0 : ::poll(&wait, 1, int(std::min<int64_t>(rest, 1 << 30)));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return failed(fmt::format("it took longer than rollout.timeout = {} s", timeout_s));
    if ((wait.revents & POLLOUT) != 0) {
      const ssize_t sent = ::send(pipe_.get(), left.data(), left.size(), MSG_NOSIGNAL);
      if (sent > 0) left.erase(0, size_t(sent));
    }
    if ((wait.revents & (POLLIN | POLLHUP | POLLERR)) == 0) continue;
    char bytes[4096];
    const ssize_t got = ::recv(pipe_.get(), bytes, sizeof bytes, 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (got <= 0) return failed("its process ended");
    reply.append(bytes, size_t(got));
  }
  const auto said = nlohmann::json::parse(reply, nullptr, /*allow_exceptions=*/false);
  if (!said.is_array() || said.size() != count)
    return error("rollout.rewards = {}: it returned {} rewards for {} answers", function_,
                 said.is_array() ? std::to_string(said.size()) : "no", count);
  std::vector<double> rewards;
  for (const auto& one : said) {
    const std::string text = one.is_string() ? one.get<std::string>() : "";
    rewards.push_back(one.is_null() ? std::nan("") : std::strtod(text.c_str(), nullptr));
    if (!one.is_null() && (text.empty() || !std::isfinite(rewards.back())))
      return error("rollout.rewards = {}: reward {} is {}; allowed are finite numbers, and None", function_,
                   rewards.size(), printable_message(one.is_string() ? text : one.dump()));
  }
  return rewards;
}

}  // namespace sluice::core
