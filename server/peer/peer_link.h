// PeerLink: the connection of this node to one other node. It says Hello before anything else,
// bounds the bytes that are under way, and lets calls wait for their turn without a thread. It
// knows for how long nothing has come of each call, and ends those that are late (LinkWatch). A
// link that is not used has no channel of gRPC, and needs little memory (OpenChannels).
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include <grpcpp/channel.h>

#include "proto/contract/result.h"
#include "proto/contract/thread_annotations.h"
#include "server/io/clock.h"
#include "server/peer/answer_times.h"
#include "server/peer/flight_bound.h"
#include "server/peer/job_certificates.h"
#include "server/peer/node_report.h"
#include "server/peer/peer_call.h"
#include "server/peer/peer_identity.h"
#include "server/peer/watched_link.h"

namespace forebay::peer {

class OpenChannels;

// Thread-safe. Makes its channel and connects at the first call, and again whenever the connection
// was lost, or the channel was taken because other links needed the place.
class PeerLink final : public WatchedLink {
 public:
  // `identity` and `certificates` (null: plaintext) are this node's, `address` is the other one's.
  // It is empty if nobody is there yet: then each call fails at once with kUnavailable. The clock
  // is borrowed, and so is `channels`, which is told of each channel (null: there is no bound).
  PeerLink(const PeerIdentity& identity, std::string address, io::Clock& clock,
           std::shared_ptr<const NodeCertificates> certificates = nullptr,
           OpenChannels* channels = nullptr);
  // Calls must have ended (Stop).
  ~PeerLink() override;

  std::string address() const;
  // From now on the other node is at `address`, or is nobody if that is empty. All calls end with
  // kUnavailable, as after GiveUp, and probes and pings, too; this does not wait for that. Later
  // ones go to the new address, to which Hello is said. What was measured at the old one does not
  // count any more. Returns false, and has no effect, if the address is not another one, and after
  // Stop. Not to be called by a callback of a call, as long as the process has no PeerServer.
  bool Redirect(const std::string& address);

  // Begins the call when the node has agreed to Hello and there is room for the call's bytes, in
  // the order of Start; perhaps within this call. The call fails with the error of Hello, or if all
  // that takes longer than its deadline: with stage::NotSent, or with kDeadlineExceeded if the node
  // has not agreed to Hello yet.
  void Start(std::shared_ptr<PeerCall> call) { Add(std::move(call), std::nullopt); }
  // Makes a call again that the node has refused (BusyRetry): as Start, but the call rests until
  // `begin_ns`, by io::Clock, and holds up no other one meanwhile. Then it comes first.
  void StartLater(std::shared_ptr<PeerCall> call, std::int64_t begin_ns) {
    Add(std::move(call), begin_ns);
  }
  // Begins the call without waiting for Hello or for room.
  void StartAtOnce(const std::shared_ptr<PeerCall>& call);
  // Fails the call with kCancelled if it waits, and cancels it if it has begun; if it has not come
  // to Start yet, Start will fail it. No effect on a call that has ended. To be called without a
  // lock that the end of a call may take.
  void Withdraw(PeerCall& call);
  // To be called by a call that has begun and has ended, as the last thing that it does.
  // `answered_bytes` are those of the call, if it was answered in full. Then the time that it took
  // counts for how many bytes may be under way.
  void Ended(PeerCall& call, std::uint64_t answered_bytes = 0);
  // Counts a call that has ended, for figures(). `carried_bytes` are those of `received_bytes` that
  // a PayloadCarrier has brought.
  void Count(std::uint64_t received_bytes, bool has_failed, std::uint64_t carried_bytes = 0);
  // Counts an answer whose bytes did not match their checksum.
  void CountWrong();
  LinkFigures figures();

  // The node counts as dead: calls that wait, and those that Start has begun, end with
  // kUnavailable, as if the node had not answered. Does not wait for that. Later calls are made as
  // ever.
  void GiveUp();

  struct ChannelUse {
    bool is_open = false;      // the link has a channel
    bool is_needed = false;    // it connects, has calls that are under way or wait, or is held
    std::int64_t used_ns = 0;  // when a call has last come or ended, by io::Clock
  };
  ChannelUse channel_use() const;
  // Returns the channel, which the caller releases without a lock; null if it is needed, or if
  // there is none. The next call makes another one. It does not say Hello again, because the node
  // is still the one that has agreed.
  std::shared_ptr<grpc::Channel> TakeUnusedChannel();

  LinkState AddSilence(std::int64_t elapsed_ns,
                       const std::function<bool()>& is_suspected) override;
  void EndLate(std::int64_t after_ns, const std::string& why) override;

  // Fails calls that wait, cancels those that have begun, and waits until all have ended.
  void Stop();

 private:
  struct HelloCall;
  using Calls = std::vector<std::shared_ptr<PeerCall>>;
  // Calls that are to end: those that were waiting, and those that have begun.
  struct Ending {
    Calls waiting;
    Calls active;
  };
  enum class AtOnce : bool { kGoOn, kEnd };  // calls of StartAtOnce

  // Makes the channel if there is none, for a call that is added now. Requires that a node is at
  // the address. Returns whether OpenChannels::Used is to be called, without the mutex.
  bool UseChannelLocked() FOREBAY_REQUIRES(mutex_);
  bool NeedsChannelLocked() const FOREBAY_REQUIRES(mutex_);
  void Add(std::shared_ptr<PeerCall> call, std::optional<std::int64_t> begin_ns);
  void SayHello(const std::shared_ptr<HelloCall>& call);
  void HeardHello(const HelloCall* raw, const Status& status);
  // Takes the calls that may begin now off the list. The caller begins them without the mutex.
  Calls TakeReadyLocked() FOREBAY_REQUIRES(mutex_);
  void SetAlarmLocked(const std::shared_ptr<PeerCall>& call) FOREBAY_REQUIRES(mutex_);
  void SetRestAlarmLocked(const std::shared_ptr<PeerCall>& call, std::int64_t begin_ns)
      FOREBAY_REQUIRES(mutex_);
  static void CancelAlarms(PeerCall& call);
  void AlarmEnded(const PeerCall* raw, bool has_gone_off);
  void RestEnded(const PeerCall* raw);
  void Expire(const std::shared_ptr<PeerCall>& call);
  static void BeginAll(const Calls& calls);
  // Takes the calls that are to end because `is_meant` says so, which is called under the mutex.
  // They must be given to End.
  Ending TakeToEndLocked(const std::function<bool(const PeerCall&)>& is_meant, AtOnce at_once)
      FOREBAY_REQUIRES(mutex_);
  // Those that wait fail with `why`, which is kUnavailable.
  void End(Ending calls, const Error& why);
  std::optional<Error> WhyRefusedLocked() const FOREBAY_REQUIRES(mutex_);
  void AddBusyTimeLocked() FOREBAY_REQUIRES(mutex_);

  const PeerIdentity identity_;
  const std::shared_ptr<const NodeCertificates> certificates_;  // of all links
  io::Clock& clock_;
  OpenChannels* const channels_;

  enum class Hello : std::uint8_t { kUnsaid, kUnderWay, kAgreed };
  mutable Mutex mutex_;
  CondVar changed_;
  std::string address_ FOREBAY_GUARDED_BY(mutex_);  // empty: nobody is there
  // Null: no call to this address needs one. Never null while a call to it waits or is under way.
  std::shared_ptr<grpc::Channel> channel_ FOREBAY_GUARDED_BY(mutex_);
  std::int64_t used_ns_ FOREBAY_GUARDED_BY(mutex_) = 0;  // of ChannelUse
  // Those of earlier addresses, to which calls may still refer.
  std::vector<std::shared_ptr<grpc::Channel>> old_channels_ FOREBAY_GUARDED_BY(mutex_);
  std::uint64_t old_wrong_ FOREBAY_GUARDED_BY(mutex_) = 0;  // of LinkFigures, at those
  bool is_stopping_ FOREBAY_GUARDED_BY(mutex_) = false;
  Hello hello_ FOREBAY_GUARDED_BY(mutex_) = Hello::kUnsaid;
  std::shared_ptr<HelloCall> hello_call_ FOREBAY_GUARDED_BY(mutex_);  // while it is under way
  // Until they are answered: hello_call_, and those to earlier addresses.
  std::vector<std::shared_ptr<HelloCall>> hellos_ FOREBAY_GUARDED_BY(mutex_);
  std::deque<std::shared_ptr<PeerCall>> waiting_ FOREBAY_GUARDED_BY(mutex_);
  std::unordered_set<std::shared_ptr<PeerCall>> active_ FOREBAY_GUARDED_BY(mutex_);
  std::size_t ending_ FOREBAY_GUARDED_BY(mutex_) = 0;  // calls that are being destroyed
  std::uint64_t bytes_in_flight_ FOREBAY_GUARDED_BY(mutex_) = 0;
  FlightBound bound_ FOREBAY_GUARDED_BY(mutex_);
  AnswerTimes answer_times_ FOREBAY_GUARDED_BY(mutex_);  // of watched calls, from Start on
  LinkFigures figures_ FOREBAY_GUARDED_BY(mutex_);
  std::size_t under_way_ FOREBAY_GUARDED_BY(mutex_) = 0;  // calls that Start has begun
  std::int64_t busy_since_ns_ FOREBAY_GUARDED_BY(mutex_) = 0;  // if under_way_ is not 0
  // Calls of which an alarm was set, until its callback has run. A call has one at a time.
  std::unordered_set<std::shared_ptr<PeerCall>> alarmed_ FOREBAY_GUARDED_BY(mutex_);
};

}  // namespace forebay::peer
