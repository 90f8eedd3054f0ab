// grpc_stream: a bare gRPC byte stream between two processes, which shows what gRPC alone costs for
// the bytes that nodes send each other. `grpc_stream serve` prints "ready" and answers until it
// gets SIGTERM; `grpc_stream ask` moves bytes and prints a line of JSON.
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "bench/nodes/grpc_bytes.h"
#include "bench/peers/run_report.h"
#include "server/peer/message_memory.h"

namespace forebay::bench {
namespace {

struct Options {
  std::string host;
  int port = 0;
  std::size_t set_bytes = 192 << 20;  // more than most caches hold
  std::size_t request_bytes = 0;
  std::size_t in_flight = 8;
  std::size_t total_bytes = 0;
};

int Serve(const Options& options) {
  // Blocked before gRPC starts its threads, which inherit the mask.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigprocmask(SIG_BLOCK, &signals, nullptr);
  const std::vector<std::byte> source(options.set_bytes, std::byte{0x5A});
  const ByteServer server(source, options.host, options.port, /*has_our_settings=*/true);
  std::printf("ready\n");
  std::fflush(stdout);
  int signal = 0;
  sigwait(&signals, &signal);
  return 0;
}

int Ask(const Options& options) {
  ByteClient client(options.host + ":" + std::to_string(options.port), /*has_our_settings=*/true);
  std::vector<std::byte> memory(options.in_flight * options.request_bytes);
  const std::size_t requests =
      std::max(options.in_flight, options.total_bytes / options.request_bytes);
  // The first window opens the connection and faults pages in; it does not count.
  client.Move(options.in_flight, options.request_bytes, options.in_flight, memory);
  const double cpu = CpuSeconds();
  const double begin = NowSeconds();
  client.Move(requests, options.request_bytes, options.in_flight, memory);
  const nlohmann::json report = {{"bytes", requests * options.request_bytes},
                                 {"moved_bytes", (requests + options.in_flight) *
                                                     options.request_bytes},
                                 {"seconds", NowSeconds() - begin},
                                 {"cpu_seconds", CpuSeconds() - cpu}};
  std::printf("%s\n", report.dump().c_str());
  return 0;
}

}  // namespace
}  // namespace forebay::bench

int main(int argc, char** argv) {
  forebay::bench::Options options;
  CLI::App app("grpc_stream: a bare gRPC byte stream between two processes");
  app.require_subcommand(1);
  CLI::App& serve = *app.add_subcommand("serve", "answers until SIGTERM");
  CLI::App& ask = *app.add_subcommand("ask", "moves bytes and prints what that took");
  for (CLI::App* end : {&serve, &ask}) {
    end->add_option("--host", options.host, "address of the serving end")->required();
    end->add_option("--port", options.port, "its port")->required();
  }
  serve.add_option("--set-bytes", options.set_bytes, "memory to send from")->capture_default_str();
  ask.add_option("--request-bytes", options.request_bytes, "bytes of an answer")->required();
  ask.add_option("--in-flight", options.in_flight, "requests at a time")->capture_default_str();
  ask.add_option("--total-bytes", options.total_bytes, "bytes to move")->required();
  CLI11_PARSE(app, argc, argv);
  // As the daemons do: without it, the kernel clears memory for every message that is received.
  forebay::peer::KeepMessageMemory();
  return serve.parsed() ? forebay::bench::Serve(options) : forebay::bench::Ask(options);
}
