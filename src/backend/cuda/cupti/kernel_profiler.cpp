// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/kernel_profiler.h"

#include <cupti.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include <array>
#include <cstdlib>
#include <mutex>
#include <string>
#include <utility>

namespace sluice::core::cuda {
namespace {

// The records' layouts grow with versions; those of the headers are read, and an older library is refused.
#if CUPTI_API_VERSION >= 130000
using KernelRecord = CUpti_ActivityKernel10;
using CopyRecord = CUpti_ActivityMemcpy6;
#else
using KernelRecord = CUpti_ActivityKernel9;
using CopyRecord = CUpti_ActivityMemcpy5;
#endif
using FillRecord = CUpti_ActivityMemset4;

// Kernels and copies, the calls that started them, and the commands that those belong to. CUPTI puts the
// number that was pushed before the record of each call, and records no number without recording calls.
constexpr std::array kKinds{
    CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,    CUPTI_ACTIVITY_KIND_MEMCPY,  CUPTI_ACTIVITY_KIND_MEMSET,
    CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION, CUPTI_ACTIVITY_KIND_RUNTIME, CUPTI_ACTIVITY_KIND_DRIVER};
constexpr auto kOurs = CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0;
constexpr size_t kBufferBytes = 8 << 20;

// The functions used, by name.
struct Cupti {
  decltype(&cuptiGetVersion) get_version = nullptr;
  decltype(&cuptiGetResultString) result_string = nullptr;
  decltype(&cuptiActivityRegisterCallbacks) register_callbacks = nullptr;
  decltype(&cuptiActivityEnable) enable = nullptr;
  decltype(&cuptiActivityDisable) disable = nullptr;
  decltype(&cuptiActivityFlushAll) flush = nullptr;
  decltype(&cuptiActivityGetNextRecord) next_record = nullptr;
  decltype(&cuptiActivityGetNumDroppedRecords) dropped = nullptr;
  decltype(&cuptiActivityPushExternalCorrelationId) push = nullptr;
  decltype(&cuptiActivityPopExternalCorrelationId) pop = nullptr;

  // False, and the name of the first that is not there, when the library is another one.
  bool find_all(void* library, std::string& missing) {
    const auto find = [&](const char* name, auto*& function) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
      if (function == nullptr && missing.empty()) missing = name;
    };
    find("cuptiGetVersion", get_version);
    find("cuptiGetResultString", result_string);
    find("cuptiActivityRegisterCallbacks", register_callbacks);
    find("cuptiActivityEnable", enable);
    find("cuptiActivityDisable", disable);
    find("cuptiActivityFlushAll", flush);
    find("cuptiActivityGetNextRecord", next_record);
    find("cuptiActivityGetNumDroppedRecords", dropped);
    find("cuptiActivityPushExternalCorrelationId", push);
    find("cuptiActivityPopExternalCorrelationId", pop);
    return missing.empty();
  }
  Status check(CUptiResult result, std::string_view call) const {
    if (result == CUPTI_SUCCESS) return {};
    const char* why = nullptr;
    result_string(result, &why);
    return error(ErrorKind::Device, "{}: {}", call, why != nullptr ? why : "unknown error");
  }
};

// CUPTI hands full buffers to functions without a context of the caller's, from threads of its own: the one
// place for them.
struct Buffers {
  struct Filled {
    uint8_t* data;
    size_t bytes;
  };
  std::mutex mutex;
  std::vector<Filled> filled;
  size_t dropped = 0;
  decltype(&cuptiActivityGetNumDroppedRecords) count_dropped = nullptr;
};
Buffers& buffers() {
  static Buffers all;
  return all;
}

void CUPTIAPI give_buffer(uint8_t** buffer, size_t* bytes, size_t* most_records) {
  *buffer = static_cast<uint8_t*>(std::aligned_alloc(64, kBufferBytes));
  *bytes = *buffer == nullptr ? 0 : kBufferBytes;
  *most_records = 0;
}

void CUPTIAPI take_buffer(CUcontext context, uint32_t stream, uint8_t* buffer, size_t, size_t valid_bytes) {
  Buffers& all = buffers();
  const std::lock_guard lock(all.mutex);
  all.filled.push_back({buffer, valid_bytes});
  size_t dropped = 0;
  if (all.count_dropped(context, stream, &dropped) == CUPTI_SUCCESS) all.dropped += dropped;
}

std::string_view copy_name(uint8_t kind) {
  switch (kind) {
    case CUPTI_ACTIVITY_MEMCPY_KIND_HTOD:
      return "copy to device";
    case CUPTI_ACTIVITY_MEMCPY_KIND_DTOH:
      return "copy to host";
    case CUPTI_ACTIVITY_MEMCPY_KIND_DTOD:
      return "copy on device";
    default:
      return "copy";
  }
}

class CuptiProfiler final : public KernelProfiler {
 public:
  explicit CuptiProfiler(const Cupti& cupti) : cupti_(cupti) {}
  ~CuptiProfiler() override {
    if (on_) (void)turn_off();
  }

  Status turn_on() override;
  void enter(uint32_t command) override { cupti_.push(kOurs, command); }
  void leave() override {
    uint64_t command = 0;
    cupti_.pop(kOurs, &command);
  }
  Result<Records> turn_off() override;

 private:
  void add(const CUpti_Activity& record, Records& out) const;

  const Cupti cupti_;
  bool on_ = false;
};

Status CuptiProfiler::turn_on() {
  buffers().count_dropped = cupti_.dropped;
  SLUICE_TRY(
      cupti_.check(cupti_.register_callbacks(give_buffer, take_buffer), "cuptiActivityRegisterCallbacks"));
  on_ = true;
  for (const CUpti_ActivityKind kind : kKinds) {
    if (const Status enabled =
            cupti_.check(cupti_.enable(kind), fmt::format("cuptiActivityEnable({})", int(kind)));
        !enabled.ok()) {
      (void)turn_off();
      return enabled;
    }
  }
  return {};
}

void CuptiProfiler::add(const CUpti_Activity& record, Records& out) const {
  switch (record.kind) {
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
    case CUPTI_ACTIVITY_KIND_KERNEL: {
      const auto& r = reinterpret_cast<const KernelRecord&>(record);
      out.activities.push_back(
          {r.name != nullptr ? r.name : "kernel", r.streamId, r.correlationId, r.start, r.end, 0});
      break;
    }
    case CUPTI_ACTIVITY_KIND_MEMCPY: {
      const auto& r = reinterpret_cast<const CopyRecord&>(record);
      out.activities.push_back({std::string(copy_name(r.copyKind)), r.streamId, r.correlationId, r.start,
                                r.end, int64_t(r.bytes)});
      break;
    }
    case CUPTI_ACTIVITY_KIND_MEMSET: {
      const auto& r = reinterpret_cast<const FillRecord&>(record);
      out.activities.push_back({"fill", r.streamId, r.correlationId, r.start, r.end, int64_t(r.bytes)});
      break;
    }
    case CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION: {
      const auto& r = reinterpret_cast<const CUpti_ActivityExternalCorrelation&>(record);
      if (r.externalKind == kOurs) out.calls.push_back({r.correlationId, uint32_t(r.externalId)});
      break;
    }
    default:
      break;  // the calls themselves
  }
}

Result<KernelProfiler::Records> CuptiProfiler::turn_off() {
  on_ = false;
  const Status flushed =
      cupti_.check(cupti_.flush(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED), "cuptiActivityFlushAll");
  for (const CUpti_ActivityKind kind : kKinds) (void)cupti_.disable(kind);
  Buffers& all = buffers();
  std::vector<Buffers::Filled> filled;
  size_t dropped = 0;
  {
    const std::lock_guard lock(all.mutex);
    filled.swap(all.filled);
    dropped = std::exchange(all.dropped, 0);
  }
  Records out;
  for (const Buffers::Filled& buffer : filled) {
    CUpti_Activity* record = nullptr;
    while (cupti_.next_record(buffer.data, buffer.bytes, &record) == CUPTI_SUCCESS) add(*record, out);
    std::free(buffer.data);
  }
  SLUICE_TRY(flushed);
  // A row with holes looks like a device that waits.
  if (dropped > 0) return error(ErrorKind::Device, "CUPTI dropped {} records", dropped);
  return out;
}

}  // namespace

Result<std::unique_ptr<KernelProfiler>> KernelProfiler::open() {
  const std::string name = fmt::format("libcupti.so.{}", CUDA_VERSION / 1000);
  std::string searched = fmt::format("{} (where the loader looks, LD_LIBRARY_PATH first)", name);
  void* library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  for (const std::string_view dir : {SLUICE_CUPTI_DIRS}) {
    if (library != nullptr) break;
    const std::string path = fmt::format("{}/{}", dir, name);
    searched += ", " + path;
    library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  }
  if (library == nullptr) {
    return error(ErrorKind::Device,
                 "CUPTI was not found. Searched: {}. Install it with: apt-get install cuda-cupti-{}-{}",
                 searched, CUDA_VERSION / 1000, CUDA_VERSION % 1000 / 10);
  }
  // It stays open: CUPTI does not take being unloaded from a process whose driver it has hooked into.
  Cupti cupti;
  std::string missing;
  if (!cupti.find_all(library, missing))
    return error(ErrorKind::Device, "{} has no function {}", name, missing);
  uint32_t version = 0;
  SLUICE_TRY(cupti.check(cupti.get_version(&version), "cuptiGetVersion"));
  if (version < CUPTI_API_VERSION) {
    return error(ErrorKind::Device, "{} has version {}, this build needs {} or newer", name, version,
                 CUPTI_API_VERSION);
  }
  return std::unique_ptr<KernelProfiler>(std::make_unique<CuptiProfiler>(cupti));
}

}  // namespace sluice::core::cuda
