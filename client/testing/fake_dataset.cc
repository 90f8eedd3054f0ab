#include "client/testing/fake_dataset.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

#include "forebay/v1/data.pb.h"
#include "proto/contract/check.h"
#include "proto/contract/tensor.h"

namespace forebay::testing {
namespace {

constexpr std::uint64_t kTextBytesMax = 24;
constexpr std::uint64_t kWeightBytes = sizeof(float);

}  // namespace

FakeRegion::FakeRegion(std::uint32_t id, std::uint64_t bytes, bool sealed)
    : id_(id), bytes_(bytes), fd_(::memfd_create("fake", MFD_CLOEXEC | MFD_ALLOW_SEALING)) {
  FOREBAY_CHECK(fd_.valid());
  FOREBAY_CHECK(::ftruncate(fd_.get(), static_cast<off_t>(bytes)) == 0);
  void* address =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd_.get(), 0);
  FOREBAY_CHECK(address != MAP_FAILED);
  data_ = static_cast<std::byte*>(address);
  constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL;
  if (sealed) FOREBAY_CHECK(::fcntl(fd_.get(), F_ADD_SEALS, kSeals) == 0);
}

FakeRegion::~FakeRegion() { ::munmap(data_, bytes_); }

std::string FakeDataset::Text(std::uint64_t sample) {
  std::string text;
  for (std::uint64_t i = 0; i < sample % 7 * 3; ++i) {
    text += static_cast<char>('a' + (sample + i) % 26);
  }
  return text;
}

FakeDataset::FakeDataset(std::uint64_t samples, std::uint64_t image_bytes)
    : samples_(samples),
      image_bytes_(image_bytes),
      row_bytes_((image_bytes + kWeightBytes + kTextBytesMax + 7) & ~std::uint64_t{7}),
      arena_(kArenaRegion, samples * row_bytes_) {
  for (std::uint64_t sample = 0; sample < samples; ++sample) {
    std::byte* row = arena_.bytes().data() + RowOffset(sample);
    for (std::uint64_t i = 0; i < image_bytes; ++i) row[i] = ImageByte(sample, i);
    const float weight = Weight(sample);
    std::memcpy(row + image_bytes, &weight, sizeof(weight));
    const std::string text = Text(sample);
    std::memcpy(row + image_bytes + kWeightBytes, text.data(), text.size());
  }
}

void FakeDataset::Describe(google::protobuf::RepeatedPtrField<v1::Field>& fields) const {
  v1::Field* image = fields.Add();
  image->set_name("image");
  image->set_dtype(static_cast<std::uint32_t>(Dtype::kU8));
  image->add_shape(image_bytes_);
  v1::Field* weight = fields.Add();
  weight->set_name("weight");
  weight->set_dtype(static_cast<std::uint32_t>(Dtype::kF32));
  v1::Field* text = fields.Add();
  text->set_name("text");
  text->set_dtype(static_cast<std::uint32_t>(Dtype::kBytes));
  v1::Field* label = fields.Add();
  label->set_name("label");
  label->set_dtype(static_cast<std::uint32_t>(Dtype::kI64));
  label->set_constant(true);
  label->add_constant_names("zero");
}

WireSpan FakeDataset::ImageSpan(std::uint64_t sample) const {
  return {.region = kArenaRegion, .offset = RowOffset(sample), .length = image_bytes_};
}

WireSpan FakeDataset::WeightSpan(std::uint64_t sample) const {
  return {.region = kArenaRegion,
          .offset = RowOffset(sample) + image_bytes_,
          .length = kWeightBytes};
}

std::vector<WireSpan> FakeDataset::TextSpans(std::uint64_t sample) const {
  if (!HasText(sample)) return {{.region = kAbsentRegion}};
  const std::uint64_t offset = RowOffset(sample) + image_bytes_ + kWeightBytes;
  const std::uint64_t length = Text(sample).size();
  if (sample % 3 != 0) return {{.region = kArenaRegion, .offset = offset, .length = length}};
  const std::uint64_t half = length / 2;
  return {{.region = kArenaRegion, .offset = offset, .length = half},
          {.region = kArenaRegion, .offset = offset + half, .length = length - half}};
}

}  // namespace forebay::testing
