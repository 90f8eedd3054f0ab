// Translates between the C++ of PayloadCarrier and the C of the module. The callback of a payload
// lives in an object of its own until the last message has ended.
#include "server/peer/module_carrier.h"

#include <dlfcn.h>

#include <array>
#include <atomic>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace forebay::peer {
namespace {

// The module knows it as a plain pointer, the context of its C callback.
struct Callback {
  PayloadCarrier::Ended ended;
  std::atomic<std::size_t> left;  // messages

  Callback(PayloadCarrier::Ended called, std::size_t messages)
      : ended(std::move(called)), left(messages) {}
};

Status StatusOf(std::int32_t outcome, const char* error) {
  // What fails in the carrier may work with another node, so the code is one of "no answer".
  switch (outcome) {
    case kForebayEnded:
      return {};
    case kForebayCancelled:
      return Error(ErrorCode::kCancelled, error);
    case kForebayWrongLength:
      return Error(ErrorCode::kInternal, error);
    default:
      return Error(ErrorCode::kUnavailable, error);
  }
}

void CallEnded(void* context, std::uint64_t message, std::int32_t outcome, const char* error) {
  auto* const callback = static_cast<Callback*>(context);
  callback->ended(message, StatusOf(outcome, error));
  // Messages end in any order, and perhaps in several threads; the last one frees the callback.
  if (--callback->left > 0) return;
  const std::unique_ptr<Callback> last(callback);  // made by CallbackOf
}

void* CallbackOf(const Payload& payload, PayloadCarrier::Ended ended) {
  return std::make_unique<Callback>(std::move(ended), payload.ends.size()).release();
}

// A payload as the module takes it.
class CPayload {
 public:
  explicit CPayload(const Payload& payload) : ends_(payload.ends.begin(), payload.ends.end()) {
    pieces_.reserve(payload.pieces.size());
    for (const std::span<std::byte> piece : payload.pieces) {
      pieces_.push_back({piece.data(), piece.size()});
    }
    view_ = {.pieces = pieces_.data(), .ends = ends_.data(), .messages = ends_.size()};
  }
  const ForebayPayload* get() const { return &view_; }

 private:
  std::vector<ForebayPiece> pieces_;
  std::vector<std::uint64_t> ends_;
  ForebayPayload view_ = {};
};

Error Unusable(const std::string& path, const std::string& why) {
  return Error(ErrorCode::kFailedPrecondition, fmt::format("peer.module {}: {}", path, why));
}

}  // namespace

Result<std::unique_ptr<ModuleCarrier>> ModuleCarrier::Load(const ModuleCarrierOptions& options) {
  // MPI loads modules of its own, which find its functions only if these are global.
  void* const library = dlopen(options.path.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr) {
    return Unusable(options.path, fmt::format("cannot be loaded: {}; install it, or build it "
                                              "against the MPI of this machine "
                                              "(server/peer/mpi/README.md)",
                                              dlerror()));
  }
  // dlsym gives a void*, which POSIX lets convert to a function.
  const auto get =
      reinterpret_cast<ForebayPayloadModuleFunction>(dlsym(library, kForebayPayloadSymbol));
  if (get == nullptr) {
    return Unusable(options.path, fmt::format("is no module of Forebay: it has no function {}",
                                              kForebayPayloadSymbol));
  }
  // Its functions may have other parameters in another version, so none is called before this.
  const ForebayPayloadModule& module = *get();
  if (module.version != kForebayPayloadVersion) {
    return Unusable(options.path, fmt::format("has version {} of the interface, and this daemon "
                                              "has {}: build it from the same sources",
                                              module.version,
                                              static_cast<std::uint32_t>(kForebayPayloadVersion)));
  }
  const ForebayNode self{.rank = options.self.value(),
                         .node_count = options.node_count,
                         .name = options.name.c_str()};
  std::array<char, 1024> error{};
  if (module.start(&self, error.data(), error.size()) != 0) {
    return Unusable(options.path, error.data());
  }
  return std::unique_ptr<ModuleCarrier>(new ModuleCarrier(module, options));
}

bool ModuleCarrier::Leave(std::int64_t wait_ms) {
  return module_.leave(static_cast<std::uint64_t>(wait_ms)) == 0;
}

PayloadPlace ModuleCarrier::Receive(NodeRank node, const Payload& payload, Ended ended) {
  return {.tag = module_.receive(node.value(), CPayload(payload).get(), &CallEnded,
                                 CallbackOf(payload, std::move(ended)))};
}

void ModuleCarrier::Send(NodeRank node, const PayloadPlace& place, const Payload& payload,
                         Ended ended) {
  module_.send(node.value(), place.tag, CPayload(payload).get(), &CallEnded,
               CallbackOf(payload, std::move(ended)));
}

bool ModuleCarrier::CanSend(NodeRank node, const PayloadPlace& place) {
  return node.value() < node_count_ && node != self_ && place.tag != 0 &&
         place.tag <= module_.tag_max();
}

}  // namespace forebay::peer
