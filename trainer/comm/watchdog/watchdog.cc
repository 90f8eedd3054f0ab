// A star of TCP connections: rank 0 listens, and every other rank connects to it. Each side sends
// heartbeats and judges those of the other. A rank that finds another one lost tells rank 0, or
// rank 0 tells all, with a heartbeat that says so; then each process ends. The thread never calls
// MPI and takes no lock that the main thread could hold for long.
#include "trainer/comm/watchdog/watchdog.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "proto/contract/check.h"
#include "trainer/comm/watchdog/beat_link.h"

namespace forebay::train {
namespace {

// Between two beats: the age of the last known instruction. Rank 0 reads those of all ranks, so
// that large jobs beat more slowly.
constexpr std::uint64_t kBeatNs = 100'000'000;
constexpr std::uint64_t kBeatNsPerRank = 1'000'000;
constexpr int kConnectTimeoutMs = 1000;
// Ranks that have not said who they are after this long are not watched.
constexpr std::uint64_t kMeetingNs = 15'000'000'000;
// Connections beside those of the ranks: strangers that have not been found out yet.
constexpr std::size_t kStrangersMax = 16;

std::uint64_t NowNs() {
  return static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch() /
                                    std::chrono::nanoseconds(1));
}

// The other end of a connection: rank 0 has one for each other rank, and every other rank has one,
// to rank 0.
struct Peer {
  BeatConnection connection;
  std::optional<std::uint32_t> rank = std::nullopt;  // once it has said so
  std::uint64_t since_ns = 0;
};

}  // namespace

// Sockets, heartbeats and judgement of one rank, and the thread that works with them.
class Watchdog::Thread {
 public:
  Thread(const Communicator& communicator, const Progress& progress, WatchdogOptions options)
      : progress_(progress),
        options_(std::move(options)),
        watch_(options_.watch),
        rank_(communicator.rank()),
        size_(communicator.size()),
        host_(HostName()),
        // At least four heartbeats fit into the limit of silence, so that single late ones do no
        // harm.
        beat_ns_(std::clamp(kBeatNsPerRank * size_, kBeatNs,
                            std::max(kBeatNs, options_.watch.limit_ns / 4))),
        wake_(::eventfd(0, EFD_CLOEXEC)) {}

  // The thread may be waiting in poll, which a request to stop does not end. The event does.
  ~Thread() {
    if (!thread_.joinable()) return;
    thread_.request_stop();
    const std::uint64_t one = 1;
    FOREBAY_CHECK(::write(wake_.get(), &one, sizeof one) == sizeof one);
  }

  // Rank 0 opens its port; the others learn of it. Then the thread starts.
  Status Open(Communicator& communicator);

 private:
  void Run(const std::stop_token& stop);
  Beat OwnBeat() const;
  void Meet();
  void SendBeats(const Beat& beat);
  void Listen(std::uint64_t until_ns);
  void Accept();
  // False where the connection is of no more use.
  bool Hear(Peer& peer);
  // True where the job has to end, which it then does.
  bool Judge();
  void ReportUnwatched(std::uint64_t now_ns);
  void EndJob(const std::string& why, std::uint64_t grace_ns);
  void SendLast(std::uint8_t last);

  const Progress& progress_;
  WatchdogOptions options_;
  RankWatch watch_;
  std::uint32_t rank_;
  std::uint32_t size_;
  std::string host_;
  std::uint64_t beat_ns_;
  UniqueFd wake_;
  MeetingPoint point_;
  UniqueFd listener_;  // of rank 0
  std::vector<Peer> peers_;
  std::vector<std::uint32_t> met_;
  std::optional<std::string> gone_;  // whose process has died
  bool told_ = false;                // that the job ends
  std::uint64_t met_by_ns_ = 0;
  std::jthread thread_;  // last: the others outlive it
};

// All ranks go on, watched or not: a network that lets no TCP through is no reason to fail.
Status Watchdog::Thread::Open(Communicator& communicator) {
  if (!wake_.valid()) return Error(ErrorCode::kResourceExhausted, "eventfd: no descriptor");
  if (rank_ == 0) {
    if (::getrandom(&point_.job, sizeof point_.job, 0) != sizeof point_.job) {
      return Error(ErrorCode::kInternal, "getrandom: no key for the watchdog");
    }
    Result<UniqueFd> listener = ListenForBeats(point_);
    if (listener.has_value()) {
      listener_ = *std::move(listener);
    } else {
      // The port of the meeting point stays 0, which tells the other ranks that there is nothing
      // to connect to.
      options_.print("the watchdog is off: " + listener.error().message());
    }
  }
  FOREBAY_TRY(communicator.Broadcast(std::as_writable_bytes(std::span(&point_, 1)), 0));
  if (point_.port == 0) return {};
  met_by_ns_ = NowNs() + kMeetingNs;
  thread_ = std::jthread([this](const std::stop_token& stop) { Run(stop); });
  return {};
}

void Watchdog::Thread::Run(const std::stop_token& stop) {
  if (rank_ != 0) Meet();
  std::uint64_t before_ns = NowNs();
  while (!stop.stop_requested()) {
    const std::uint64_t now_ns = NowNs();
    // A gap between two rounds of this loop means that this process did not run, for example
    // because a batch system suspended the job. It then knows nothing of the others and judges
    // nobody.
    if (now_ns - before_ns > options_.watch.limit_ns / 2) watch_.Forgive(now_ns);
    before_ns = now_ns;
    watch_.Heard(rank_, host_, progress_.Read(), now_ns);
    SendBeats(OwnBeat());
    Listen(now_ns + beat_ns_);
    // The job ends, and Judge has told the other ranks if they did not know.
    if (Judge()) return;
  }
  SendLast(kLastOfRank);
}

void Watchdog::Thread::SendLast(std::uint8_t last) {
  Beat beat = OwnBeat();
  beat.last = last;
  SendBeats(beat);
}

Beat Watchdog::Thread::OwnBeat() const {
  // A consistent copy of what the main thread does at the moment.
  const Progress::Note note = progress_.Read();
  Beat beat;
  beat.job = point_.job;
  beat.rank = rank_;
  beat.changes = note.changes;
  beat.waits = note.waits ? 1 : 0;
  SetText(beat.host, host_);
  SetText(beat.text, note.text);
  return beat;
}

// Connects to rank 0. Without a connection this rank is not watched, which is no reason to fail.
void Watchdog::Thread::Meet() {
  Result<UniqueFd> fd = ConnectBeats(point_, kConnectTimeoutMs);
  if (fd.has_value()) {
    peers_.push_back({.connection = BeatConnection(*std::move(fd)), .rank = 0});
  } else {
    options_.print(fmt::format("rank {} (host {}) is not watched: {}", rank_, host_,
                               fd.error().message()));
  }
}

void Watchdog::Thread::SendBeats(const Beat& beat) {
  // A connection that fails here is found closed when it is read.
  for (Peer& peer : peers_) {
    if (peer.rank) (void)peer.connection.Send(beat);
  }
}

// Hears what comes until the time is over or the watchdog is to stop.
void Watchdog::Thread::Listen(std::uint64_t until_ns) {
  while (!gone_ && !told_) {
    const std::uint64_t now_ns = NowNs();
    if (now_ns >= until_ns) return;
    std::vector<pollfd> polled = {{.fd = wake_.get(), .events = POLLIN, .revents = 0},
                                  {.fd = listener_.get(), .events = POLLIN, .revents = 0}};
    for (const Peer& peer : peers_) {
      polled.push_back({.fd = peer.connection.fd(), .events = POLLIN, .revents = 0});
    }
    // Rounded up: with a timeout of 0 the loop would spin through the last millisecond.
    const auto timeout_ms = static_cast<int>((until_ns - now_ns) / 1'000'000 + 1);
    if (::poll(polled.data(), polled.size(), timeout_ms) <= 0) continue;
    // The destructor wants the thread to end.
    if (polled[0].revents != 0) return;
    // erase_if visits the peers in order, as they stand in `polled`. New peers come after that.
    std::size_t at = 2;
    std::erase_if(peers_, [&](Peer& peer) {
      return polled[at++].revents != 0 && !Hear(peer);
    });
    if (polled[1].revents != 0) Accept();
  }
}

// A stranger may connect; it has to name the job before it counts as a rank.
void Watchdog::Thread::Accept() {
  UniqueFd fd = AcceptBeats(listener_.get());
  // Beyond the limit the connection is closed at once: strangers cannot use up the descriptors of
  // the process.
  if (!fd.valid() || peers_.size() >= size_ + kStrangersMax) return;
  peers_.push_back({.connection = BeatConnection(std::move(fd)), .since_ns = NowNs()});
}

// Reads what a peer has sent, and notes its rank, its heartbeats and its farewell.
bool Watchdog::Thread::Hear(Peer& peer) {
  std::vector<Beat> beats;
  const bool open = peer.connection.Receive(beats);
  for (const Beat& beat : beats) {
    // A stranger does not know the job's number. A connection keeps the rank that it named first.
    const bool known = beat.job == point_.job && beat.rank < size_ && beat.rank != rank_ &&
                       (!peer.rank || *peer.rank == beat.rank);
    if (!known) return false;
    // Rank 0 counts the ranks that have reached it, for ReportUnwatched.
    if (!peer.rank) met_.push_back(beat.rank);
    peer.rank = beat.rank;
    if (beat.last != 0) {
      // Its connection may close from now on without meaning anything.
      watch_.Left(beat.rank);
      // Another rank's ordinary farewell may come in the same round.
      told_ = told_ || beat.last == kLastOfJob;
      return false;
    }
    watch_.Heard(beat.rank, TextOf(beat.host),
                 {.changes = beat.changes, .text = TextOf(beat.text), .waits = beat.waits != 0},
                 NowNs());
  }
  // Closed without a farewell: the process has died.
  if (!open && peer.rank && watch_.Watches(*peer.rank)) gone_ = watch_.Gone(*peer.rank);
  return open;
}

// Decides after each round whether the job has to end.
bool Watchdog::Thread::Judge() {
  const std::uint64_t now_ns = NowNs();
  const std::optional<std::string> silent = watch_.Silent(now_ns);
  if (told_ || gone_ || silent) {
    // The launcher sees by itself that a process has died, not that one is stopped.
    EndJob(gone_ ? *gone_ : silent.value_or(""), told_ || gone_ ? options_.launcher_ns : 0);
    return true;
  }
  // Rank 0 sees all ranks, so that it alone reports those that stand still.
  if (rank_ != 0) return false;
  for (const std::string& line : watch_.Stuck(now_ns)) options_.print(line);
  ReportUnwatched(now_ns);
  return false;
}

void Watchdog::Thread::ReportUnwatched(std::uint64_t now_ns) {
  // Connections that never said who they are.
  std::erase_if(peers_, [&](const Peer& peer) {
    return !peer.rank && now_ns - peer.since_ns > kMeetingNs;
  });
  // 0 means that this has been reported.
  if (met_by_ns_ == 0 || now_ns < met_by_ns_) return;
  met_by_ns_ = 0;
  if (met_.size() + 1 < size_) {
    options_.print(fmt::format("{} of {} ranks have not reached the watchdog: they are not watched",
                               size_ - 1 - met_.size(), size_));
  }
}

// Tells the peers why, then ends this process, unless the launcher or the main thread is faster.
void Watchdog::Thread::EndJob(const std::string& why, std::uint64_t grace_ns) {
  if (!told_) {
    // The first to notice prints. Who is told only ends.
    options_.print(why + "; the job ends");
    SendLast(kLastOfJob);
  }
  pollfd waited = {.fd = wake_.get(), .events = POLLIN, .revents = 0};
  // Not where this rank ends by itself meanwhile.
  if (::poll(&waited, 1, static_cast<int>(grace_ns / 1'000'000)) == 0) options_.end_job();
}

Watchdog::Watchdog(std::unique_ptr<Thread> thread) : thread_(std::move(thread)) {}

Watchdog::~Watchdog() = default;

Result<std::unique_ptr<Watchdog>> Watchdog::Start(Communicator& communicator,
                                                  WatchdogOptions options) {
  FOREBAY_CHECK(options.print && options.end_job);
  auto thread =
      std::make_unique<Thread>(communicator, communicator.progress(), std::move(options));
  if (communicator.size() > 1) FOREBAY_TRY(thread->Open(communicator));
  return std::unique_ptr<Watchdog>(new Watchdog(std::move(thread)));
}

}  // namespace forebay::train
