#include "server/stream/testing/node_group.h"

#include <utility>

namespace forebay::stream {

Result<std::unique_ptr<NodeGroup>> NodeGroup::Create(io::MemoryBackend& backend,
                                                     std::uint32_t count,
                                                     std::size_t record_bytes,
                                                     ServeOptions options,
                                                     peer::TransportKind transport) {
  auto group = std::make_unique<NodeGroup>();
  group->transport_ = peer::MakeTransport(transport);
  group->faulty_ = std::make_unique<io::FaultyBackend>(backend, group->faults_);
  std::vector<plan::Node> all;
  for (std::uint32_t rank = 0; rank < count; ++rank) all.push_back({NodeRank(rank), 1});
  for (std::uint32_t rank = 0; rank < count; ++rank) {
    group->members_.push_back(std::make_unique<Member>(NodeRank(rank), all));
    Member& member = *group->members_.back();
    options.nodes = &member.nodes;
    options.extents = group->transport_.get();
    options.keepers = group->transport_.get();
    options.catalog_parts = group->transport_.get();
    options.object_stats = group->transport_.get();
    if (options.takes_rows) options.rows = group->transport_.get();
    options.ssd_path = "/ssd" + std::to_string(rank);
    FOREBAY_TRY(backend.AddDirectory(options.ssd_path));
    io::IoBackend& own = rank == 0 ? static_cast<io::IoBackend&>(*group->faulty_) : backend;
    FOREBAY_ASSIGN(member.serve, ServeFixture::Create(own, record_bytes, options));
    ServeFixture& serve = *member.serve;
    member.extents =
        std::make_unique<stage::LocalExtents>(serve.cache(), serve.stager(), serve.clock());
    member.first_reads =
        std::make_unique<stage::LocalFirstReads>(NodeRank(rank), serve.stager());
    group->transport_->Add(NodeRank(rank), {.extents = member.extents.get(),
                                            .rows = &serve.local_rows(),
                                            .first_reads = member.first_reads.get(),
                                            .dataset = &serve.dataset(),
                                            .backend = &serve.backend()});
  }
  return group;
}

NodeGroup::~NodeGroup() { transport_->Stop(); }

std::vector<NodeRank> NodeGroup::Ranked(ExtentId extent) {
  return membership(0).Ranked(node(0).dataset().group_key(extent));
}

std::uint64_t NodeGroup::GfsBytes() {
  std::uint64_t bytes = 0;
  for (const auto& member : members_) bytes += member->serve->dataset().progress().gfs_bytes;
  return bytes;
}

}  // namespace forebay::stream
