// The interface of a loadable module that moves payloads between nodes (payload_carrier.h). It is
// in C, and this header needs nothing else of Forebay, so that a site can compile the module of
// mpi/ alone against its own MPI (mpi/README.md). Daemon and module compare the version.
//
// The module is started once in a process. All its functions but `start` and `leave` return without
// waiting, and any thread may call them.
#pragma once

#include <cstdint>

extern "C" {

enum : std::uint32_t { kForebayPayloadVersion = 1 };

struct ForebayPiece {
  void* data;
  std::uint64_t bytes;
};

// The form in C of forebay::peer::Payload. The module copies what it needs before it returns.
struct ForebayPayload {
  const ForebayPiece* pieces;
  const std::uint64_t* ends;  // by message: the index behind its last piece
  std::uint64_t messages;
};

enum ForebayOutcome : std::int32_t {
  kForebayEnded = 0,
  kForebayCancelled = 1,
  kForebayWrongLength = 2,
  kForebayFailed = 3,
};

// Called by the module's thread, once for each message. `error` is null, or says what has happened;
// it is valid during the call.
using ForebayEndedFunction = void (*)(void* context, std::uint64_t message,
                                      std::int32_t outcome, const char* error);

struct ForebayNode {
  std::uint32_t rank;
  std::uint32_t node_count;
  const char* name;  // for messages; at most 255 bytes are used
};

struct ForebayPayloadModule {
  std::uint32_t version;  // kForebayPayloadVersion

  // Blocks until all nodes have started their modules, and have found that they are numbered alike.
  // Returns 0, or writes an error of at most `error_bytes` with its final zero.
  std::int32_t (*start)(const ForebayNode* self, char* error, std::uint64_t error_bytes);
  // These do what the functions of forebay::peer::PayloadCarrier do.
  std::uint32_t (*receive)(std::uint32_t node, const ForebayPayload* payload,
                           ForebayEndedFunction ended, void* context);
  void (*cancel)(std::uint32_t tag);
  void (*send)(std::uint32_t node, std::uint32_t tag, const ForebayPayload* payload,
               ForebayEndedFunction ended, void* context);
  std::uint32_t (*tag_max)();
  // Waits until all nodes leave, for `wait_ms` at most, and ends the module in order. Returns 0, or
  // not 0 if the others have not come: the launcher then takes the end of this process for a
  // failure. Nothing may be under way.
  std::int32_t (*leave)(std::uint64_t wait_ms);
};

// The only symbol that a module has to export.
using ForebayPayloadModuleFunction = const ForebayPayloadModule* (*)();

}  // extern "C"

// The name of this function, for dlsym.
inline constexpr const char* kForebayPayloadSymbol = "forebay_payload_module";
