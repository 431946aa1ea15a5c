// SPDX-License-Identifier: Apache-2.0
// To be preloaded: makes the n-th file operation of a process go wrong. Counted are the calls that change
// what is below FAULT_ROOT, the durability of a flush included, in the order in which they are made.
//
//   FAULT_ROOT   directory; nothing happens without it
//   FAULT_AT     n, counted from 1; 0: none goes wrong
//   FAULT_KIND   kill: the process dies before the call; after: after it; half: half of a write is made, then
//                it dies; ENOSPC, EIO: the call, and every later one, fails so
//   FAULT_COUNT  a file that gets the number of calls when the process ends, and how often one went wrong
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdarg>

namespace {

const char* root() {
  static const char* const value = ::getenv("FAULT_ROOT");
  return value;
}

const char* kind() {
  static const char* const value = ::getenv("FAULT_KIND");
  return value == nullptr ? "" : value;
}

long at() {
  static const char* const value = ::getenv("FAULT_AT");
  static const long n = value == nullptr ? 0 : ::atol(value);
  return n;
}

std::atomic<long> calls = 0, faults = 0;

bool below_root(const char* path) {
  const size_t n = ::strlen(root());
  return ::strncmp(path, root(), n) == 0 && (path[n] == '/' || path[n] == 0);
}

// A path as the process means it; relative ones are not looked up, so tests give absolute ones.
bool watched(int directory, const char* path) {
  if (root() == nullptr || path == nullptr) return false;
  if (path[0] == '/') return below_root(path);
  if (directory == AT_FDCWD) return false;
  char link[64], of[4096];
  ::snprintf(link, sizeof link, "/proc/self/fd/%d", directory);
  const ssize_t n = ::readlink(link, of, sizeof of - 1);
  if (n <= 0) return false;
  of[n] = 0;
  return below_root(of);
}
bool watched(int fd) {
  return watched(fd, "");
}

enum class Now { Go, Fail, Half, After };

Now next() {
  const long n = ++calls;
  if (at() == 0 || n < at()) return Now::Go;
  const char* how = kind();
  const bool error = ::strcmp(how, "ENOSPC") == 0 || ::strcmp(how, "EIO") == 0;
  if (n > at() && !error) return Now::Go;
  ++faults;
  if (error) {
    errno = ::strcmp(how, "EIO") == 0 ? EIO : ENOSPC;
    return Now::Fail;
  }
  if (::strcmp(how, "kill") == 0) ::raise(SIGKILL);
  return ::strcmp(how, "half") == 0 ? Now::Half : Now::After;
}

template <class F>
F* real(F*, const char* name) {
  return reinterpret_cast<F*>(::dlsym(RTLD_NEXT, name));
}
#define REAL(name) static auto* const call = real(&::name, #name)

// Makes a call that is counted.
template <class Call>
auto faulty(Call&& make) -> decltype(make()) {
  const Now now = next();
  if (now == Now::Fail) return -1;
  if (now == Now::Half) ::raise(SIGKILL);
  const auto result = make();
  if (now == Now::After) ::raise(SIGKILL);
  return result;
}

// The same of one that writes so many bytes.
template <class Call>
ssize_t faulty_write(size_t bytes, Call&& make) {
  const Now now = next();
  if (now == Now::Fail) return -1;
  const ssize_t result = make(now == Now::Half ? bytes / 2 : bytes);
  if (now != Now::Go) ::raise(SIGKILL);
  return result;
}

struct Report {
  ~Report() {
    const char* path = ::getenv("FAULT_COUNT");
    FILE* file = path == nullptr ? nullptr : ::fopen(path, "w");
    if (file == nullptr) return;
    ::fprintf(file, "%ld %ld\n", calls.load(), faults.load());
    ::fclose(file);
  }
} report;

constexpr int kChanges = O_WRONLY | O_RDWR | O_CREAT | O_TRUNC;

unsigned mode_of(int flags, va_list more) {
  return (flags & O_CREAT) != 0 ? va_arg(more, unsigned) : 0;
}

}  // namespace

extern "C" {

int open(const char* path, int flags, ...) {
  REAL(open);
  va_list more;
  va_start(more, flags);
  const unsigned mode = mode_of(flags, more);
  va_end(more);
  if ((flags & kChanges) == 0 || !watched(AT_FDCWD, path)) return call(path, flags, mode);
  return faulty([&] { return call(path, flags, mode); });
}
int open64(const char* path, int flags, ...) {
  REAL(open64);
  va_list more;
  va_start(more, flags);
  const unsigned mode = mode_of(flags, more);
  va_end(more);
  if ((flags & kChanges) == 0 || !watched(AT_FDCWD, path)) return call(path, flags, mode);
  return faulty([&] { return call(path, flags, mode); });
}

ssize_t write(int fd, const void* data, size_t bytes) {
  REAL(write);
  if (!watched(fd)) return call(fd, data, bytes);
  return faulty_write(bytes, [&](size_t some) { return call(fd, data, some); });
}
ssize_t pwrite(int fd, const void* data, size_t bytes, off_t offset) {
  REAL(pwrite);
  if (!watched(fd)) return call(fd, data, bytes, offset);
  return faulty_write(bytes, [&](size_t some) { return call(fd, data, some, offset); });
}
ssize_t pwrite64(int fd, const void* data, size_t bytes, off64_t offset) {
  REAL(pwrite64);
  if (!watched(fd)) return call(fd, data, bytes, offset);
  return faulty_write(bytes, [&](size_t some) { return call(fd, data, some, offset); });
}

int fsync(int fd) {
  REAL(fsync);
  return watched(fd) ? faulty([&] { return call(fd); }) : call(fd);
}
int fdatasync(int fd) {
  REAL(fdatasync);
  return watched(fd) ? faulty([&] { return call(fd); }) : call(fd);
}
int ftruncate(int fd, off_t bytes) noexcept {
  REAL(ftruncate);
  return watched(fd) ? faulty([&] { return call(fd, bytes); }) : call(fd, bytes);
}
int ftruncate64(int fd, off64_t bytes) noexcept {
  REAL(ftruncate64);
  return watched(fd) ? faulty([&] { return call(fd, bytes); }) : call(fd, bytes);
}
int rename(const char* from, const char* to) noexcept {
  REAL(rename);
  return watched(AT_FDCWD, to) ? faulty([&] { return call(from, to); }) : call(from, to);
}
int symlink(const char* target, const char* path) noexcept {
  REAL(symlink);
  return watched(AT_FDCWD, path) ? faulty([&] { return call(target, path); }) : call(target, path);
}
int mkdir(const char* path, mode_t mode) noexcept {
  REAL(mkdir);
  return watched(AT_FDCWD, path) ? faulty([&] { return call(path, mode); }) : call(path, mode);
}
int unlink(const char* path) noexcept {
  REAL(unlink);
  return watched(AT_FDCWD, path) ? faulty([&] { return call(path); }) : call(path);
}
int rmdir(const char* path) noexcept {
  REAL(rmdir);
  return watched(AT_FDCWD, path) ? faulty([&] { return call(path); }) : call(path);
}
int remove(const char* path) noexcept {
  REAL(remove);
  return watched(AT_FDCWD, path) ? faulty([&] { return call(path); }) : call(path);
}
int unlinkat(int directory, const char* path, int flags) noexcept {
  REAL(unlinkat);
  return watched(directory, path) ? faulty([&] { return call(directory, path, flags); })
                                  : call(directory, path, flags);
}

}  // extern "C"
