// One rank of a job that watchdog_job_test starts with mpirun: rank 1 misbehaves at step 7.
// Prints its process id first. Argument: stop, kill, exit, spin or none.
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <string_view>
#include <thread>

#include "trainer/comm/transport/mpi_transport.h"
#include "trainer/comm/watchdog/watchdog.h"

namespace forebay::train {
namespace {

void Misbehave(std::string_view how) {
  // Long enough for a beat to tell what the rank is at.
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  if (how == "stop") ::raise(SIGSTOP);
  if (how == "kill") ::raise(SIGKILL);
  if (how == "exit") ::_exit(3);
  while (how == "spin") std::this_thread::yield();
}

Status Work(Communicator& communicator, std::string_view how) {
  for (int step = 0; step < 10; ++step) {
    communicator.progress().Enter(fmt::format("step {}", step));
    communicator.progress().At(fmt::format("F micro-batch 3 of stage {}", communicator.rank()));
    if (step == 7 && communicator.rank() == 1) Misbehave(how);
    FOREBAY_TRY(communicator.Barrier());
  }
  return {};
}

Status Run(std::string_view how) {
  FOREBAY_ASSIGN(std::unique_ptr<Transport> transport, MakeMpiTransport());
  // A rank that spins stays alive, so that only the wait of the other ranks ends the job: that
  // wait is short. In the other cases the watchdog must be faster than the wait.
  const std::uint64_t timeout_ns = how == "spin" ? 3'000'000'000 : 60'000'000'000;
  Communicator communicator(std::move(transport), timeout_ns);
  fmt::print("rank {} is process {}\n", communicator.rank(), ::getpid());
  std::fflush(stdout);
  WatchdogOptions options;
  // Soon, so that the report of a rank that spins comes before the job ends.
  options.watch.report_ns = 1'000'000'000;
  options.print = [](const std::string& line) { fmt::print(stderr, "{}\n", line); };
  options.end_job = [] { ::_exit(1); };
  FOREBAY_ASSIGN(const std::unique_ptr<Watchdog> watchdog,
                 Watchdog::Start(communicator, std::move(options)));
  const Status done = Work(communicator, how);
  if (!done.has_value()) {
    fmt::print(stderr, "{}\n", done.error().ToString());
    communicator.Abort(1);
  }
  return done;
}

}  // namespace
}  // namespace forebay::train

int main(int argc, char** argv) {
  return forebay::train::Run(argc > 1 ? argv[1] : "none").has_value() ? 0 : 1;
}
