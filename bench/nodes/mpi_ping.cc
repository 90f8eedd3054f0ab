// mpi_ping: rows between two ranks of MPI, the limit for what peer.transport = "mpi" can do. Rank 0
// asks for batches of rows, each row a message of its own that lands in its place, and has several
// requests under way; rank 1 sends them from scattered places of a set. Rank 0 prints a line of
// JSON. Nothing is verified. With --work, each rank also does with the bytes what the processes on
// its core have to do in a job: both take a checksum of each row, and rank 0 sums the row's bytes
// like the benchmark's reader. That costs less than in a job, where rows have to be found and
// handed over, so it is a limit for daemons that share their cores with a reader.
#include <mpi.h>
#include <sched.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "bench/peers/byte_sum.h"
#include "bench/peers/run_report.h"
#include "proto/contract/checksum.h"

namespace forebay::bench {
namespace {

constexpr int kAskTag = 1;
constexpr int kFirstRowTag = 2;

struct Options {
  std::size_t row_bytes = 0;
  std::size_t request_rows = 64;
  std::size_t in_flight = 8;
  std::size_t total_bytes = 0;
  std::size_t set_bytes = 192 << 20;  // more than most caches hold
  std::string wait = "poll";
  bool work = false;

  std::size_t requests() const {
    return std::max(in_flight, total_bytes / (row_bytes * request_rows));
  }
};

using Requests = std::vector<MPI_Request>;

// MPI cannot wake a thread. Polling is fastest where the core has nothing else to do, and sleeping
// where it has.
void Await(const Options& options, Requests& under_way) {
  int have_ended = 0;
  for (;;) {
    MPI_Testall(static_cast<int>(under_way.size()), under_way.data(), &have_ended,
                MPI_STATUSES_IGNORE);
    if (have_ended != 0) break;
    if (options.wait == "sleep") std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
  under_way.clear();
}

std::span<const std::byte> RowAt(const Options& options, const std::vector<std::byte>& memory,
                                 std::size_t place) {
  return std::span(memory).subspan(place * options.row_bytes, options.row_bytes);
}

// Moves the rows of all requests; both ranks call it. Returns a value that depends on all checksums
// and sums, so that the compiler cannot leave them out.
std::uint64_t Move(const Options& options, std::size_t requests, int rank,
                   std::vector<std::byte>& memory) {
  std::uint64_t result = 0;
  const std::size_t rows_of_set = options.set_bytes / options.row_bytes;
  std::vector<Requests> under_way(options.in_flight);
  std::uint64_t state = 7;  // Knuth's MMIX generator, as peer_bench has it
  std::vector<std::uint64_t> asked(options.request_rows);
  for (std::size_t r = 0; r < requests + options.in_flight; ++r) {
    Requests& own = under_way[r % options.in_flight];
    const std::size_t place = r % options.in_flight * options.request_rows;
    if (r >= options.in_flight) {
      Await(options, own);
      for (std::size_t i = 0; rank == 0 && options.work && i < options.request_rows; ++i) {
        const auto row = RowAt(options, memory, place + i);
        result ^= Checksum(row) ^ ByteSum(row);
      }
    }
    if (r >= requests) continue;
    const int tag = kFirstRowTag + static_cast<int>(r % options.in_flight);
    own.resize(options.request_rows);
    const auto count = static_cast<int>(options.row_bytes);
    if (rank == 0) {
      for (std::size_t i = 0; i < options.request_rows; ++i) {
        state = state * 6364136223846793005ULL + 1442695040888963407ULL;
        asked[i] = (state >> 33) % rows_of_set;
        MPI_Irecv(memory.data() + (place + i) * options.row_bytes, count, MPI_BYTE, 1, tag,
                  MPI_COMM_WORLD, &own[i]);
      }
      MPI_Send(asked.data(), static_cast<int>(asked.size()), MPI_UINT64_T, 1, kAskTag,
               MPI_COMM_WORLD);
    } else {
      Requests ask(1);
      MPI_Irecv(asked.data(), static_cast<int>(asked.size()), MPI_UINT64_T, 0, kAskTag,
                MPI_COMM_WORLD, ask.data());
      Await(options, ask);
      for (std::size_t i = 0; i < options.request_rows; ++i) {
        if (options.work) result ^= Checksum(RowAt(options, memory, asked[i]));
        MPI_Isend(memory.data() + asked[i] * options.row_bytes, count, MPI_BYTE, 0, tag,
                  MPI_COMM_WORLD, &own[i]);
      }
    }
  }
  return result;
}

int Run(const Options& options) {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  const std::size_t bytes =
      rank == 0 ? options.in_flight * options.request_rows * options.row_bytes : options.set_bytes;
  std::vector<std::byte> memory(bytes, std::byte{0x5A});
  // The first window opens the connection and faults pages in; it does not count.
  Move(options, options.in_flight, rank, memory);
  MPI_Barrier(MPI_COMM_WORLD);
  const double cpu = CpuSeconds();
  const double begin = NowSeconds();
  const std::uint64_t result = Move(options, options.requests(), rank, memory);
  const double seconds = NowSeconds() - begin;
  const double own_cpu = CpuSeconds() - cpu;
  double cpu_of_both = 0;
  MPI_Reduce(&own_cpu, &cpu_of_both, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
  if (rank != 0) return 0;
  const std::size_t moved = options.requests() * options.request_rows * options.row_bytes;
  const nlohmann::json report = {{"bytes", moved},
                                 {"seconds", seconds},
                                 {"result", result},
                                 {"cpu_per_byte", cpu_of_both / static_cast<double>(moved)}};
  std::printf("%s\n", report.dump().c_str());
  return 0;
}

}  // namespace
}  // namespace forebay::bench

int main(int argc, char** argv) {
  forebay::bench::Options options;
  CLI::App app("mpi_ping: rows between two ranks of MPI");
  app.add_option("--row-bytes", options.row_bytes, "bytes of a row, a message")->required();
  app.add_option("--total-bytes", options.total_bytes, "bytes to move")->required();
  app.add_option("--request-rows", options.request_rows)->capture_default_str();
  app.add_option("--in-flight", options.in_flight, "requests at a time")->capture_default_str();
  app.add_option("--wait", options.wait, "poll, or sleep between two looks")
      ->check(CLI::IsMember({"poll", "sleep"}))
      ->capture_default_str();
  app.add_flag("--work", options.work, "take checksums of the rows, and sum them");
  CLI11_PARSE(app, argc, argv);
  MPI_Init(&argc, &argv);
  const int code = forebay::bench::Run(options);
  MPI_Finalize();
  return code;
}
