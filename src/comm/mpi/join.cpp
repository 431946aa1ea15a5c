// SPDX-License-Identifier: Apache-2.0
#include <mpi.h>

#include <algorithm>
#include <cstdlib>
#include <string>

#include "comm/group.h"

namespace sluice::core {
namespace {

Status checked(int code, std::string_view call) {
  if (code == MPI_SUCCESS) return {};
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(code, text, &length);
  return Error{fmt::format("{}: {}", call, std::string_view(text, size_t(length))), ErrorKind::Device, {}};
}

// Counts of MPI are int: longer messages go in pieces of this many bytes.
constexpr size_t kPiece = size_t{1} << 30;

class MpiGroup final : public ProcessGroup {
 public:
  // Ends MPI where it is that of all processes.
  MpiGroup(MPI_Comm comm, bool of_all) : comm_(comm), of_all_(of_all) {
    MPI_Comm_rank(comm_, &rank_);
    MPI_Comm_size(comm_, &size_);
    MPI_Comm here = MPI_COMM_NULL;
    if (MPI_Comm_split_type(comm_, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &here) == MPI_SUCCESS) {
      MPI_Comm_size(here, &here_);
      host_ = rank_;
      MPI_Bcast(&host_, 1, MPI_INT, 0, here);
      MPI_Comm_free(&here);
    }
  }
  ~MpiGroup() override {
    if (of_all_) {
      MPI_Finalize();
    } else {
      MPI_Comm_free(&comm_);
    }
  }
  MpiGroup(const MpiGroup&) = delete;
  MpiGroup& operator=(const MpiGroup&) = delete;

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  int here() const override { return here_; }
  int host() const override { return host_; }
  void abandon() override {
    MPI_Abort(MPI_COMM_WORLD, 1);
    std::abort();
  }

  Status exchange(std::span<const std::byte> out, int to, std::span<std::byte> in, int from) override {
    for (size_t at = 0; at < std::max(out.size(), in.size()); at += kPiece) {
      const auto piece = [at](auto bytes) {
        const size_t begin = std::min(at, bytes.size());
        return bytes.subspan(begin, std::min(kPiece, bytes.size() - begin));
      };
      const auto sent = piece(out);
      const auto received = piece(in);
      const int code =
          MPI_Sendrecv(sent.data(), int(sent.size()), MPI_BYTE, sent.empty() ? MPI_PROC_NULL : to, 0,
                       received.data(), int(received.size()), MPI_BYTE,
                       received.empty() ? MPI_PROC_NULL : from, 0, comm_, MPI_STATUS_IGNORE);
      SLUICE_TRY(checked(code, "MPI_Sendrecv"));
    }
    return {};
  }
  Status barrier() override { return checked(MPI_Barrier(comm_), "MPI_Barrier"); }
  Status broadcast(std::span<std::byte> bytes, int root) override {
    for (size_t at = 0; at < bytes.size(); at += kPiece) {
      const auto piece = bytes.subspan(at, std::min(kPiece, bytes.size() - at));
      SLUICE_TRY(checked(MPI_Bcast(piece.data(), int(piece.size()), MPI_BYTE, root, comm_), "MPI_Bcast"));
    }
    return {};
  }
  Status all_gather(std::span<const std::byte> own, std::span<std::byte> all) override {
    if (own.size() > kPiece)
      return error("all_gather of {} bytes a rank: at most {} are allowed", own.size(), kPiece);
    const int count = int(own.size());
    return checked(MPI_Allgather(own.data(), count, MPI_BYTE, all.data(), count, MPI_BYTE, comm_),
                   "MPI_Allgather");
  }
  Status sum_in_any_order(std::span<float> values) override {
    constexpr size_t kMost = kPiece / sizeof(float);
    for (size_t at = 0; at < values.size(); at += kMost) {
      const auto piece = values.subspan(at, std::min(kMost, values.size() - at));
      const int code =
          MPI_Allreduce(MPI_IN_PLACE, piece.data(), int(piece.size()), MPI_FLOAT, MPI_SUM, comm_);
      SLUICE_TRY(checked(code, "MPI_Allreduce"));
    }
    return {};
  }
  Result<std::unique_ptr<ProcessGroup>> first(int ranks) override {
    MPI_Comm part = MPI_COMM_NULL;
    const int code = MPI_Comm_split(comm_, rank_ < ranks ? 0 : MPI_UNDEFINED, rank_, &part);
    SLUICE_TRY(checked(code, "MPI_Comm_split"));
    std::unique_ptr<ProcessGroup> out;
    if (part != MPI_COMM_NULL) out = std::make_unique<MpiGroup>(part, false);
    return out;
  }

 private:
  MPI_Comm comm_;
  bool of_all_;
  int rank_ = 0, size_ = 1, here_ = 1, host_ = 0;
};

}  // namespace

Result<std::unique_ptr<ProcessGroup>> join_by_mpi(const ProcessLaunch& launch) {
  // Open MPI looks for what comes all the time, on a core that may be one that computes; so it lets that go
  // on in between. Who launches may say otherwise.
  ::setenv("OMPI_MCA_mpi_yield_when_idle", "1", 0);
  int given = MPI_THREAD_SINGLE;
  SLUICE_TRY(checked(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &given), "MPI_Init_thread"));
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  if (given < MPI_THREAD_SERIALIZED)
    return error("MPI gives thread level {}, and {} (MPI_THREAD_SERIALIZED) is needed", given,
                 int(MPI_THREAD_SERIALIZED));
  auto group = std::make_unique<MpiGroup>(MPI_COMM_WORLD, true);
  if (group->size() != launch.size || group->rank() != launch.rank)
    return error(
        "{} launched rank {} of {}, MPI is rank {} of {}: this sluice was built with another MPI than that "
        "of the launcher",
        launch.by, launch.rank, launch.size, group->rank(), group->size());
  return std::unique_ptr<ProcessGroup>(std::move(group));
}

}  // namespace sluice::core
