// The data set of the node that asks is that of the node that answers: it has the same catalog.
#include "server/peer/testing/peer_rig.h"

#include <cstring>
#include <utility>

#include "server/io/testing/io_test_fixture.h"

namespace forebay::peer {

PeerRig::PeerRig(const PeerRigOptions& options)
    : options_(options), file_(io::testing::Pattern(options.records * options.record_bytes, 1)) {}

Result<std::unique_ptr<PeerRig>> PeerRig::Create(const PeerRigOptions& options) {
  std::unique_ptr<PeerRig> rig(new PeerRig(options));
  FOREBAY_TRY(rig->memory_.AddDirectory("/ssd"));
  FOREBAY_TRY(rig->memory_.AddFile("/gfs/data.bin", rig->file_));
  stage::DatasetOptions dataset = stage::RecordDataset(options.record_bytes);
  dataset.compression = options.compression;
  dataset.source.extent_bytes = options.extent_bytes;
  FOREBAY_TRY(rig->rig_.Start(dataset, options.stage));
  FOREBAY_TRY(rig->rig_.StageAll());
  stage::StageRig& stage = rig->rig_;
  rig->fetcher_.emplace(stage.cache(), stage.stager(), rig->nodes_);
  FOREBAY_ASSIGN(rig->executor_, io::ThreadExecutor::Create(stage.backend(), 2, 4));
  rig->rows_.emplace(fetch::LocalRowsParts{.stager = stage.stager(), .fetcher = *rig->fetcher_,
                                           .decoded = rig->decoded_,
                                           .executor = *rig->executor_,
                                           .clock = stage.clock()});
  rig->extents_.emplace(stage.cache(), stage.stager(), stage.clock());
  rig->first_reads_.emplace(kNode, stage.stager());
  FOREBAY_ASSIGN(rig->server_, PeerServer::Listen({.address = "127.0.0.1:0",
                                                   .certificates = options.certificates}));
  if (options.serves) FOREBAY_TRY(rig->Serve());
  return rig;
}

Status PeerRig::Serve() {
  return server_->Serve({.address = server_->address(), .job_id = "job"}, parts());
}

PeerServerParts PeerRig::parts() {
  return {.extents = *extents_,
          .rows = *rows_,
          .first_reads = *first_reads_,
          .find_dataset = [found = &rig_.dataset()](std::uint64_t hash) {
            return found->hash() == hash ? found : nullptr;
          },
          .backend = rig_.backend(),
          .hear_slow = hear_slow,
          .member = {.report = [] { return NodeReport{.samples = kReportedSamples}; },
                     .note_finished = note_finished,
                     .prober = prober,
                     .throttle = throttle,
                     .leave = leave,
                     .join = join},
          .has_returned = has_returned,
          .carrier = options_.answers_by_carrier ? options_.carrier : nullptr};
}

PeerRig::~PeerRig() {
  peers_.reset();
  server_.reset();
  executor_.reset();
  rig_.Stop();
}

Status PeerRig::Connect(const std::string& address, PeerIdentity identity,
                        const NodeCertificates& certificates) {
  FOREBAY_ASSIGN(peers_, GrpcPeers::Create({.identity = std::move(identity),
                                            .addresses = {{kNode, address}},
                                            .certificates = certificates,
                                            .carrier = options_.carrier},
                                           rig_.clock()));
  return {};
}

PeerRig::Rows PeerRig::Ask(const std::vector<std::uint64_t>& samples, std::int64_t wait_ms,
                           std::stop_token unwanted) {
  Rows rows;
  rows.memory.resize(samples.size() * options_.record_bytes);
  rows.request = std::make_shared<fetch::RowRequest>();
  rows.request->node = kNode;
  rows.request->dataset = &rig_.dataset();
  rows.request->deadline_ns = rig_.clock().NowNs() + wait_ms * 1'000'000;
  rows.request->reader.unwanted = std::move(unwanted);
  for (std::size_t i = 0; i < samples.size(); ++i) {
    rows.request->rows.push_back(
        {.sample = SampleId(samples[i]),
         .field = FieldId(0),
         .memory = std::span(rows.memory)
                       .subspan(i * options_.record_bytes, options_.record_bytes)});
  }
  const auto outcome = std::make_shared<std::promise<Status>>();
  rows.outcome = outcome->get_future();
  peers_->Read(rows.request, [outcome](const Status& status) { outcome->set_value(status); });
  return rows;
}

bool PeerRig::AreRight(const Rows& rows) const {
  for (const fetch::Row& row : rows.request->rows) {
    const std::byte* const expected = file_.data() + row.sample.value() * options_.record_bytes;
    if (std::memcmp(row.memory.data(), expected, row.memory.size()) != 0) return false;
  }
  return true;
}

Result<stage::SuppliedExtent> PeerRig::ReadExtent(ExtentId extent) {
  FOREBAY_ASSIGN(const auto queue, rig_.backend().CreateQueue({.depth = 4}));
  const std::shared_ptr<const catalog::Catalog> catalog = dataset().catalog();
  const stage::Priority priority{1};
  return peers_->Read({.node = kNode,
                       .dataset = dataset(),
                       .catalog = *catalog,
                       .extent = extent,
                       .priority = priority},
                      [this](std::uint64_t bytes) { return rig_.arena().Allocate(bytes); },
                      *queue);
}

}  // namespace forebay::peer
