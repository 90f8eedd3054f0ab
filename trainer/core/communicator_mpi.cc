#include "trainer/core/communicator_mpi.h"

#include <fmt/format.h>
#include <mpi.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <vector>

namespace forebay::train {
namespace {

// A whole collective stays far below MPI's int counts.
constexpr std::size_t kChunkElements = std::size_t{1} << 26;

Status Checked(int code, const char* call) {
  if (code == MPI_SUCCESS) return {};
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  MPI_Error_string(code, text, &length);
  return Error(ErrorCode::kUnavailable, fmt::format("{}: {}", call, text));
}

template <typename T>
MPI_Datatype TypeOf();
template <>
MPI_Datatype TypeOf<float>() { return MPI_FLOAT; }
template <>
MPI_Datatype TypeOf<double>() { return MPI_DOUBLE; }

class MpiCommunicator final : public Communicator {
 public:
  MpiCommunicator(std::uint32_t rank, std::uint32_t size, std::uint32_t local_size)
      : rank_(rank), size_(size), local_size_(local_size) {}
  ~MpiCommunicator() override { MPI_Finalize(); }
  MpiCommunicator(const MpiCommunicator&) = delete;
  MpiCommunicator& operator=(const MpiCommunicator&) = delete;

  std::uint32_t rank() const override { return rank_; }
  std::uint32_t size() const override { return size_; }
  std::uint32_t local_size() const override { return local_size_; }
  Status AllReduceSum(std::span<float> values) override { return Reduce(values, floats_); }
  Status AllReduceSum(std::span<double> values) override { return Reduce(values, doubles_); }

  Status Broadcast(std::span<std::byte> bytes, std::uint32_t root) override {
    if (root >= size_) {
      return Error(ErrorCode::kInvalidArgument, "broadcast from a rank not there");
    }
    for (std::size_t at = 0; at < bytes.size(); at += kChunkElements) {
      const std::size_t count = std::min(kChunkElements, bytes.size() - at);
      FOREBAY_TRY(Checked(MPI_Bcast(bytes.data() + at, static_cast<int>(count), MPI_BYTE,
                                    static_cast<int>(root), MPI_COMM_WORLD),
                          "MPI_Bcast"));
    }
    return {};
  }

  Status Barrier() override { return Checked(MPI_Barrier(MPI_COMM_WORLD), "MPI_Barrier"); }
  void Abort(int exit_code) override { MPI_Abort(MPI_COMM_WORLD, exit_code); }

 private:
  // Each rank sums one share of the elements: the shares of all ranks arrive by an all-to-all,
  // are added in the order of ranks, and the sums go round by an all-gather. That moves as many
  // bytes as a ring all-reduce, and unlike MPI_Allreduce its rounding is specified.
  template <typename T>
  Status Reduce(std::span<T> values, std::vector<T>& scratch) {
    for (std::size_t at = 0; at < values.size(); at += kChunkElements) {
      FOREBAY_TRY(ReduceChunk(values.subspan(at, std::min(kChunkElements, values.size() - at)),
                              scratch));
    }
    return {};
  }

  template <typename T>
  Status ReduceChunk(std::span<T> values, std::vector<T>& scratch) {
    const std::size_t share = (values.size() + size_ - 1) / size_;
    const std::size_t padded = share * size_;
    scratch.assign(padded * 2, T{0});
    T* const sent = scratch.data();
    T* const arrived = sent + padded;
    std::ranges::copy(values, sent);
    const int count = static_cast<int>(share);
    FOREBAY_TRY(Checked(MPI_Alltoall(sent, count, TypeOf<T>(), arrived, count, TypeOf<T>(),
                                     MPI_COMM_WORLD),
                        "MPI_Alltoall"));
    for (std::uint32_t peer = 1; peer < size_; ++peer) {
      const T* const addend = arrived + peer * share;
      for (std::size_t i = 0; i < share; ++i) arrived[i] += addend[i];
    }
    FOREBAY_TRY(Checked(MPI_Allgather(arrived, count, TypeOf<T>(), sent, count, TypeOf<T>(),
                                      MPI_COMM_WORLD),
                        "MPI_Allgather"));
    std::copy_n(sent, values.size(), values.data());
    return {};
  }

  std::uint32_t rank_;
  std::uint32_t size_;
  std::uint32_t local_size_;
  std::vector<float> floats_;
  std::vector<double> doubles_;
};

Result<std::uint32_t> LocalSize() {
  MPI_Comm node = MPI_COMM_NULL;
  FOREBAY_TRY(Checked(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL,
                                          &node),
                      "MPI_Comm_split_type"));
  int size = 1;
  const Status sized = Checked(MPI_Comm_size(node, &size), "MPI_Comm_size");
  MPI_Comm_free(&node);
  FOREBAY_TRY(sized);
  return static_cast<std::uint32_t>(size);
}

}  // namespace

bool LaunchedByMpi() {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_RANK", "PMIX_RANK"}) {
    if (std::getenv(name) != nullptr) return true;
  }
  return false;
}

Result<std::unique_ptr<Communicator>> MakeMpiCommunicator() {
  int initialised = 0;
  FOREBAY_TRY(Checked(MPI_Initialized(&initialised), "MPI_Initialized"));
  if (initialised != 0) {
    return Error(ErrorCode::kFailedPrecondition, "MPI was initialised before");
  }
  int provided = 0;
  // The client library has threads of its own; only this one calls MPI.
  FOREBAY_TRY(Checked(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided),
                      "MPI_Init_thread"));
  FOREBAY_TRY(Checked(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN),
                      "MPI_Comm_set_errhandler"));
  int rank = 0;
  int size = 1;
  FOREBAY_TRY(Checked(MPI_Comm_rank(MPI_COMM_WORLD, &rank), "MPI_Comm_rank"));
  FOREBAY_TRY(Checked(MPI_Comm_size(MPI_COMM_WORLD, &size), "MPI_Comm_size"));
  FOREBAY_ASSIGN(const std::uint32_t local_size, LocalSize());
  return std::unique_ptr<Communicator>(std::make_unique<MpiCommunicator>(
      static_cast<std::uint32_t>(rank), static_cast<std::uint32_t>(size), local_size));
}

}  // namespace forebay::train
