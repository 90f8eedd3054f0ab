// Extents that are compressed at staging: what they decode to, and what damage is found.
#include <cmath>
#include <cstring>

#include <gmock/gmock.h>

#include "compress/decode/pack/chunk_record.h"
#include "server/catalog/testing/catalog_test_fixture.h"
#include "server/catalog/testing/record_text.h"
#include "server/stage/packed/packed_extent.h"
#include "server/stage/packed/packed_form.h"

namespace forebay::stage {
namespace {

using ::testing::HasSubstr;

constexpr std::uint64_t kRawChecksum = 0x1234'5678'9ABC'DEF0;

// Smooth numbers, so that there is something to compress.
template <typename T>
std::string WaveText(std::size_t count) {
  std::string text(count * sizeof(T), '\0');
  for (std::size_t i = 0; i < count; ++i) {
    const auto value =
        static_cast<T>(100.0 + 60.0 * std::sin(0.01 * static_cast<double>(i)));
    std::memcpy(text.data() + i * sizeof(T), &value, sizeof(T));
  }
  return text;
}

class PackedFormTest : public catalog::CatalogFixture {
 protected:
  void UseRaw(Dtype dtype, const std::vector<std::uint64_t>& shape, const std::string& text) {
    AddFile("x.bin", text);
    source_.format = catalog::Format::kRaw;
    source_.settings.SetTexts("files", {"x=x.bin"});
    source_.settings.SetText("dtype", std::string(DtypeName(dtype)));
    source_.settings.SetNumbers("shape", shape);
  }

  Result<std::shared_ptr<const PackedForm>> Form(
      Compression compression = Compression::kBalanced) {
    FOREBAY_ASSIGN(catalog_, Build());
    return PackedForm::Create(catalog_, compression);
  }

  tier::ExtentKey KeyOf(const PackedForm& form, ExtentId extent) const {
    return form.Key(tier::KeyOf(*catalog_, extent));
  }

  // Returns the packed image of an extent, and its pieces in `pieces`.
  std::vector<std::byte> ImageOf(const PackedForm& form, ExtentId extent,
                                 std::vector<catalog::Range>* pieces = nullptr) {
    const std::string raw = ExtentText(*catalog_, extent);
    const auto packed =
        PackExtent(form, KeyOf(form, extent), std::as_bytes(std::span(raw)), kRawChecksum);
    EXPECT_TRUE(packed.has_value()) << packed.error().ToString();
    EXPECT_EQ(packed->escaped_chunks, 0U);
    EXPECT_LE(packed->bytes, form.ImageBytesMax(extent));
    if (pieces != nullptr) *pieces = packed->pieces;
    std::vector<std::byte> image(packed->bytes);
    packed->CopyTo(image);
    return image;
  }

  // Finds and decodes a field of a sample, as a reader does.
  static Result<std::string> Read(const PackedForm& form, const tier::ExtentKey& key,
                                  std::span<const std::byte> image, std::uint32_t field,
                                  SampleId sample) {
    const PackedUnit unit = form.UnitOf(field, sample);
    const std::uint64_t directory_bytes = DirectoryBytes(form.ChunkCount(unit.extent));
    FOREBAY_ASSIGN(const PackedDirectory directory,
                   PackedDirectory::Open(form, key, image.size(),
                                         image.first(directory_bytes)));
    const compress::PackField& schema = form.schema().fields[field];
    std::string text(schema.sample_bytes(), '\0');
    for (std::uint32_t i = 0; i < unit.chunk_count; ++i) {
      FOREBAY_ASSIGN(const catalog::PackChunk chunk, directory.ChunkAt(unit.first_chunk + i));
      const compress::PackContext pack{.schema = form.schema(), .identity = chunk.identity};
      FOREBAY_ASSIGN(const compress::ChunkRecord record,
                     compress::ReadChunkRecord(pack, chunk.entry,
                                               image.subspan(chunk.image_offset,
                                                             chunk.bytes())));
      std::vector<std::byte> scratch(compress::RecordScratchBytes(form.schema(), chunk.entry));
      const auto request = compress::TileRequest::Samples(
          schema, sample.value() - chunk.sample_base, 1,
          std::as_writable_bytes(std::span(text)));
      FOREBAY_TRY(compress::DecodeTile(pack, chunk.entry, record, request, scratch));
    }
    return text;
  }

  // Checks that every sample of every field decodes to its bytes, and lies where its pieces say.
  // Returns the bytes of all images.
  std::uint64_t ExpectRoundTrip(const PackedForm& form) {
    std::vector<std::vector<std::byte>> images;
    std::uint64_t bytes = 0;
    for (std::uint32_t i = 0; i < catalog_->extent_count(); ++i) {
      std::vector<catalog::Range> pieces;
      images.push_back(ImageOf(form, ExtentId(i), &pieces));
      bytes += images.back().size();
      EXPECT_EQ(pieces.size(), form.ChunkCount(ExtentId(i)) + 1);
      const auto directory = PackedDirectory::Open(
          form, KeyOf(form, ExtentId(i)), images.back().size(),
          std::span(images.back()).first(pieces.front().length));
      EXPECT_TRUE(directory.has_value()) << directory.error().ToString();
      EXPECT_EQ(directory->raw_checksum(), kRawChecksum);
      const auto found = PackedPieces(form, KeyOf(form, ExtentId(i)), images.back());
      EXPECT_TRUE(found.has_value() && found->size() == pieces.size());
      for (std::uint32_t chunk = 0; chunk < form.ChunkCount(ExtentId(i)); ++chunk) {
        const auto at = directory->ChunkAt(chunk);
        EXPECT_TRUE(at.has_value());
        EXPECT_EQ(at->image_offset, pieces[at->piece].offset);
        EXPECT_EQ(at->bytes(), pieces[at->piece].length);
      }
    }
    for (std::uint32_t field = 0; field < form.schema().fields.size(); ++field) {
      for (std::uint64_t s = 0; s < catalog_->sample_count(); ++s) {
        const PackedUnit unit = form.UnitOf(field, SampleId(s));
        EXPECT_GE(s, unit.first_sample);
        EXPECT_LT(s, unit.first_sample + unit.sample_count);
        const auto text = Read(form, KeyOf(form, unit.extent), images[unit.extent.value()],
                               field, SampleId(s));
        if (!text.has_value() ||
            *text != FieldText(*catalog_, SampleId(s), FieldId(field))) {
          ADD_FAILURE() << "sample " << s << " of field " << field << ": "
                        << (text.has_value() ? "other bytes" : text.error().ToString());
          return bytes;
        }
      }
    }
    return bytes;
  }

  std::shared_ptr<const catalog::Catalog> catalog_;
};

TEST_F(PackedFormTest, HoldsPicturesAndLabels) {
  AddFile("train-images-idx3-ubyte",
          catalog::IdxText(0x08, {500, 28, 28}, WaveText<std::uint8_t>(500 * 784)));
  AddFile("train-labels-idx1-ubyte",
          catalog::IdxText(0x08, {500}, catalog::PatternText(500, 2)));
  source_.extent_bytes = 150'000;  // 191 pictures: the last chunk is an odd one
  const auto form = Form();
  ASSERT_TRUE(form.has_value()) << form.error().ToString();
  EXPECT_EQ((*form)->schema().fields[0].samples_per_chunk, 84U);  // 64 KiB
  EXPECT_GT(catalog_->extent_count(), 3U);
  EXPECT_LT(ExpectRoundTrip(**form), catalog_->total_bytes() / 2);
}

TEST_F(PackedFormTest, HoldsNumbersOfEverySize) {
  const struct {
    Dtype dtype;
    std::string text;
    std::vector<std::uint64_t> shape;
  } cases[] = {
      {Dtype::kU16, WaveText<std::uint16_t>(37 * 1024), {32, 32}},
      {Dtype::kF32, WaveText<float>(37 * 1024), {2, 2, 2, 8, 16}},  // more than four axes
      {Dtype::kF64, WaveText<double>(37 * 100), {100}},
      {Dtype::kI64, WaveText<std::int64_t>(37), {1}},
      {Dtype::kU8, WaveText<std::uint8_t>(37 * 32 * 32 * 3), {32, 32, 3}},
  };
  for (const auto& each : cases) {
    SCOPED_TRACE(DtypeName(each.dtype));
    UseRaw(each.dtype, each.shape, each.text);
    source_.extent_bytes = each.text.size() * 10 / 37;
    for (const Compression compression :
         {Compression::kFast, Compression::kBalanced, Compression::kDense}) {
      const auto form = Form(compression);
      ASSERT_TRUE(form.has_value()) << form.error().ToString();
      ExpectRoundTrip(**form);
    }
  }
}

TEST_F(PackedFormTest, CodesBigEndianElementsAsBytes) {
  AddFile("x-idx2-int", catalog::IdxText(0x0C, {20, 6}, catalog::PatternText(480, 3)));
  source_.format = catalog::Format::kIdx;
  source_.settings.SetTexts("files", {"x=x-idx2-int"});
  const auto form = Form();
  ASSERT_TRUE(form.has_value()) << form.error().ToString();
  EXPECT_EQ((*form)->schema().fields[0].dtype, Dtype::kU8);
  EXPECT_EQ((*form)->schema().fields[0].extent[0], 24U);
  ExpectRoundTrip(**form);
}

TEST_F(PackedFormTest, CutsASampleThatIsLargerThanAChunkIntoTiles) {
  constexpr std::size_t kRows = 1400, kColumns = 1024;  // 5.5 MiB of f32
  UseRaw(Dtype::kF32, {kRows, kColumns}, WaveText<float>(3 * kRows * kColumns));
  source_.extent_bytes = 2 * kRows * kColumns * 4;
  const auto form = Form(Compression::kFast);
  ASSERT_TRUE(form.has_value()) << form.error().ToString();
  EXPECT_EQ((*form)->schema().fields[0].tiles(), 2U);
  ExpectRoundTrip(**form);
}

TEST_F(PackedFormTest, NoiseTakesHardlyMoreThanItHas) {
  UseRaw(Dtype::kU8, {4096}, catalog::PatternText(200 * 4096, 9));
  const auto form = Form();
  ASSERT_TRUE(form.has_value()) << form.error().ToString();
  const std::uint64_t bytes = ExpectRoundTrip(**form);
  EXPECT_LE(bytes, catalog_->total_bytes() / 1000 * 1005 + DirectoryBytes(13));
}

TEST_F(PackedFormTest, NoOtherFormHasItsKeys) {
  UseRaw(Dtype::kU8, {64}, WaveText<std::uint8_t>(640));
  const auto fast = Form(Compression::kFast);
  const auto balanced = Form(Compression::kBalanced);
  ASSERT_TRUE(fast.has_value() && balanced.has_value());
  const tier::ExtentKey raw = tier::KeyOf(*catalog_, ExtentId(0));
  EXPECT_NE((*fast)->Key(raw), raw);
  EXPECT_NE((*fast)->Key(raw), (*balanced)->Key(raw));
  EXPECT_EQ((*fast)->Key(raw).dataset, raw.dataset);
  EXPECT_EQ((*fast)->Key(raw).extent, raw.extent);
}

TEST_F(PackedFormTest, SaysWhatItCannotHold) {
  UseRaw(Dtype::kU8, {250}, WaveText<std::uint8_t>(2500));
  source_.extent_bytes = 100;
  auto form = Form();
  ASSERT_FALSE(form.has_value());
  EXPECT_EQ(form.error().code(), ErrorCode::kFailedPrecondition);
  EXPECT_THAT(form.error().message(), HasSubstr("larger than an extent"));
  source_ = catalog::DatasetSource();
  source_.name = "data";
  source_.format = catalog::Format::kImageFolder;
  AddFile("cat/1.jpg", "meow");
  AddFile("dog/1.jpg", "woof");
  form = Form();
  ASSERT_FALSE(form.has_value());
  EXPECT_THAT(form.error().message(), HasSubstr("image-folder"));
}

TEST_F(PackedFormTest, StopsWhereItIsToldTo) {
  UseRaw(Dtype::kU8, {64, 64}, WaveText<std::uint8_t>(40 * 64 * 64));
  const auto form = Form();
  ASSERT_TRUE(form.has_value()) << form.error().ToString();
  const std::string raw = ExtentText(*catalog_, ExtentId(0));
  std::uint32_t asked = 0;
  const auto packed =
      PackExtent(**form, KeyOf(**form, ExtentId(0)), std::as_bytes(std::span(raw)), kRawChecksum,
                 [&] { return ++asked == 3; });
  ASSERT_FALSE(packed.has_value());
  EXPECT_EQ(packed.error().code(), ErrorCode::kCancelled);
  EXPECT_EQ(asked, 3U);
}

TEST_F(PackedFormTest, RefusesAnImageOfAnotherLength) {
  UseRaw(Dtype::kU8, {64}, WaveText<std::uint8_t>(640));
  const auto form = Form();
  ASSERT_TRUE(form.has_value()) << form.error().ToString();
  const std::vector<std::byte> image(639);
  const auto packed = PackExtent(**form, KeyOf(**form, ExtentId(0)), image, kRawChecksum);
  ASSERT_FALSE(packed.has_value());
  EXPECT_EQ(packed.error().code(), ErrorCode::kInvalidArgument);
}

TEST_F(PackedFormTest, FindsEveryFlippedByteThatAReaderSees) {
  UseRaw(Dtype::kU8, {1024}, WaveText<std::uint8_t>(100 * 1024));
  const auto form = Form();
  ASSERT_TRUE(form.has_value()) << form.error().ToString();
  ASSERT_EQ((*form)->ChunkCount(ExtentId(0)), 2U);
  const tier::ExtentKey key = KeyOf(**form, ExtentId(0));
  std::vector<std::byte> image = ImageOf(**form, ExtentId(0));
  const std::uint64_t directory_bytes = DirectoryBytes(2);
  const auto first = PackedDirectory::Open(**form, key, image.size(),
                                           std::span(image).first(directory_bytes));
  ASSERT_TRUE(first.has_value());
  const catalog::PackChunk chunk = first->ChunkAt(0).value();
  const std::uint64_t end = chunk.image_offset + chunk.bytes();
  for (std::uint64_t at = 0; at < end; ++at) {
    if (at >= directory_bytes && at < chunk.image_offset) continue;
    image[at] ^= std::byte{0x10};
    const auto read = Read(**form, key, image, 0, SampleId(3));
    // A record's bytes 6 and 7 say nothing; only the checksums of pieces and images cover them.
    const std::uint64_t in_record = at - std::min<std::uint64_t>(at, chunk.image_offset);
    if (in_record == 6 || in_record == 7) {
      EXPECT_TRUE(read.has_value());
    } else {
      ASSERT_FALSE(read.has_value()) << "byte " << at;
      EXPECT_EQ(read.error().code(), ErrorCode::kDataLoss) << read.error().ToString();
    }
    image[at] ^= std::byte{0x10};
  }
  EXPECT_TRUE(Read(**form, key, image, 0, SampleId(3)).has_value());
  // The directory of another extent is refused, although its bytes are intact.
  tier::ExtentKey other = key;
  other.identity ^= 1;
  EXPECT_FALSE(Read(**form, other, image, 0, SampleId(3)).has_value());
}

TEST_F(PackedFormTest, FindsAnImageThatWasCutOff) {
  UseRaw(Dtype::kU8, {1024}, WaveText<std::uint8_t>(100 * 1024));
  const auto form = Form();
  ASSERT_TRUE(form.has_value()) << form.error().ToString();
  const tier::ExtentKey key = KeyOf(**form, ExtentId(0));
  const std::vector<std::byte> image = ImageOf(**form, ExtentId(0));
  const std::uint64_t directory_bytes = DirectoryBytes(2);
  for (std::uint64_t bytes = 0; bytes < directory_bytes; ++bytes) {
    // A separate allocation, so that a sanitizer notices a read past its end.
    const std::vector<std::byte> part(image.begin(),
                                      image.begin() + static_cast<std::ptrdiff_t>(bytes));
    const auto directory = PackedDirectory::Open(**form, key, image.size(), part);
    ASSERT_FALSE(directory.has_value()) << bytes;
    EXPECT_EQ(directory.error().code(), ErrorCode::kDataLoss);
  }
  const auto directory = std::span(image).first(directory_bytes);
  for (std::uint64_t bytes = directory_bytes; bytes + 8 < image.size(); ++bytes) {
    const auto open = PackedDirectory::Open(**form, key, bytes, directory);
    ASSERT_TRUE(open.has_value());
    const auto last = open->ChunkAt(1);
    ASSERT_FALSE(last.has_value()) << bytes;
    EXPECT_EQ(last.error().code(), ErrorCode::kDataLoss);
  }
  EXPECT_FALSE(PackedDirectory::Open(**form, key, directory_bytes - 1, directory).has_value());
}

TEST(CompressionTest, HasNames) {
  for (const Compression each : {Compression::kOff, Compression::kFast, Compression::kBalanced,
                                 Compression::kDense}) {
    EXPECT_EQ(ParseCompression(CompressionName(each)), each);
  }
  EXPECT_FALSE(ParseCompression("best").has_value());
}

}  // namespace
}  // namespace forebay::stage
