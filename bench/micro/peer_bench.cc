// Measures how fast rows of another node arrive over loopback TCP, through GrpcPeers and
// PeerServer. Beside them it measures two limits that move the same bytes for the same requests: a
// bare gRPC byte stream, which is what our messages could cost at best, and a bare socket, which is
// what the kernel can do. The contenders take turns in each round, so that their ratios are from
// the same minutes. Both ends are threads of this process, so its CPU time is that of both.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "bench/nodes/grpc_bytes.h"
#include "bench/peers/run_report.h"
#include "proto/contract/check.h"
#include "proto/contract/unique_fd.h"
#include "server/peer/testing/peer_rig.h"

namespace forebay::peer {
namespace {

using bench::CpuSeconds;
using bench::Spread;
using bench::SpreadOf;

// The work that each contender does: it answers requests for rows in pseudo-random order, of which
// several are under way at a time.
struct Load {
  std::uint64_t row_bytes = 0;
  std::uint64_t rows = 0;          // of the data set
  std::size_t request_rows = 0;
  std::size_t requests = 0;
  std::size_t in_flight = 0;
  // The samples of each request. Drawn before the measurement, and the same for all contenders.
  std::vector<std::vector<std::uint64_t>> samples = {};

  std::uint64_t bytes() const { return requests * request_rows * row_bytes; }
};

Load MakeLoad(std::uint64_t row_bytes, std::uint64_t rows, std::uint64_t total_bytes,
              std::size_t request_rows, std::size_t in_flight) {
  // At least one full window of requests, or the contenders would not overlap any.
  Load load{.row_bytes = row_bytes,
            .rows = rows,
            .request_rows = request_rows,
            .requests = std::max<std::size_t>(in_flight,
                                              total_bytes / (row_bytes * request_rows)),
            .in_flight = in_flight};
  // A linear congruential generator (Knuth's MMIX constants), whose upper bits are random enough to
  // defeat the caches. A fixed seed makes runs comparable.
  std::uint64_t state = 7;
  load.samples.resize(load.requests);
  for (std::vector<std::uint64_t>& request : load.samples) {
    for (std::size_t i = 0; i < request_rows; ++i) {
      state = state * 6364136223846793005ULL + 1442695040888963407ULL;
      request.push_back((state >> 33) % rows);
    }
  }
  return load;
}

// A way of moving rows. Request r is received in place r % in_flight of the destination, as a
// daemon receives rows in the slots of its next batches; so the memory that is written to is as
// small for each of them.
class Means {
 public:
  virtual ~Means() = default;
  virtual void Move(const Load& load, std::vector<std::byte>& destination) = 0;
};

// The place of a request is free again once the request in_flight before it is complete.
std::span<std::byte> PlaceOf(const Load& load, std::size_t request,
                             std::vector<std::byte>& destination) {
  const std::size_t bytes = load.request_rows * load.row_bytes;
  return std::span(destination).subspan(request % load.in_flight * bytes, bytes);
}

// GrpcPeers asks; PeerServer answers from the RAM tier. All that a batch costs is included: finding
// and pinning extents, checksums of rows on both sides, and the copy to the slot.
class PeersMeans final : public Means {
 public:
  explicit PeersMeans(PeerRig& rig) : rig_(rig) {
    FOREBAY_CHECK(rig_.Connect(rig_.address()).has_value());
  }
  void Move(const Load& load, std::vector<std::byte>& destination) override {
    std::vector<std::future<Status>> under_way(load.in_flight);
    // A ring of requests: before a place is used again, its last request must be complete. The
    // rounds after the last request only wait for those under way.
    for (std::size_t r = 0; r < load.requests + load.in_flight; ++r) {
      std::future<Status>& place = under_way[r % load.in_flight];
      if (place.valid()) FOREBAY_CHECK(place.get().has_value());
      if (r >= load.requests) continue;
      auto request = std::make_shared<fetch::RowRequest>();
      request->node = PeerRig::kNode;
      request->dataset = &rig_.dataset();
      // Far away: this measures throughput, and a missed deadline would end the program.
      request->deadline_ns = rig_.rig().clock().NowNs() + 60'000'000'000;
      const std::span<std::byte> memory = PlaceOf(load, r, destination);
      for (std::size_t i = 0; i < load.request_rows; ++i) {
        request->rows.push_back({.sample = SampleId(load.samples[r][i]),
                                 .field = FieldId(0),
                                 .memory = memory.subspan(i * load.row_bytes, load.row_bytes)});
      }
      // Shared, because a std::function has to be copyable and a promise is not.
      const auto outcome = std::make_shared<std::promise<Status>>();
      place = outcome->get_future();
      rig_.peers().Read(request, [outcome](const Status& status) { outcome->set_value(status); });
    }
  }

 private:
  PeerRig& rig_;
};

// A bare gRPC byte stream of as many bytes as the rows have.
class GrpcMeans final : public Means {
 public:
  GrpcMeans(const std::vector<std::byte>& source, bool has_our_settings)
      : server_(source, "127.0.0.1", 0, has_our_settings),
        client_(fmt::format("127.0.0.1:{}", server_.port()), has_our_settings) {}
  void Move(const Load& load, std::vector<std::byte>& destination) override {
    client_.Move(load.requests, load.request_rows * load.row_bytes, load.in_flight, destination);
  }

 private:
  bench::ByteServer server_;
  bench::ByteClient client_;
};

// A bare socket: sample numbers there, rows back, which sendmsg gathers from the server's memory
// and recv writes to their places.
class SocketMeans final : public Means {
 public:
  explicit SocketMeans(const std::vector<std::byte>& source) : source_(source) {
    const UniqueFd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof(address);
    // Port 0: the kernel chooses a free one, so that runs side by side do not clash.
    FOREBAY_CHECK(::bind(listener.get(), reinterpret_cast<sockaddr*>(&address), length) == 0);
    FOREBAY_CHECK(::listen(listener.get(), 1) == 0);
    ::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &length);
    asks_ = UniqueFd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    FOREBAY_CHECK(::connect(asks_.get(), reinterpret_cast<sockaddr*>(&address), length) == 0);
    answers_ = UniqueFd(::accept(listener.get(), nullptr, nullptr));
    // Requests are small, and must not wait for the acknowledgement of the one before.
    const int on = 1;
    for (const int fd : {asks_.get(), answers_.get()}) {
      ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    }
  }

  void Move(const Load& load, std::vector<std::byte>& destination) override {
    // The socket has an order, so answers come in the order of the requests, and one thread on each
    // side is enough. There are never more than in_flight requests in the socket's buffer.
    std::jthread server([&] {
      for (std::size_t r = 0; r < load.requests; ++r) Serve(load);
    });
    for (std::size_t r = 0; r < load.requests + load.in_flight; ++r) {
      if (r >= load.in_flight) {
        const std::span<std::byte> place = PlaceOf(load, r - load.in_flight, destination);
        ReceiveAll(asks_.get(), place.data(), place.size());
      }
      if (r >= load.requests) continue;
      const std::size_t bytes = load.samples[r].size() * sizeof(std::uint64_t);
      FOREBAY_CHECK(::send(asks_.get(), load.samples[r].data(), bytes, MSG_NOSIGNAL) ==
                    static_cast<ssize_t>(bytes));
    }
  }

 private:
  static void ReceiveAll(int fd, void* memory, std::size_t bytes) {
    FOREBAY_CHECK(::recv(fd, memory, bytes, MSG_WAITALL) == static_cast<ssize_t>(bytes));
  }
  void Serve(const Load& load) {
    std::vector<std::uint64_t> samples(load.request_rows);
    ReceiveAll(answers_.get(), samples.data(), samples.size() * sizeof(std::uint64_t));
    std::vector<iovec> rows;
    for (const std::uint64_t sample : samples) {
      // sendmsg does not write to it, but iovec serves reading, too, and so has no const.
      rows.push_back({const_cast<std::byte*>(source_.data() + sample * load.row_bytes),
                      load.row_bytes});
    }
    // sendmsg may take a part of what it is given. What it has taken is skipped, and the rest of a
    // row that it has cut is sent first.
    for (std::size_t begin = 0; begin < rows.size();) {
      msghdr message{};
      message.msg_iov = rows.data() + begin;
      // Below the limit of the kernel (UIO_MAXIOV, 1024), for any number of rows.
      message.msg_iovlen = std::min<std::size_t>(rows.size() - begin, 256);
      auto sent = static_cast<std::size_t>(
          std::max<ssize_t>(0, ::sendmsg(answers_.get(), &message, MSG_NOSIGNAL)));
      FOREBAY_CHECK(sent > 0);
      while (begin < rows.size() && sent >= rows[begin].iov_len) sent -= rows[begin++].iov_len;
      if (sent == 0) continue;
      rows[begin].iov_base = static_cast<std::byte*>(rows[begin].iov_base) + sent;
      rows[begin].iov_len -= sent;
    }
  }

  const std::vector<std::byte>& source_;
  UniqueFd asks_;
  UniqueFd answers_;
};

// One entry for each round.
struct Figures {
  std::vector<double> mb_per_second;
  std::vector<double> cpu_seconds_per_gb;
};

// CPU time is that of this process, and so what both daemons would use together. It is given per
// byte, so that contenders of different speed can be compared.
void Measure(Means& means, const Load& load, std::vector<std::byte>& destination,
             Figures& figures) {
  const double cpu = CpuSeconds();
  const auto begin = std::chrono::steady_clock::now();
  means.Move(load, destination);
  const std::chrono::duration<double> wall = std::chrono::steady_clock::now() - begin;
  const auto bytes = static_cast<double>(load.bytes());
  figures.mb_per_second.push_back(bytes / wall.count() / 1e6);
  figures.cpu_seconds_per_gb.push_back((CpuSeconds() - cpu) / bytes * 1e9);
}

// The set is larger than the caches of most processors, so that rows come from memory. A row of
// 114,660 bytes is a sample of the spine figures, and 64 of them are a minibatch. Nine rounds give
// a median with four rounds on either side of it.
struct Settings {
  std::uint64_t set_bytes = 192 << 20;
  std::uint64_t round_bytes = 1 << 30;
  std::size_t request_rows = 64;
  std::size_t in_flight = 8;
  std::size_t rounds = 9;
};

// Measures all contenders for rows of one size, and prints a table and our ratios to each.
void Run(std::uint64_t row_bytes, const Settings& settings) {
  const std::uint64_t rows = settings.set_bytes / row_bytes;
  // Twice the set, because extents take whole pages and staging needs memory to work in: with less,
  // some extents would lie on no tier and the GFS would be measured.
  auto rig = PeerRig::Create({.records = rows,
                              .record_bytes = row_bytes,
                              .extent_bytes = 16 << 20,
                              .stage = {.ram_bytes = 2 * settings.set_bytes,
                                        .request_bytes = 4 << 20}});
  FOREBAY_CHECK(rig.has_value());
  const std::vector<std::byte> source(rows * row_bytes, std::byte{0x5A});
  PeersMeans peers(**rig);
  GrpcMeans grpc_ours(source, /*has_our_settings=*/true);
  GrpcMeans grpc_default(source, /*has_our_settings=*/false);
  SocketMeans socket(source);
  struct Named {
    const char* name;
    Means& means;
    Figures figures = {};
  };
  Named all[] = {{"forebay peers", peers},
                 {"gRPC byte stream, same settings", grpc_ours},
                 {"gRPC byte stream, gRPC's settings", grpc_default},
                 {"socket", socket}};
  const Load load = MakeLoad(row_bytes, rows, settings.round_bytes, settings.request_rows,
                             settings.in_flight);
  std::vector<std::byte> destination(settings.in_flight * settings.request_rows * row_bytes);
  // The first round opens connections, faults pages in and grows gRPC's windows; it does not count.
  Figures unused;
  for (Named& named : all) Measure(named.means, load, destination, unused);
  for (std::size_t round = 0; round < settings.rounds; ++round) {
    for (Named& named : all) Measure(named.means, load, destination, named.figures);
  }
  fmt::print("rows of {} bytes, {} a request, {} requests in flight, {} MB a round\n", row_bytes,
             settings.request_rows, settings.in_flight, load.bytes() / 1'000'000);
  fmt::print("{:34} {:>22} {:>12} {:>26}\n", "", "MB/s (low-high)", "rows/s",
             "CPU s per GB (low-high)");
  for (const Named& named : all) {
    const Spread rate = SpreadOf(named.figures.mb_per_second);
    const Spread cpu = SpreadOf(named.figures.cpu_seconds_per_gb);
    fmt::print("{:34} {:7.0f} ({:5.0f}-{:5.0f}) {:12.0f} {:10.3f} ({:5.3f}-{:5.3f})\n", named.name,
               rate.median, rate.low, rate.high,
               rate.median * 1e6 / static_cast<double>(row_bytes), cpu.median, cpu.low, cpu.high);
  }
  // Ratios within a round, so that what disturbs a round disturbs both.
  for (std::size_t peer = 1; peer < std::size(all); ++peer) {
    std::vector<double> rate, cpu;
    for (std::size_t round = 0; round < settings.rounds; ++round) {
      rate.push_back(all[0].figures.mb_per_second[round] /
                     all[peer].figures.mb_per_second[round]);
      cpu.push_back(all[0].figures.cpu_seconds_per_gb[round] /
                    all[peer].figures.cpu_seconds_per_gb[round]);
    }
    const Spread of_rate = SpreadOf(rate);
    const Spread of_cpu = SpreadOf(cpu);
    fmt::print("  over {}: rate {:.2f} ({:.2f}-{:.2f}), CPU {:.2f} ({:.2f}-{:.2f})\n",
               all[peer].name, of_rate.median, of_rate.low, of_rate.high, of_cpu.median,
               of_cpu.low, of_cpu.high);
  }
}

}  // namespace
}  // namespace forebay::peer

int main(int argc, char** argv) {
  forebay::peer::Settings settings;
  std::vector<std::uint64_t> row_bytes = {114'660, 4'096};
  CLI::App app("Rows of another node over loopback TCP, beside a bare gRPC stream and a socket.");
  app.add_option("--row-bytes", row_bytes, "sizes of a row")->capture_default_str();
  app.add_option("--request-rows", settings.request_rows, "rows of one request")
      ->capture_default_str();
  app.add_option("--in-flight", settings.in_flight, "requests at a time")->capture_default_str();
  app.add_option("--round-bytes", settings.round_bytes, "bytes that a round moves")
      ->capture_default_str();
  app.add_option("--set-bytes", settings.set_bytes, "bytes of the data set")
      ->capture_default_str();
  app.add_option("--rounds", settings.rounds, "rounds, in each of which the means take turns")
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  // Large rows show the cost of a byte, small ones the cost of a row.
  for (const std::uint64_t bytes : row_bytes) forebay::peer::Run(bytes, settings);
  return 0;
}
