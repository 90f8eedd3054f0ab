// What `forebay pack --bound` means: of which range, which is given, found, or not to be had.
#include <bit>
#include <cstring>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client/cli/pack/pack_bounds.h"
#include "compress/encode/chunk/error_bound.h"

namespace forebay::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Samples of a label and two floats, from memory.
class HeldSource : public PackSource {
 public:
  HeldSource(std::vector<std::vector<float>> samples, bool is_held)
      : samples_(std::move(samples)), is_held_(is_held) {
    schema_.fields = {{.name = "label", .dtype = Dtype::kI32, .bound = {}},
                      {.name = "field",
                       .dtype = Dtype::kF32,
                       .rank = 1,
                       .extent = {2, 1, 1, 1},
                       .bound = {},
                       .tile = {2, 1, 1, 1}}};
    schema_.fields[0].kind = compress::FieldKind::kLabel;
  }
  const compress::PackSchema& schema() const override { return schema_; }
  std::uint64_t samples() const override { return samples_.size(); }
  bool can_be_read_again() const override { return is_held_; }
  const std::vector<std::string>& notes() const override { return notes_; }
  Status Skip(std::uint64_t) override { return {}; }
  Status Next(PackSample& sample) override {
    sample.fields = {std::as_bytes(std::span(&label_, 1)),
                     std::as_bytes(std::span(samples_.at(next_)))};
    ++next_;
    return {};
  }

 private:
  std::vector<std::vector<float>> samples_;
  const bool is_held_;
  compress::PackSchema schema_;
  std::vector<std::string> notes_;
  std::int32_t label_ = 1'000'000;
  std::size_t next_ = 0;
};

const float kNan = std::numeric_limits<float>::quiet_NaN();

class PackBounds : public ::testing::Test {
 protected:
  // The schema as planned for these samples.
  Result<compress::PackSchema> Plan(std::vector<std::string> bounds, bool is_held = true,
                                    const compress::PackSchema* before = nullptr,
                                    bool resumes = false) {
    HeldSource source(samples_, is_held);
    compress::PackSchema schema = source.schema();
    FOREBAY_TRY(SetBounds(
        {.bounds = std::move(bounds),
         .fields = {},
         .samples = samples_.size(),
         .open = [&]() -> Result<std::unique_ptr<PackSource>> {
           ++passes_;
           return std::unique_ptr<PackSource>(std::make_unique<HeldSource>(samples_, is_held));
         },
         .before = before,
         .resumes = resumes},
        source, schema));
    return schema;
  }

  std::vector<std::vector<float>> samples_ = {{10, 11}, {kNan, -5}, {0, 35}};
  int passes_ = 0;
};

TEST_F(PackBounds, AreReadAndWritten) {
  const auto mode = [](const char* text) {
    return static_cast<compress::BoundMode>(ParseBound(text)->bound.mode);
  };
  using enum compress::BoundMode;
  EXPECT_EQ(mode("abs:0.5"), kAbsolute);
  EXPECT_EQ(ParseBound("abs:0.5")->bound.absolute, 0.5);
  EXPECT_FALSE(ParseBound("abs:0.5")->of_field);
  EXPECT_EQ(mode("pw:1e-3"), kPointwise);
  EXPECT_EQ(mode("rel:1e-3"), kChunkRelative);
  EXPECT_EQ(ParseBound("rel:1e-3")->bound.relative, 1e-3);
  EXPECT_TRUE(ParseBound("rel:1e-3")->of_field);
  EXPECT_FALSE(ParseBound("rel:1e-3")->range.has_value());
  EXPECT_EQ(mode("both:2,1e-3"), kAbsoluteAndChunkRelative);
  EXPECT_EQ(ParseBound("both:2,1e-3")->bound.absolute, 2);
  EXPECT_EQ(mode("either:2,0.001"), kAbsoluteOrChunkRelative);
  EXPECT_EQ(ParseBound("either:2,0.001")->bound.relative, 0.001);
  EXPECT_EQ(mode("chunk-rel:1e-3"), kChunkRelative);
  EXPECT_FALSE(ParseBound("chunk-rel:1e-3")->of_field);
  EXPECT_EQ(mode("chunk-both:2,1e-3"), kAbsoluteAndChunkRelative);
  EXPECT_EQ(mode("chunk-either:2,1e-3"), kAbsoluteOrChunkRelative);
  EXPECT_EQ(ParseBound("rel:1e-3,-5,35")->range->width(), 40);
  EXPECT_EQ(ParseBound("both:2,1e-3,-5,35")->range->low, -5);
  for (const char* text : {"rel:0.001,-5,35.25", "both:2,0.001,-5,35", "either:2,1e-300,0,1"}) {
    const auto request = ParseBound(text);
    ASSERT_TRUE(request.has_value()) << text;
    EXPECT_EQ(BoundText(*request, *request->range), text);
  }
}

TEST_F(PackBounds, WhatIsWrittenWronglyIsRefused) {
  for (const char* text :
       {"", "abs", "abs:", "abs:x", "abs:1x", "abs:0", "abs:-1", "abs:inf", "abs:nan", "max:1",
        "both:2", "both:,1", "both:1,", "either:1,0", "both:1,2,3", "abs:1,0,5", "pw:1,0,5",
        "rel:1e-3,5", "rel:1e-3,5,1", "rel:1e-3,0,inf", "rel:1e-3,0,1,2", "chunk-abs:1",
        "chunk-pw:1", "chunk-rel:1,0,5", "chunk-:1", "rel:1e-3,0,1,"}) {
    const auto request = ParseBound(text);
    ASSERT_FALSE(request.has_value()) << text;
    EXPECT_EQ(request.error().code(), ErrorCode::kInvalidArgument) << text;
    EXPECT_THAT(request.error().message(), HasSubstr("chunk-rel")) << text;
  }
}

TEST_F(PackBounds, OfAFieldAreOfTheRangeOfAllItsSamples) {
  const auto found = Plan({"rel:0.01"});
  ASSERT_TRUE(found.has_value()) << found.error().message();
  EXPECT_EQ(passes_, 1);
  const compress::PackField& field = found->fields[1];
  EXPECT_EQ(field.bound.mode, static_cast<std::uint8_t>(compress::BoundMode::kAbsolute));
  EXPECT_DOUBLE_EQ(field.bound.absolute, 0.4);
  EXPECT_EQ(field.bound.relative, 0);
  EXPECT_EQ(found->fields[0].bound.mode, 0);
  EXPECT_THAT(found->provenance, ::testing::ElementsAre(
                                     std::pair("bound.field", "rel:0.01,-5,35"),
                                     std::pair("bound-range.field", "found")));
  EXPECT_EQ(DescribeBound(*found, field), "abs 0.4 (rel 0.01 of the field's range, -5 to 35)");
  EXPECT_DOUBLE_EQ(Plan({"both:0.3,0.01"})->fields[1].bound.absolute, 0.3);
  EXPECT_DOUBLE_EQ(Plan({"either:0.3,0.01"})->fields[1].bound.absolute, 0.4);
}

TEST_F(PackBounds, OfAGivenRangeNeedNoPass) {
  for (const bool is_held : {true, false}) {
    const auto given = Plan({"rel:0.01,0,1000"}, is_held);
    ASSERT_TRUE(given.has_value()) << given.error().message();
    EXPECT_DOUBLE_EQ(given->fields[1].bound.absolute, 10);
    EXPECT_EQ(given->provenance[1].second, "given");
    EXPECT_TRUE(Plan({"abs:1"}, is_held).has_value());
    EXPECT_TRUE(Plan({"chunk-rel:0.01"}, is_held).has_value());
  }
  EXPECT_EQ(passes_, 0);
}

TEST_F(PackBounds, OfSamplesThatComeOnceNeedARange) {
  const auto refused = Plan({"rel:0.01"}, false);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code(), ErrorCode::kInvalidArgument);
  EXPECT_THAT(refused.error().message(),
              AllOf(HasSubstr("--bound rel:0.01: the range of field field"),
                    HasSubstr("rel:0.01,LOW,HIGH"), HasSubstr("chunk-rel:0.01")));
  EXPECT_EQ(passes_, 0);
}

TEST_F(PackBounds, OfAChunkStayWhatTheyWere) {
  const auto schema = Plan({"chunk-rel:0.01"});
  ASSERT_TRUE(schema.has_value());
  EXPECT_EQ(schema->fields[1].bound.mode,
            static_cast<std::uint8_t>(compress::BoundMode::kChunkRelative));
  EXPECT_EQ(schema->fields[1].bound.relative, 0.01);
  EXPECT_TRUE(schema->provenance.empty());
  EXPECT_EQ(DescribeBound(*schema, schema->fields[1]), "chunk-rel 0.01");
}

TEST_F(PackBounds, OfASetAreThoseOfItsFirstSamples) {
  const auto first = Plan({"rel:0.01"});
  ASSERT_TRUE(first.has_value());
  samples_ = {{0, 1}};
  const auto second = Plan({"rel:0.01"}, false, &*first);
  ASSERT_TRUE(second.has_value()) << second.error().message();
  EXPECT_EQ(second->fields[1].bound.absolute, first->fields[1].bound.absolute);
  EXPECT_EQ(second->provenance[1].second, "of the set's first samples");
  const auto tighter = Plan({"rel:0.005"}, true, &*first);
  ASSERT_TRUE(tighter.has_value());
  EXPECT_DOUBLE_EQ(tighter->fields[1].bound.absolute, 0.005);
}

TEST_F(PackBounds, OfAResumedPackAreWhatTheyWereWithoutAPass) {
  const auto first = Plan({"rel:0.01"});
  ASSERT_TRUE(first.has_value());
  samples_ = {{0, 1}};  // fewer than before: --limit, for example
  passes_ = 0;
  const auto resumed = Plan({"rel:0.01"}, true, &*first, /*resumes=*/true);
  ASSERT_TRUE(resumed.has_value());
  EXPECT_EQ(passes_, 0);
  EXPECT_EQ(resumed->provenance, first->provenance);
  EXPECT_EQ(resumed->fields[1].bound.absolute, first->fields[1].bound.absolute);
}

TEST_F(PackBounds, WithoutAValidValueAreExact) {
  samples_ = {{kNan, kNan}};
  const auto schema = Plan({"rel:0.01"});
  ASSERT_TRUE(schema.has_value());
  EXPECT_EQ(schema->fields[1].bound.absolute, 0);
}

TEST_F(PackBounds, OfFieldsWhoseNamesEndLikeAKeyDoNotMeet) {
  const auto first = Plan({"rel:0.01"});
  ASSERT_TRUE(first.has_value());
  compress::PackField other = first->fields[1];
  other.name = "field.range";
  const compress::PackSchema& schema = *first;
  EXPECT_EQ(DescribeBound(schema, other), "abs 0.4") << "of another field";
}

TEST_F(PackBounds, AreShownAsTheyHoldWhateverProvenanceSays) {
  auto schema = Plan({"rel:0.01"});
  ASSERT_TRUE(schema.has_value());
  schema->fields[1].bound.absolute = 100;
  EXPECT_EQ(DescribeBound(*schema, schema->fields[1]), "abs 100");
}

TEST_F(PackBounds, OfSamplesThatChangedMeanwhileAreRefused) {
  HeldSource source(samples_, true);
  for (const bool fewer : {true, false}) {
    compress::PackSchema schema = source.schema();
    const std::vector<std::vector<float>> changed = {{1, 2}};
    if (!fewer) schema.fields[1].extent[0] = 3;
    const Status refused = SetBounds(
        {.bounds = {"rel:0.01"},
         .fields = {},
         .samples = fewer ? samples_.size() : 1,
         .open = [&]() -> Result<std::unique_ptr<PackSource>> {
           return std::unique_ptr<PackSource>(std::make_unique<HeldSource>(changed, true));
         }},
        source, schema);
    ASSERT_FALSE(refused.has_value());
    EXPECT_EQ(refused.error().code(), ErrorCode::kFailedPrecondition);
    EXPECT_THAT(refused.error().message(), HasSubstr("the samples changed"));
  }
}

TEST_F(PackBounds, OfARangeThatDoesNotFitTheValuesAreSaid) {
  const auto warning = [&](const char* bound, double low, double high) {
    const auto schema = Plan({bound});
    EXPECT_TRUE(schema.has_value());
    compress::FieldStatistics values;
    values.values = values.valid = 2;
    values.minimum_bits = std::bit_cast<std::uint64_t>(low);
    values.maximum_bits = std::bit_cast<std::uint64_t>(high);
    return RangeWarning(*schema, schema->fields[1], values).value_or("");
  };
  EXPECT_EQ(warning("rel:0.01,0,100", 0, 101), "") << "within the bound";
  EXPECT_EQ(warning("rel:0.01,0,100", 20, 40), "");
  EXPECT_THAT(warning("rel:0.01,0,100", -3, 40), HasSubstr("beyond the range"));
  EXPECT_THAT(warning("rel:0.01,0,100", 0, 102), HasSubstr("beyond the range"));
  EXPECT_THAT(warning("rel:0.01,0,1e300", 0, 1), HasSubstr("a small part of the range"));
  EXPECT_EQ(warning("rel:0.01", -1000, 1000), "") << "found, not given";
  EXPECT_EQ(warning("abs:5", -1000, 1000), "");
}

}  // namespace
}  // namespace forebay::cli
