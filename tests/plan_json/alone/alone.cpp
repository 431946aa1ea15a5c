// SPDX-License-Identifier: Apache-2.0
// Plans what standard input asks for (plan_json/asked.h) and prints the plan's JSON, or the error with
// status 1. Before it begins it gives up, for good, to open files and to start threads and processes: the
// kernel ends it if it tries.
//
//   sluice_plan_alone < request.json
//   sluice_plan_alone --then open|thread|process < request.json    tries that instead of planning
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "plan_json/asked.h"

namespace {

// Status of a test that cannot be run here.
constexpr int kSkipped = 77;

// Every way to a file, a thread or a process that the kernel has on this machine.
bool give_up_the_host() {
  const unsigned forbidden[] = {
#ifdef SYS_open
      SYS_open,
#endif
#ifdef SYS_creat
      SYS_creat,
#endif
#ifdef SYS_fork
      SYS_fork,
#endif
#ifdef SYS_vfork
      SYS_vfork,
#endif
#ifdef SYS_stat
      SYS_stat,
#endif
#ifdef SYS_lstat
      SYS_lstat,
#endif
#ifdef SYS_readlink
      SYS_readlink,
#endif
#ifdef SYS_access
      SYS_access,
#endif
#ifdef SYS_openat2
      SYS_openat2,
#endif
#ifdef SYS_clone3
      SYS_clone3,
#endif
#ifdef SYS_statx
      SYS_statx,
#endif
#ifdef SYS_newfstatat
      SYS_newfstatat,
#endif
      SYS_openat,     SYS_clone,      SYS_execve,    SYS_socket,
      SYS_getcwd,     SYS_readlinkat, SYS_faccessat, SYS_memfd_create};
  std::vector<sock_filter> filter{BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr))};
  for (const unsigned call : forbidden) {
    filter.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1));
    filter.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS));
  }
  filter.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  const sock_fprog program{static_cast<unsigned short>(filter.size()), filter.data()};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

// Without stdio, which asks what kind of file it writes to.
int print(int to, std::string_view text, int status) {
  while (!text.empty()) {
    const ssize_t written = write(to, text.data(), text.size());
    if (written <= 0) return 2;
    text.remove_prefix(size_t(written));
  }
  return status;
}

int run(const std::string& request, std::string_view then) {
  using namespace sluice::core;
  if (then == "open") return std::ifstream("/dev/null").is_open() ? 0 : 3;
  if (then == "thread") {
    std::thread([] {}).join();
    return 0;
  }
  if (then == "process") return fork() >= 0 ? 0 : 3;
  const auto asked = parse_asked(request);
  if (!asked.ok()) return print(STDERR_FILENO, asked.message() + "\n", 1);
  const auto planned = plan_asked(*asked);
  if (!planned.ok()) return print(STDERR_FILENO, planned.message() + "\n", 1);
  return print(STDOUT_FILENO, json_of(*planned), 0);
}

}  // namespace

int main(int count, char** words) {
  std::string request;
  char piece[4096];
  for (size_t bytes = 0; (bytes = std::fread(piece, 1, sizeof piece, stdin)) > 0;)
    request.append(piece, bytes);
  if (!give_up_the_host()) {
    std::perror("this system does not let a program give up calls");
    return kSkipped;
  }
  // Without the ends of sanitizers, which look into files.
  _exit(run(request, count == 3 ? words[2] : ""));
}
