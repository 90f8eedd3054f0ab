// Kill cycles: SIGKILL while staging to SSD, then a restart on what is left.
#pragma once

#include <csignal>
#include <cstdint>
#include <random>

#include <gtest/gtest.h>

#include "tests/integration/daemon_rig.h"

namespace forebay::integration {

struct KillTally {
  int kills = 0;
  int in_flight = 0;  // of them, with staging under way: some segments published, not all
  std::uint64_t segments_found = 0;
};

// One cycle on a rig with `extents` extents. Asserts with gtest.
inline void KillCycle(const DaemonRig& rig, std::uint64_t extents, std::mt19937_64& random,
                      KillTally& tally) {
  rig.WipeSsd();
  const std::uint64_t target = 1 + random() % (extents - 2);
  auto daemon = rig.Start({}, false);
  ASSERT_TRUE(Eventually([&] { return rig.SegmentCount() >= target; }));
  daemon->Kill();
  ++tally.kills;
  const std::uint64_t published = rig.SegmentCount();
  if (published > 0 && published < extents) ++tally.in_flight;

  daemon = rig.Start();
  {
    RawClient client(rig.socket_path());
    const EpochCounts counts = ReadEpoch(client);
    ASSERT_EQ(counts.error, "");
    ASSERT_EQ(counts.wrong, 0U);
    ASSERT_EQ(counts.distinct, extents * (rig.dataset_bytes() / extents / kRecordBytes));
    const v1::DatasetStatus staged = AwaitStaged(client);
    ASSERT_EQ(staged.state(), "staged") << staged.error();
    // A file that was renamed but not yet in the manifest is read again: at most one per reader.
    const std::uint64_t extent_bytes = rig.dataset_bytes() / extents;
    constexpr std::uint64_t kReaders = 8;
    ASSERT_LE(staged.gfs_bytes(), rig.dataset_bytes() - published * extent_bytes +
                                      kReaders * extent_bytes)
        << published << " segments were there";
    tally.segments_found += (rig.dataset_bytes() - staged.gfs_bytes()) / extent_bytes;
  }  // Beside a client, as in LifecycleTest, a daemon would end a third of a second later.
  ASSERT_EQ(rig.SegmentCount(), extents);
  daemon->Signal(SIGTERM);
  ASSERT_EQ(daemon->Wait(), 0);
  ASSERT_TRUE(rig.Leftovers().empty()) << rig.Leftovers().front();
}

}  // namespace forebay::integration
