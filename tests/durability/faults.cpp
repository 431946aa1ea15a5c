// SPDX-License-Identifier: Apache-2.0
// To be preloaded: makes the n-th file operation of a process go wrong. Counted are the calls that change
// what is below FAULT_ROOT, the durability of a flush included, in the order in which they are made.
//
//   FAULT_ROOT   directory; nothing happens without it
//   FAULT_AT     n, counted from 1; 0: none goes wrong
//   FAULT_KIND   kill: the process dies before the call; after: after it; half: half of a write is made, then
//                it dies; ENOSPC, EIO: the call, and every later one, fails so
//   FAULT_COUNT  a file that gets the number of calls when the process ends, and how often one went wrong
//   FAULT_RECORD a file that gets every call that was made, in words for power_cuts: what it did to which
//   file, by inode,
//                and what the process said meanwhile. Calls of all threads are made one after the other then
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <mutex>
#include <string>

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

// Of a name in an open directory.
std::string whole_path(int directory, const char* path) {
  if (path[0] == '/') return path;
  char link[64], of[4096];
  ::snprintf(link, sizeof link, "/proc/self/fd/%d", directory);
  const ssize_t n = ::readlink(link, of, sizeof of);
  return std::string(of, n > 0 ? size_t(n) : 0) + "/" + path;
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

// Lines of words that blanks part; bytes and paths in hexadecimal digits.
class Record {
 public:
  Record() {
    const char* path = ::getenv("FAULT_RECORD");
    if (path != nullptr) file_ = ::fopen(path, "we");
  }
  bool on() const { return file_ != nullptr; }
  std::recursive_mutex& mutex() { return mutex_; }

  void put(const char* what, std::initializer_list<std::string> words) {
    ::fputs(what, file_);
    for (const std::string& word : words) ::fprintf(file_, " %s", word.c_str());
    ::fputc('\n', file_);
    ::fflush(file_);
  }
  static std::string hex(const void* data, size_t bytes) {
    constexpr char kDigits[] = "0123456789abcdef";
    std::string out = "x";
    for (size_t i = 0; i < bytes; ++i) {
      const auto c = static_cast<const unsigned char*>(data)[i];
      out += kDigits[c >> 4];
      out += kDigits[c & 15];
    }
    return out;
  }
  static std::string hex(const char* text) { return hex(text, ::strlen(text)); }
  static std::string inode_of(int fd) {
    struct stat info {};
    return ::fstat(fd, &info) == 0 ? std::to_string(info.st_ino) : "0";
  }
  static std::string inode_of(const char* path) {
    struct stat info {};
    return ::lstat(path, &info) == 0 ? std::to_string(info.st_ino) : "0";
  }

 private:
  FILE* file_ = nullptr;
  std::recursive_mutex mutex_;
};
Record& record() {
  static Record* const record = new Record;  // for calls at the end of the process, too
  return *record;
}

// Makes a call, and has `note` record it if it was made.
template <class Call, class Note>
auto noted(Call&& make, Note&& note) -> decltype(make()) {
  if (!record().on()) return make();
  const std::lock_guard lock(record().mutex());
  const auto result = make();
  if (result >= 0) note(result);
  return result;
}

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

void note_write(int fd, const void* data, ssize_t bytes, long offset) {
  record().put("write", {Record::inode_of(fd), std::to_string(offset), Record::hex(data, size_t(bytes))});
}

// An open that may make or empty a file.
template <class Call>
int open_noted(const char* path, int flags, Call&& make) {
  const std::string before = record().on() ? Record::inode_of(path) : "0";
  return noted(make, [&](int fd) {
    const std::string inode = Record::inode_of(fd);
    if (before == "0") record().put("file", {Record::hex(path), inode});
    if ((flags & O_TRUNC) != 0) record().put("cut", {inode, "0"});
  });
}

// What gives a file a name.
int linked(auto* call, const char* of, const char* path, const char* how, auto&& what) {
  if (!watched(AT_FDCWD, path)) return call(of, path);
  return faulty([&] {
    return noted([&] { return call(of, path); },
                 [&](int) {
                   record().put(how, {Record::hex(path), what()});
                 });
  });
}

// As where a file system has no links.
bool has_links() {
  if (::getenv("FAULT_NO_LINKS") == nullptr) return true;
  errno = EPERM;
  return false;
}

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
  return faulty([&] { return open_noted(path, flags, [&] { return call(path, flags, mode); }); });
}
int open64(const char* path, int flags, ...) {
  REAL(open64);
  va_list more;
  va_start(more, flags);
  const unsigned mode = mode_of(flags, more);
  va_end(more);
  if ((flags & kChanges) == 0 || !watched(AT_FDCWD, path)) return call(path, flags, mode);
  return faulty([&] { return open_noted(path, flags, [&] { return call(path, flags, mode); }); });
}

ssize_t write(int fd, const void* data, size_t bytes) {
  REAL(write);
  if (!watched(fd)) return call(fd, data, bytes);
  return faulty_write(bytes, [&](size_t some) {
    return noted([&] { return call(fd, data, some); },
                 [&](ssize_t n) { note_write(fd, data, n, ::lseek(fd, 0, SEEK_CUR) - n); });
  });
}
ssize_t pwrite(int fd, const void* data, size_t bytes, off_t offset) {
  REAL(pwrite);
  if (!watched(fd)) return call(fd, data, bytes, offset);
  return faulty_write(bytes, [&](size_t some) {
    return noted([&] { return call(fd, data, some, offset); },
                 [&](ssize_t n) { note_write(fd, data, n, offset); });
  });
}
ssize_t pwrite64(int fd, const void* data, size_t bytes, off64_t offset) {
  REAL(pwrite64);
  if (!watched(fd)) return call(fd, data, bytes, offset);
  return faulty_write(bytes, [&](size_t some) {
    return noted([&] { return call(fd, data, some, offset); },
                 [&](ssize_t n) { note_write(fd, data, n, offset); });
  });
}

int fsync(int fd) {
  REAL(fsync);
  if (!watched(fd)) return call(fd);
  return faulty([&] {
    return noted([&] { return call(fd); }, [&](int) { record().put("flush", {Record::inode_of(fd)}); });
  });
}
int fdatasync(int fd) {
  REAL(fdatasync);
  if (!watched(fd)) return call(fd);
  return faulty([&] {
    return noted([&] { return call(fd); }, [&](int) { record().put("flush", {Record::inode_of(fd)}); });
  });
}
int ftruncate(int fd, off_t bytes) noexcept {
  REAL(ftruncate);
  if (!watched(fd)) return call(fd, bytes);
  return faulty([&] {
    return noted([&] { return call(fd, bytes); },
                 [&](int) {
                   record().put("cut", {Record::inode_of(fd), std::to_string(bytes)});
                 });
  });
}
int ftruncate64(int fd, off64_t bytes) noexcept {
  REAL(ftruncate64);
  if (!watched(fd)) return call(fd, bytes);
  return faulty([&] {
    return noted([&] { return call(fd, bytes); },
                 [&](int) {
                   record().put("cut", {Record::inode_of(fd), std::to_string(bytes)});
                 });
  });
}
int rename(const char* from, const char* to) noexcept {
  REAL(rename);
  if (!watched(AT_FDCWD, to)) return call(from, to);
  return faulty([&] {
    return noted([&] { return call(from, to); },
                 [&](int) {
                   record().put("rename", {Record::hex(from), Record::hex(to)});
                 });
  });
}
int symlink(const char* target, const char* path) noexcept {
  REAL(symlink);
  if (!has_links()) return -1;
  return linked(call, target, path, "link", [&] { return Record::hex(target); });
}
int link(const char* of, const char* path) noexcept {
  REAL(link);
  if (!has_links()) return -1;
  return linked(call, of, path, "name", [&] { return Record::inode_of(path); });
}
// As where a file system has no locks.
int flock(int fd, int operation) noexcept {
  REAL(flock);
  if (::getenv("FAULT_NO_LOCKS") == nullptr) return call(fd, operation);
  errno = ENOLCK;
  return -1;
}
int mkdir(const char* path, mode_t mode) noexcept {
  REAL(mkdir);
  if (!watched(AT_FDCWD, path)) return call(path, mode);
  return faulty([&] {
    return noted([&] { return call(path, mode); },
                 [&](int) {
                   record().put("directory", {Record::hex(path), Record::inode_of(path)});
                 });
  });
}
int unlink(const char* path) noexcept {
  REAL(unlink);
  if (!watched(AT_FDCWD, path)) return call(path);
  return faulty([&] {
    return noted([&] { return call(path); }, [&](int) { record().put("gone", {Record::hex(path)}); });
  });
}
int rmdir(const char* path) noexcept {
  REAL(rmdir);
  if (!watched(AT_FDCWD, path)) return call(path);
  return faulty([&] {
    return noted([&] { return call(path); }, [&](int) { record().put("gone", {Record::hex(path)}); });
  });
}
int remove(const char* path) noexcept {
  REAL(remove);
  if (!watched(AT_FDCWD, path)) return call(path);
  return faulty([&] {
    return noted([&] { return call(path); }, [&](int) { record().put("gone", {Record::hex(path)}); });
  });
}
int unlinkat(int directory, const char* path, int flags) noexcept {
  REAL(unlinkat);
  if (!watched(directory, path)) return call(directory, path, flags);
  return faulty([&] {
    return noted([&] { return call(directory, path, flags); },
                 [&](int) { record().put("gone", {Record::hex(whole_path(directory, path).c_str())}); });
  });
}

// What is printed: a record knows by it what had been promised when the power was cut.
size_t fwrite(const void* data, size_t size, size_t count, FILE* out) {
  REAL(fwrite);
  if (!record().on() || (out != stdout && out != stderr)) return call(data, size, count, out);
  const std::lock_guard lock(record().mutex());
  record().put("said", {Record::hex(data, size * count)});
  return call(data, size, count, out);
}

}  // extern "C"
