// Requests of a reader are taken from wire messages, field by field.
#include "server/stream/rpc/wire_batch.h"

#include <gtest/gtest.h>

namespace forebay::stream {
namespace {

TEST(WireBatch, TakesEverythingThatAReaderAsksFor) {
  v1::OpenStream open;
  open.set_dataset("images");
  open.set_stream_name("train");
  open.set_selection("range:1:2");
  open.set_order_spec("ab");
  open.set_global_batch(1);
  open.set_ranks(2);
  open.set_rank(3);
  open.set_delivery(4);
  open.set_credits(5);
  open.set_catalog_fingerprint(6);
  open.set_inline_payload(true);
  open.set_reader(7);
  open.set_call(8);
  open.set_end_epoch(9);
  const StreamRequestSpec spec = FromWire(open, {.name = "test", .pid = 10, .uid = 11});
  EXPECT_EQ(spec.dataset, "images");
  EXPECT_EQ(spec.stream_name, "train");
  EXPECT_EQ(spec.selection, "range:1:2");
  EXPECT_EQ(spec.order_spec, (std::vector<std::byte>{std::byte{'a'}, std::byte{'b'}}));
  EXPECT_EQ(spec.global_batch, 1U);
  EXPECT_EQ(spec.ranks, 2U);
  EXPECT_EQ(spec.rank, 3U);
  EXPECT_EQ(spec.delivery, 4U);
  EXPECT_EQ(spec.credits, 5U);
  EXPECT_EQ(spec.catalog_fingerprint, 6U);
  EXPECT_TRUE(spec.inline_payload);
  EXPECT_EQ(spec.reader, 7U);
  EXPECT_EQ(spec.call, 8U);
  EXPECT_EQ(spec.end_epoch, 9U);
  EXPECT_EQ(spec.client.name, "test");
  EXPECT_EQ(spec.client.pid, 10);
  EXPECT_EQ(spec.client.uid, 11U);
}

TEST(WireBatch, TakesTheNameOfABatch) {
  v1::Pull pull;
  pull.set_epoch(1);
  pull.set_first_step(2);
  pull.set_step_count(3);
  pull.set_micro_size(4);
  pull.set_micro_index(5);
  const BatchName name = FromWire(pull);
  EXPECT_EQ(name.epoch, EpochId(1));
  EXPECT_EQ(name.step, StepId(2));
  EXPECT_EQ(name.micro_size, 4U);
  EXPECT_EQ(name.micro_index, 5U);
}

}  // namespace
}  // namespace forebay::stream
