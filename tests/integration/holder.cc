#include "tests/integration/holder.h"

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "proto/contract/check.h"
#include "tests/integration/daemon_rig.h"

namespace forebay::integration {

void HoldBatches(RawClient& client, RawStream& stream, const std::string& name,
                 std::uint32_t batches, Delivery delivery) {
  v1::StreamRequest open = GoodOpen(client.Describe(kDataset), 64);
  open.mutable_open()->set_stream_name(name);
  open.mutable_open()->set_delivery(static_cast<std::uint32_t>(delivery));
  stream.Write(open);
  stream.Write(PullOf(0, batches));
  for (std::uint32_t held = 0; held < batches;) {
    const auto reply = stream.Read();
    FOREBAY_CHECK(reply.has_value());
    held += static_cast<std::uint32_t>(reply->batches_size());
  }
}

void OpenInline(RawClient& client, RawStream& stream) {
  v1::StreamRequest open = GoodOpen(client.Describe(kDataset), 64);
  open.mutable_open()->set_credits(kInlineBatches);
  open.mutable_open()->set_inline_payload(true);
  stream.Write(open);
  FOREBAY_CHECK(stream.Read().has_value());
}

Holder::Holder(const std::string& socket_path, HolderKind kind) {
  int held[2];
  int start[2];
  FOREBAY_CHECK(pipe(held) == 0 && pipe(start) == 0);
  held_fd_ = UniqueFd(held[0]);
  start_fd_ = UniqueFd(start[1]);
  pid_ = fork();
  FOREBAY_CHECK(pid_ >= 0);
  if (pid_ == 0) {
    char byte = 0;
    (void)!read(start[0], &byte, 1);
    RawClient client(socket_path);
    RawStream stream(client);
    if (kind == HolderKind::kInlineUnread) {
      OpenInline(client, stream);
      stream.Write(PullOf(0, kInlineBatches));
    } else {
      HoldBatches(client, stream, "mortal", 4,
                  kind == HolderKind::kViews ? Delivery::kViews : Delivery::kContiguous);
    }
    (void)!write(held[1], "h", 1);
    for (;;) pause();
  }
  close(held[1]);
  close(start[0]);
}

Holder::~Holder() { Kill(); }

bool Holder::Hold() {
  char byte = 0;
  return write(start_fd_.get(), "s", 1) == 1 && read(held_fd_.get(), &byte, 1) == 1;
}

void Holder::Stop() const { FOREBAY_CHECK(kill(pid_, SIGSTOP) == 0); }

void Holder::Kill() {
  if (pid_ <= 0) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
  pid_ = -1;
}

}  // namespace forebay::integration
