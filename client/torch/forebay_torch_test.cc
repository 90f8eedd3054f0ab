#include "forebay/torch.h"

#include <sstream>

#include <gtest/gtest.h>

#include "client/testing/fake_daemon.h"
#include "client/testing/fake_dataset.h"
#include "client/torch/torch_example.inc"
#include "forebay/client.h"
#include "forebay/v1/data.pb.h"

namespace forebay::libtorch {
namespace {

using testing::FakeDaemon;
using testing::FakeDataset;

std::unique_ptr<BatchStream> Open(const FakeDaemon& daemon, StreamOptions options) {
  auto client = Client::Connect({.address = daemon.address()});
  EXPECT_TRUE(client.has_value());
  options.dataset = "fake";
  options.global_batch = 16;
  auto stream = (*client)->Open(options);
  EXPECT_TRUE(stream.has_value()) << stream.error().ToString();
  return std::move(*stream);
}

TEST(ForebayTorch, TensorsShareTheBatchsMemory) {
  FakeDaemon daemon;
  auto stream = Open(daemon, {});
  auto next = stream->Next();
  ASSERT_TRUE(next && *next);
  const Batch batch = **next;
  const auto image = ToTensor(batch, FieldId(0));
  ASSERT_TRUE(image.has_value());
  EXPECT_FALSE(image->copied);
  EXPECT_EQ(image->tensor.data_ptr(), batch.Tensor(FieldId(0))->data);
  EXPECT_EQ(image->tensor.sizes(), (std::vector<std::int64_t>{16, 100}));
  const auto weight = ToTensor(batch, FieldId(1));
  EXPECT_EQ(weight->tensor.dtype(), ::torch::kFloat32);
  const auto label = ToTensor(batch, FieldId(3));
  ASSERT_TRUE(label.has_value());
  for (int i = 0; i < 16; ++i) {
    const std::uint64_t id = batch.sample_ids()[static_cast<std::size_t>(i)].value();
    EXPECT_EQ(weight->tensor[i].item<float>(), FakeDataset::Weight(id));
    EXPECT_EQ(label->tensor[i].item<std::int64_t>(), FakeDataset::Label(id));
  }
  EXPECT_EQ(ToTensor(batch, FieldId(2)).error().code(), ErrorCode::kUnimplemented);
  EXPECT_EQ(ToTensor(batch, FieldId(9)).error().code(), ErrorCode::kNotFound);
}

TEST(ForebayTorch, ATensorOutlivesBatchStreamAndClient) {
  FakeDaemon daemon;
  ::torch::Tensor image;
  std::uint64_t id = 0;
  {
    auto stream = Open(daemon, {});
    auto next = stream->Next();
    ASSERT_TRUE(next && *next);
    image = ToTensor(**next, FieldId(0))->tensor;
    id = (*next)->sample_ids()[0].value();
  }
  EXPECT_EQ(image[0][9].item<std::uint8_t>(),
            std::to_integer<std::uint8_t>(FakeDataset::ImageByte(id, 9)));
}

TEST(ForebayTorch, ViewsAreGathered) {
  FakeDaemon daemon;
  StreamOptions options;
  options.delivery = Delivery::kViews;
  auto stream = Open(daemon, options);
  auto next = stream->Next();
  ASSERT_TRUE(next && *next);
  const auto image = ToTensor(**next, FieldId(0));
  ASSERT_TRUE(image.has_value());
  EXPECT_TRUE(image->copied);
  const std::uint64_t id = (*next)->sample_ids()[4].value();
  EXPECT_EQ(image->tensor[4][9].item<std::uint8_t>(),
            std::to_integer<std::uint8_t>(FakeDataset::ImageByte(id, 9)));
}

TEST(ForebayTorch, BigEndianElementsAreReversed) {
  FakeDaemon daemon;
  daemon.faults.opened = [](v1::Opened& opened) {
    opened.mutable_fields(1)->set_big_endian(true);
  };
  auto stream = Open(daemon, {});
  auto next = stream->Next();
  ASSERT_TRUE(next && *next);
  const auto weight = ToTensor(**next, FieldId(1));
  ASSERT_TRUE(weight.has_value());
  EXPECT_TRUE(weight->copied);
  float expected = FakeDataset::Weight((*next)->sample_ids()[0].value());
  ReverseElements(reinterpret_cast<std::byte*>(&expected), 4, 4);
  const float got = weight->tensor[0].item<float>();
  EXPECT_EQ(std::memcmp(&got, &expected, 4), 0);
}

TEST(ForebayTorch, ADataSetEndsAtEveryEpoch) {
  FakeDaemon daemon;
  StreamOptions options;
  options.epochs = 3;
  StreamDataset data(Open(daemon, options));
  EXPECT_EQ(*data.size(), 1000U);
  for (int epoch = 0; epoch < 3; ++epoch) {
    int batches = 0;
    while (auto batch = data.get_batch(0)) {
      EXPECT_EQ(batch->batch.epoch().value(), static_cast<std::uint32_t>(epoch));
      EXPECT_FALSE(batch->fields[2].defined());
      ++batches;
    }
    EXPECT_EQ(batches, 62);
  }
}

TEST(ForebayTorch, TheHeadersExampleTrainsOneEpoch) {
  FakeDaemon daemon;
  StreamOptions options;
  options.epochs = 2;
  StreamDataset data(Open(daemon, options));
  for (int epoch = 0; epoch < 2; ++epoch) {
    int batches = 0;
    TrainEpoch(data, [&](const ::torch::Tensor& images, const ::torch::Tensor& weights) {
      EXPECT_EQ(images.sizes(), (std::vector<std::int64_t>{16, 100}));
      EXPECT_EQ(weights.dtype(), ::torch::kFloat32);
      ++batches;
    });
    EXPECT_EQ(batches, 62);
  }
}

TEST(ForebayTorch, CheckpointsHoldThePosition) {
  FakeDaemon daemon;
  StreamDataset data(Open(daemon, {}));
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(data.get_batch(0));
  ::torch::serialize::OutputArchive out;
  data.save(out);
  std::stringstream file;
  out.save_to(file);
  ::torch::serialize::InputArchive in;
  in.load_from(file);
  StreamOptions options;
  options.resume = StreamDataset::ReadToken(in);
  StreamDataset resumed(Open(daemon, options));
  EXPECT_NO_THROW(resumed.load(in));
  EXPECT_EQ(resumed.get_batch(0)->batch.step(), StepId(5));
  StreamDataset fresh(Open(daemon, {}));
  EXPECT_THROW(fresh.load(in), std::runtime_error);
}

}  // namespace
}  // namespace forebay::libtorch
