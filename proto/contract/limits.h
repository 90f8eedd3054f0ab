// Every published bound of Forebay, in one place (promise P6). Each limit is checked where
// the bytes enter; its error names the limit. Units last in every name.
#pragma once

#include <cstddef>
#include <cstdint>

namespace forebay::limits {

inline constexpr std::uint64_t kKiB = 1024;
inline constexpr std::uint64_t kMiB = 1024 * kKiB;
inline constexpr std::uint64_t kGiB = 1024 * kMiB;

// --- data sets and catalogs --------------------------------------------------------------
inline constexpr std::uint64_t kExtentBytesMax = 64 * kMiB;  // the unit of reads and placement
inline constexpr std::uint64_t kExtentBytesDefault = 32 * kMiB;
inline constexpr std::uint64_t kSampleCountMax = 1ULL << 40;  // positions stay exact in a double
inline constexpr std::uint32_t kObjectCountMax = 1U << 28;
inline constexpr std::uint32_t kExtentCountMax = 1U << 24;   // 1 PiB of full extents
inline constexpr std::uint32_t kSamplesPerExtentMax = 1U << 20;  // bounds one sample page
inline constexpr std::uint32_t kFieldCountMax = 64;          // fields of one sample
inline constexpr std::uint32_t kDimensionCountMax = 8;       // of one tensor
inline constexpr std::size_t kNameBytesMax = 255;            // a field, class or data-set name
inline constexpr std::size_t kPathBytesMax = 4095;           // beneath a root
inline constexpr std::uint64_t kCatalogFileBytesMax = 64 * kGiB;
inline constexpr std::uint64_t kCatalogHeaderBytesMax = 1 * kMiB;
inline constexpr std::uint64_t kClassCountMax = 1U << 20;    // image-folder classes
inline constexpr std::uint64_t kIdListBytesMax = 256 * kMiB; // a "split by list" file

// --- streams -----------------------------------------------------------------------------
inline constexpr std::uint32_t kGlobalBatchMax = 1U << 20;   // samples per step over all ranks
inline constexpr std::uint32_t kLocalBatchMax = 1U << 16;    // samples in one minibatch
inline constexpr std::uint64_t kSlotBytesMax = 1 * kGiB;
inline constexpr std::uint32_t kCreditsMax = 64;             // minibatches a rank may hold
inline constexpr std::uint32_t kStreamsPerClientMax = 16;
inline constexpr std::uint32_t kClientsMax = 256;            // connections of one daemon
inline constexpr std::uint32_t kPullStepsMax = 64;           // steps named by one pull
inline constexpr std::size_t kPositionTokenBytesMax = 256;
inline constexpr std::uint64_t kViewPinnedBytesDefault = 512 * kMiB;  // per client

// --- wire --------------------------------------------------------------------------------
inline constexpr int kRpcMessageBytesMax = 4 * 1024 * 1024;  // both directions, both services
inline constexpr std::uint32_t kInlineChunkBytes = 1024 * 1024;
inline constexpr int kRpcMetadataBytesMax = 8 * 1024;
inline constexpr int kRpcStreamsPerConnectionMax = 64;
inline constexpr std::uint32_t kRegionCountMax = 4096;       // entries of the region table
inline constexpr std::uint32_t kFdsPerMessageMax = 64;       // below Linux's SCM_MAX_FD (253)
inline constexpr std::int64_t kHandshakeDeadlineMs = 5'000;
inline constexpr std::int64_t kCallDeadlineMs = 30'000;      // unary calls, unless said
inline constexpr std::int64_t kDrainDeadlineMs = 10'000;     // SIGTERM to exit
inline constexpr std::int64_t kPullDeadlineMs = 120'000;     // a minibatch, cold GFS included

// --- input and output --------------------------------------------------------------------
inline constexpr std::uint32_t kIoDepthMax = 1024;
inline constexpr std::uint64_t kIoRequestBytesMax = 64 * kMiB;
inline constexpr std::uint32_t kIoAlignmentBytes = 4096;     // O_DIRECT buffers and offsets
inline constexpr int kIoRetryMax = 3;                        // per request, EINTR excepted
inline constexpr int kTierErrorsBeforeRetire = 3;            // EIO on reads within a minute

// --- configuration -----------------------------------------------------------------------
inline constexpr std::uint64_t kConfigFileBytesMax = 1 * kMiB;
inline constexpr std::uint32_t kDatasetCountMax = 256;

static_assert(kExtentBytesMax <= 0xFFFF'FFFF, "offsets within an extent are 32-bit");
static_assert(kInlineChunkBytes < kRpcMessageBytesMax, "an inline chunk fits in a message");
static_assert(kExtentBytesDefault <= kExtentBytesMax);

}  // namespace forebay::limits
