// Every published bound of Forebay, in one place (docs/design.md, P6). Each limit is checked where
// the bytes enter, and the error names the limit. A name ends with its unit; a name without a unit
// counts things. Beyond a limit, the request or object gets RESOURCE_EXHAUSTED or INVALID_ARGUMENT,
// unless the line says otherwise. Constants that only affect speed stay in the .cc files that use
// them.
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
inline constexpr std::uint64_t kObjectBytesMax = (1ULL << 48) - 1;
// For whole files and tar samples: 32 bits address their bytes from the start of their first
// extent, and all ones means "absent". Fixed-size records are bounded by kObjectBytesMax.
inline constexpr std::uint64_t kSampleBytesMax = 0xFFFF'FFFE;
inline constexpr std::uint32_t kExtentCountMax = 1U << 24;   // 1 PiB of full extents
inline constexpr std::uint32_t kSamplesPerExtentMax = 1U << 20;  // bounds one sample page
inline constexpr std::uint32_t kFieldCountMax = 64;          // fields of one sample
inline constexpr std::uint32_t kDimensionCountMax = 8;       // of one tensor
inline constexpr std::size_t kNameBytesMax = 255;            // a field, class or data-set name
inline constexpr std::size_t kPathBytesMax = 4095;           // beneath a root
inline constexpr std::uint64_t kCatalogFileBytesMax = 64 * kGiB;
inline constexpr std::uint64_t kCatalogHeaderBytesMax = 1 * kMiB;
inline constexpr std::uint64_t kClassCountMax = 1U << 20;    // image-folder classes
inline constexpr std::size_t kDirectoryDepthMax = 16;        // beneath a class directory
// A batch of files of a folder, whose sizes and times are asked for together. Nodes of a job ask
// each other for whole batches, so that all of them must cut the same ones.
inline constexpr std::size_t kStatPathsMax = 4096;
inline constexpr std::size_t kStatPathBytesMax = 1 * kMiB;   // of the paths of a batch together
inline constexpr std::uint64_t kRecordHeaderBytesMax = 64 * kKiB;  // of an IDX or .npy file
inline constexpr std::uint64_t kIdListBytesMax = 256 * kMiB; // the file of a selection "list:NAME"
inline constexpr std::uint64_t kListedSamplesMax = 1ULL << 30;  // held as ids: 4 bytes each up
                                                     // to 2^32 samples in the catalog, else 8
inline constexpr std::uint64_t kHashedSamplesMax = 1ULL << 34;  // hashed for one hash selection
// The memory of one table of a catalog build. A larger table goes to a scratch file. Without a
// directory for scratch files, the table may grow to the second limit.
inline constexpr std::uint64_t kBuildTableBytesMax = 64 * kMiB;
inline constexpr std::uint64_t kBuildTableNoScratchBytesMax = 1 * kGiB;

// --- staging, tiers and ownership --------------------------------------------------------
inline constexpr std::size_t kOpenObjectsMax = 64;  // large objects, kept open between extents;
                                                    // beyond, the one opened first is closed
inline constexpr std::int64_t kMemoryWaitMs = 5'000;     // wait for RAM that clients pin
inline constexpr std::int64_t kShortMemoryWaitMs = 1'000;  // where there is another way
inline constexpr int kExtentArrivalsMax = 8;        // times that an extent is staged for one fetch
inline constexpr int kObjectScansMax = 3;           // of an object whose scanner got wrong bytes
inline constexpr std::uint64_t kPieceRequestBytesMax = 1 * kMiB;  // GFS read of pieces on no tier
inline constexpr std::uint64_t kPieceChecksumBytesMax = 256 * kMiB;  // checksums of such pieces
inline constexpr std::uint32_t kExtentsDescribedMax = 4;  // extents read to get such checksums
inline constexpr std::size_t kReplacedDatasetsMax = 16;  // rebuilds while a daemon runs
inline constexpr std::uint64_t kPackingBytesMax = 256 * kMiB;  // extents that are compressed at
                                                    // the same time; a larger one alone
inline constexpr std::size_t kSegmentsPerStoreMax = std::size_t{1} << 19;  // so that the
                                                    // manifest can be read whole
inline constexpr std::size_t kSegmentsOpenMax = 128;     // besides those that readers hold

// --- nodes of a job ----------------------------------------------------------------------
inline constexpr std::uint32_t kNodeCountMax = 1U << 16;
inline constexpr std::uint32_t kNodeWeightMax = 64;      // larger weights count as this
inline constexpr std::uint64_t kGroupBytes = 1 * kGiB;   // range of an object that one node reads
inline constexpr std::uint64_t kNodeFileBytesMax = 64 * kMiB;  // the list of a job's nodes
inline constexpr std::size_t kHostNameBytesMax = 255;
inline constexpr std::size_t kAgreedValuesMax = 32;      // values that a job's nodes compare

// --- streams -----------------------------------------------------------------------------
inline constexpr std::uint32_t kGlobalBatchMax = 1U << 20;   // samples per step over all ranks
inline constexpr std::uint32_t kLocalBatchMax = 1U << 16;    // samples in one minibatch
inline constexpr std::uint64_t kSlotBytesMax = 1 * kGiB;
inline constexpr std::uint32_t kCreditsMax = 64;             // minibatches a rank may hold
inline constexpr std::uint32_t kStreamsPerClientMax = 16;
inline constexpr int kGoneReadersMax = 1024;         // that one opening stream names
inline constexpr std::int64_t kStreamCloseMs = 2'000;  // how long a client waits for the daemon to
                                                     // end a stream that it closes early
inline constexpr std::uint32_t kClientsMax = 256;            // connections of one daemon
inline constexpr std::uint32_t kSelectionsResolvedMax = 1024;  // at a time that take long; further
                                                     // ones are refused
inline constexpr std::uint32_t kPullStepsMax = 64;           // steps named by one pull
inline constexpr std::size_t kPositionTokenBytesMax = 256;
inline constexpr std::uint64_t kViewPinnedBytesDefault = 512 * kMiB;  // of all clients
inline constexpr std::uint64_t kDecodedUnitBytesMax = 128 * kMiB;  // samples that are decoded
                                                     // together; in larger units each alone
inline constexpr std::uint64_t kDecodeReadBytesMax = 16 * kMiB;  // chunks read ahead from SSD
                                                     // for one batch
inline constexpr int kRefetchMax = 3;                // after wrong bytes from SSD; then DATA_LOSS
inline constexpr int kReconnectsWithoutBatchMax = 8; // in a row, of a stream; then UNAVAILABLE

// --- wire --------------------------------------------------------------------------------
inline constexpr int kRpcMessageBytesMax = 4 * 1024 * 1024;  // both directions, both services
inline constexpr std::uint32_t kInlineChunkBytes = 1024 * 1024;
inline constexpr int kRpcMetadataBytesMax = 8 * 1024;
inline constexpr int kRpcStreamsPerConnectionMax = 64;
inline constexpr std::size_t kReplyBytesMax = 1 * kMiB;      // replies that share one message
inline constexpr std::size_t kRpcMemoryBytesMax = 128 * kMiB;  // messages not yet handled
inline constexpr int kAdminThreadsMax = 64;                  // admin calls at a time; others wait
inline constexpr std::uint32_t kResolveCountMax = 65'536;    // ids in one admin request
inline constexpr std::uint32_t kRefusedAtOnceMax = 32;       // connections beyond kClientsMax that
                                                             // get an error; others are closed
inline constexpr std::uint32_t kRegionCountMax = 4096;       // entries of the region table
inline constexpr std::uint32_t kFdsPerMessageMax = 64;       // below Linux's SCM_MAX_FD (253)
inline constexpr std::int64_t kHandshakeDeadlineMs = 5'000;
// A client tests a daemon that has said nothing for the first time, and gives it up after the
// second. The daemon lets it do so at half the first time, before gRPC takes it for an attacker. If
// other nodes can serve the client, a daemon that stands still is found within 5 s. Otherwise there
// is nowhere to go, and it gets 30 s to go on.
inline constexpr int kClientKeepaliveMs = 2'000;
inline constexpr int kClientKeepaliveTimeoutMs = 3'000;
inline constexpr int kLoneClientKeepaliveMs = 20'000;
inline constexpr int kLoneClientKeepaliveTimeoutMs = 10'000;
inline constexpr std::int64_t kCallDeadlineMs = 30'000;      // unary calls without another one
inline constexpr std::int64_t kDrainDeadlineMs = 10'000;     // from SIGTERM to exit
inline constexpr std::int64_t kLastMessagesMs = 5'000;       // of these, for the last messages
inline constexpr std::int64_t kPullDeadlineMs = 120'000;     // a minibatch, also from a cold GFS
inline constexpr std::int64_t kStreamRetryMsMax = 24L * 3'600'000;  // StreamOptions::retry_for_ms
inline constexpr std::int64_t kCatalogWaitMs = 24L * 3'600'000;  // Open, while a catalog is built

// --- between the nodes of a job ----------------------------------------------------------
inline constexpr std::uint32_t kPeerRowsMax = 4096;          // of one call; more take several calls
inline constexpr std::uint64_t kPeerCallBytesMax = 16 * kMiB;  // of the rows of one call; a longer
                                                             // row is asked for alone
inline constexpr std::uint64_t kPeerBytesInFlightMax = 64 * kMiB;  // rows asked of a node at
                                                   // a time; beyond, calls wait; a larger one alone
inline constexpr std::uint64_t kPeerBytesInFlightMin = 4 * kMiB;  // as few, where the node is slow
inline constexpr std::uint64_t kPeerBytesInFlightAtFirst = 16 * kMiB;  // before answers have come
inline constexpr std::uint64_t kPeerDecodedBytesMax = 256 * kMiB;  // rows that a node has decoded
                                                   // for others, and chunks of packs for them, that
                                                   // are not sent yet; beyond, requests wait; a
                                                   // larger one alone
inline constexpr std::uint64_t kPeerChunksHeldBytesMax = 256 * kMiB;  // chunks of packs that other
                                                     // nodes have sent, until they are decoded
inline constexpr std::uint32_t kPeerChunkBytes = 1 * kMiB;   // payload of one message
inline constexpr int kPeerMessageBytesMax = 2 * 1024 * 1024;  // both directions
inline constexpr std::size_t kPeerErrorBytesMax = 1024;      // text of an error; the rest is cut
inline constexpr std::size_t kPeerAddressBytesMax = 300;     // "HOST:PORT"
inline constexpr std::size_t kPeerCallsMax = 1024;           // calls that may wait for the GFS and
                                                   // that a node answers at a time; further ones
                                                   // are refused, and made again
inline constexpr std::uint64_t kPeerWrongMax = 16;           // answers of a node with wrong bytes;
                                                   // then it is asked for nothing more
inline constexpr std::size_t kPeerSlowMax = 16;              // slow nodes that a request names
inline constexpr std::uint32_t kPeerExtentThreads = 4;       // of a node, which answer for extents
inline constexpr std::uint64_t kPeerExtentMemoryBytes = 4 * kExtentBytesMax;  // images on their way
                                                             // to other nodes; beyond, they wait
inline constexpr std::int64_t kPeerExtentDeadlineMs = 60'000;  // a whole extent, from a cold GFS
inline constexpr std::uint32_t kPeerFirstReadsMax = 32'768;  // checksums that one call gives
inline constexpr std::int64_t kPeerFirstReadsDeadlineMs = 5'000;  // staging waits for such a call
inline constexpr std::uint64_t kPeerFirstReadsWaitingBytesMax = 64 * kMiB;  // memory of such
                                                   // calls, until a node has kept them; others are
                                                   // refused
inline constexpr std::size_t kFirstReadsBeforeCatalogMax = 1U << 20;  // of a data set that has no
                                                             // catalog yet, kept for other nodes
inline constexpr std::uint32_t kPeerPartThreads = 2;         // of a node, which answer for catalog
                                                             // parts
inline constexpr std::size_t kPeerPartsMax = 16;             // catalog parts on their way to other
                                                             // nodes; beyond, they ask again
inline constexpr std::int64_t kPeerPartDeadlineMs = 600'000;  // a catalog part that is there
inline constexpr std::uint32_t kPeerStatThreads = 2;         // of a node, which ask the GFS for
                                                             // sizes and times for other nodes
inline constexpr std::size_t kPeerStatBatchesMax = 64;       // batches that a node asks the GFS for
                                                             // at a time; beyond, other nodes go on
inline constexpr std::int64_t kPeerStatDeadlineMs = 60'000;  // sizes and times of a batch, from a
                                                             // slow GFS
inline constexpr std::uint64_t kPeerStatsKeptBytesMax = 16 * kMiB;  // sizes and times that a node
                                                   // keeps for others; beyond, it asks the GFS
                                                   // again
inline constexpr std::int64_t kPeerStatsKeptMs = 60'000;     // how long it keeps them
// A connection that says nothing is tested after the first time and given up after the second, so
// that a half-open one is found within 15 s.
inline constexpr int kPeerKeepaliveMs = 10'000;
inline constexpr int kPeerKeepaliveTimeoutMs = 5'000;
inline constexpr int kPeerIdleMs = 120'000;  // a connection to another node without calls is closed
inline constexpr std::uint32_t kPeerChannels = 2'048;  // of gRPC, to other nodes (peer.channels);
                                                   // beyond, those that were not used for the
                                                   // longest time are closed: 0.7 GB with as many
                                                   // from other nodes
inline constexpr std::uint32_t kPeerPayloadConnectionsMax = 256;  // for bytes of rows, that a node
                                                   // has made, and as many that it has accepted;
                                                   // beyond, gRPC brings the bytes
inline constexpr std::size_t kNodesAskedAtATime = 256;  // of all nodes that a node asks or tells,
                                                   // or fewer (peer.channels). If 256 of them are
                                                   // silent, that takes one deadline more
inline constexpr std::int64_t kNodesStatusMs = 2'000;  // `forebay status --nodes` waits for a node
inline constexpr std::int64_t kNodesStatusMsPerNode = 5;  // so much more for all nodes together
inline constexpr std::int64_t kFinishedPingMs = 5'000;  // a node that has finished waits so long
inline constexpr std::int64_t kLeaveMsMax = 86'400'000;  // a node that leaves the job waits so long
                                                   // at most for those that take over from it
inline constexpr std::int64_t kJoinCallMs = 5'000;  // a node that joins waits so long for an answer
inline constexpr std::size_t kJoinPageBytes = kMiB;  // of the list of nodes in one answer
inline constexpr std::uint32_t kFreePlacesMax = 1'024;      // nodes.free_places
inline constexpr std::size_t kGossipNewsMax = 16;    // pieces of news about nodes in one message
inline constexpr std::uint64_t kIncarnationMax = std::uint64_t{1} << 48;  // of a node; it grows by
                                                     // one for each refutation

// --- input and output --------------------------------------------------------------------
inline constexpr std::uint32_t kIoDepthMax = 1024;
inline constexpr std::uint64_t kIoRequestBytesMax = 64 * kMiB;
inline constexpr std::uint32_t kIoAlignmentBytes = 4096;     // O_DIRECT buffers and offsets
inline constexpr int kIoRetryMax = 3;                        // per request, EINTR excepted
inline constexpr int kTierErrorsBeforeRetire = 3;            // extents with SSD errors, in a minute
inline constexpr int kInterruptMax = 1000;                   // EINTR per request; then an error
inline constexpr std::size_t kIoThreadsMax = 256;            // of the thread back end
inline constexpr int kLinkCountMax = 40;                     // symlinks in a path, as in Linux
inline constexpr int kResolveRetryMax = 1000;                // renames that race with an open

// --- packs -------------------------------------------------------------------------------
inline constexpr std::uint64_t kChunkBytesMax = 4 * kMiB;    // of a chunk's elements
inline constexpr std::uint32_t kChunkSamplesMax = 1U << 16;  // of one chunk
inline constexpr std::uint64_t kChunkScratchBytesMax = 128 * kMiB;  // memory for decoding one
inline constexpr std::uint64_t kPackStartBytesMax = 1 * kMiB;    // header and schema
inline constexpr std::uint64_t kPackIndexBytesMax = 1 * kGiB;    // 16 million chunks
inline constexpr std::uint64_t kPackKeysBytesMax = 8 * kMiB;     // of one key record
inline constexpr std::size_t kPackKeyBytesMax = 1024;            // of a sample's key
inline constexpr std::size_t kPackProvenanceMax = 256;           // entries of at most 4 KiB
inline constexpr std::size_t kPackShardsMax = 1U << 16;          // of one manifest or data set
inline constexpr std::uint64_t kPackManifestBytesMax = 32 * kMiB;
inline constexpr std::size_t kPredictorBytesMax = 64 * kKiB;     // of a learned predictor
inline constexpr std::uint32_t kPredictorMacsMax = 4096;         // multiplications per pixel
inline constexpr std::size_t kPackModelsMax = 16;                // predictors of one pack

// --- configuration -----------------------------------------------------------------------
inline constexpr std::uint64_t kConfigFileBytesMax = 1 * kMiB;
inline constexpr std::size_t kConfigKeyPartsMax = 1000;      // "a.b.c" has three
inline constexpr std::size_t kJobIdBytesMax = 64;
inline constexpr std::uint32_t kDatasetCountMax = 256;

// --- command line ------------------------------------------------------------------------
inline constexpr std::size_t kEpochsJudgedMax = 100'000;     // that an audit checks
inline constexpr std::uint64_t kRememberedSamplesMax = 1ULL << 28;  // ids of a selection that an
                                                     // audit holds; beyond, it counts samples

static_assert(kExtentBytesMax <= 0xFFFF'FFFF, "offsets within an extent are 32-bit");
static_assert(kConfigFileBytesMax + 64 * 1024 < kRpcMessageBytesMax, "a Hello carries one");
static_assert(kInlineChunkBytes < kRpcMessageBytesMax, "an inline chunk fits in a message");
static_assert(kPeerChunkBytes < kPeerMessageBytesMax, "a chunk fits in a message");
static_assert(kExtentBytesDefault <= kExtentBytesMax);
static_assert(kPathBytesMax <= kStatPathBytesMax, "a batch holds any path");
static_assert(kStatPathBytesMax + 16 * kStatPathsMax < kPeerMessageBytesMax,
              "a message holds any batch");

}  // namespace forebay::limits
