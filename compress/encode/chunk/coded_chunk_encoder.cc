// The stages of a coded chunk (docs/pack_chunk.md) in the order of encoding: quantiser, masks,
// escapes, offset and dictionary, colours, planes. Samples that are their elements take a short way
// (RunPlain) that skips all of this. Where a mask was only guessed, the chunk is also prepared
// without it, and an estimate decides which of the two is encoded. Called by chunk_encoder.cc.
#include "compress/encode/chunk/coded_chunk_encoder.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>

#include "compress/encode/chunk/byte_stream_encoder.h"
#include "compress/encode/chunk/code_table.h"
#include "compress/encode/chunk/mask_encoder.h"
#include "compress/encode/chunk/plane_streams.h"
#include "compress/encode/chunk/value_quantiser.h"
#include "compress/format/chunk/chunk_header.h"
#include "compress/format/chunk/colour.h"
#include "compress/format/chunk/element_code.h"
#include "proto/contract/check.h"

namespace forebay::compress {
namespace {

constexpr int kSideLevel = 19;  // zstd, of masks and lists: small and seldom
// A dictionary pays where values are rarer than one in so many, even for a reader in a hurry; it
// costs too much to find out in chunks of a few bytes more.
constexpr std::uint32_t kGapsPlainBytes = 4, kGapsPlainWords = 16;
// Where time allows a dense encode, a mask that nobody declared and a dictionary of samples that
// fit a plane anyway must save one part in so many: they come on top of the planes' decoding. So
// must a dictionary of quantised values, without which those of one plane are made in one pass.
constexpr std::size_t kGuessShareMin = 8;
constexpr std::uint32_t kSamplesJudged = 2;
// Of so many values a dictionary makes bytes, which decode faster than the words they were.
constexpr std::uint32_t kBytesDistinct = 256;
constexpr std::size_t kSmallChunkBytes = std::size_t{8} << 10;

// One attempt at a chunk: Prepare, then Saves or Finish; or IsPlain and then RunPlain.
class CodedChunkEncoder {
 public:
  CodedChunkEncoder(const ChunkShape& shape, std::span<const std::byte> raw,
                    const ChunkOptions& options, HoleSearch search)
      : shape_(shape),
        geometry_(GeometryOf(shape)),
        raw_(raw),
        options_(options),
        search_(search) {}

  // Runs all stages before the planes, and encodes masks, escapes and dictionary.
  Status Prepare() {
    // The order matters: masks are found in the elements' bits, quantising needs to know the holes,
    // and holes are filled last, when it is known which codes surround them.
    LoadBits();
    holes_.assign(shape_.elements(), 0);
    const bool lossy = options_.bound.mode != BoundMode::kLossless;
    const std::vector<std::uint64_t> patterns = MaskPatterns(shape_, bits_, search_);
    guessed_ = search_ == HoleSearch::kOutliers &&
               patterns != MaskPatterns(shape_, bits_, HoleSearch::kDeclared);
    MarkHoles(patterns);
    if (lossy) Quantise();
    if (!quantised_.has_value()) LoadCodes();
    FOREBAY_TRY(EncodeMasks(patterns));
    EncodeEscapes();
    FillHoles(geometry_, holes_, codes_);
    EncodeTable();
    return {};
  }

  // Whether this chunk's masks, prepared, are worth their time next to `other` without them.
  bool Saves(const CodedChunkEncoder& other) const {
    // A mask that saves little is not worth the pass in which decoders lay it over the values.
    const std::size_t bytes = other.EstimateBytes();
    return EstimateBytes() < bytes - bytes / kGuessShareMin;
  }

  Result<std::vector<std::byte>> Finish() {
    FOREBAY_TRY(EncodeAllPlanes());
    return Serialise();
  }

  // Elements that are their own samples: nothing but channels and colours. False where they are
  // of another kind; then nothing has been done.
  bool IsPlain() {
    // Only unsigned integers are their own codes; others have their bits changed so that they sort.
    if (OrderOf(shape_.dtype) != CodeOrder::kUnsigned) return false;
    if (options_.bound.mode != BoundMode::kLossless) return false;
    // Words have the same planes in both profiles, and what lies around those is the slower part.
    const bool hurried = options_.profile == Profile::kBalanced ||
                         (options_.profile == Profile::kFast && shape_.element_bytes() == 2);
    if (hurried && raw_.size() > kSmallChunkBytes) {
      return shape_.element_bytes() == 1 ? FillsItsRange<std::uint8_t>(kGapsPlainBytes, 1)
                                         : shape_.element_bytes() == 2 &&
                                               geometry_.channels == 1 &&
                                               FillsItsRange<std::uint16_t>(kGapsPlainWords, 1);
    }
    if (IsDense() && shape_.element_bytes() == 2 && geometry_.channels == 1) {
      return FillsItsRange<std::uint16_t>(kGapsPlainWords, kBytesDistinct) && !MaskPays();
    }
    if (shape_.element_bytes() != 1) return false;
    // With more than half of all values a dictionary would save no bit. A fill value that does not
    // occur needs no mask.
    std::array<std::uint32_t, 256> counts{};
    const std::uint32_t distinct = Count<std::uint8_t>(counts);
    return distinct > 128 && (!shape_.fill_bits.has_value() || *shape_.fill_bits > 255 ||
                              counts[*shape_.fill_bits] == 0);
  }

  // Where Prepare made a mask that values may do without: what to look for instead. Values of more
  // bytes or of floating point, and those with a bound, need the masks that were declared.
  std::optional<HoleSearch> PlainerSearch() const {
    // Fast profiles do not take the time to prepare a chunk twice.
    if (!IsDense() || shape_.element_bytes() == 1 || head_.stages.mask_count == 0) {
      return std::nullopt;
    }
    if (shape_.element_bytes() == 2 && options_.bound.mode == BoundMode::kLossless &&
        OrderOf(shape_.dtype) != CodeOrder::kFloat) {
      return HoleSearch::kNone;
    }
    if (guessed_) return HoleSearch::kDeclared;
    return std::nullopt;
  }

  // Encodes elements as samples: channels, colours and planes, and no other stage.
  Result<std::vector<std::byte>> RunPlain() {
    constexpr std::uint8_t kBits = 8;
    // The plane's samples are the elements, which a reader then decodes without any further stage.
    head_.stages.plane_count = 1;
    head_.stages.plane_bits[0] = shape_.element_bytes() == 1 ? kBits : plain_bits_;
    if (geometry_.channels == 1) {
      FOREBAY_TRY(AddPlane(raw_));
      return Serialise();
    }
    // A colour transform needs three channels, as in RGB; a fourth one is left as it is.
    std::vector<std::vector<std::uint8_t>> channels = SplitBytes();
    if (geometry_.channels >= 3) {
      std::array<std::vector<std::uint32_t>, 3> colours;
      for (std::size_t c = 0; c < 3; ++c) colours[c].assign(channels[c].begin(), channels[c].end());
      head_.stages.colour = ChooseColour(geometry_, kBits, colours);
      if (head_.stages.colour != ColourKind::kNone) {
        ForwardColour(head_.stages.colour, kBits, geometry_.pixels(), channels[0].data(),
                      channels[1].data(), channels[2].data());
      }
    }
    for (const auto& channel : channels) FOREBAY_TRY(AddPlane(std::as_bytes(std::span(channel))));
    return Serialise();
  }

 private:
  // For readers who would wait for the better ratio.
  bool IsDense() const {
    return options_.profile != Profile::kFast && options_.profile != Profile::kBalanced;
  }

  StreamAims Aims() const {
    return {.profile = options_.profile,
            .predictor = options_.predictor.get(),
            .bounded = quantised_.has_value()};
  }

  // What a chunk comes to after Prepare, planes and all; cheap beside encoding them.
  std::size_t EstimateBytes() const {
    std::size_t bytes = EstimateCodeBytes(geometry_, code_bits_, codes_);
    for (const EncodedStream& stream : streams_) bytes += stream.body.size();
    return bytes;
  }

  // How often each value occurs, and how many do.
  template <typename T>
  std::uint32_t Count(std::span<std::uint32_t> counts) const {
    for (std::size_t at = 0; at < raw_.size(); at += sizeof(T)) {
      T value = 0;
      std::memcpy(&value, raw_.data() + at, sizeof(T));
      ++counts[value];
    }
    return static_cast<std::uint32_t>(
        std::ranges::count_if(counts, [](std::uint32_t count) { return count > 0; }));
  }

  // True where more than so many values occur, at least one in `gaps` of those that lie between
  // zero and the largest, and samples of T hold them: then neither offset, shift nor dictionary
  // gains what a fast reader would lose by them, and holes are values as all others.
  template <typename T>
  bool FillsItsRange(std::uint32_t gaps, std::uint32_t more_than) {
    std::vector<std::uint32_t> counts(std::size_t{1} << (8 * sizeof(T)));
    const std::uint32_t distinct = Count<T>(counts);
    std::size_t highest = counts.size() - 1;
    // A plane need not be wider than the largest value that occurs.
    while (highest > 0 && counts[highest] == 0) --highest;
    plain_bits_ = static_cast<std::uint8_t>(std::bit_width(highest));
    if (sizeof(T) == 2 && plain_bits_ <= 8) return false;
    return distinct > more_than && highest / gaps < distinct;
  }

  // Judged by the chunk's first samples, as masks of all of them cost more than the answer.
  bool MaskPays() const {
    ChunkShape part = shape_;
    part.samples = std::min(part.samples, kSamplesJudged);
    const std::span<const std::byte> raw = raw_.first(part.bytes());
    CodedChunkEncoder masked(part, raw, options_, HoleSearch::kOutliers);
    // An error here only means that this question has no answer; the real attempt reports it.
    if (!masked.Prepare().has_value() || masked.head_.stages.mask_count == 0) return false;
    CodedChunkEncoder plain(part, raw, options_, HoleSearch::kNone);
    return plain.Prepare().has_value() && masked.Saves(plain);
  }

  Status AddPlane(std::span<const std::byte> samples) {
    FOREBAY_ASSIGN(EncodedStream stream,
                   EncodeSampleStream(geometry_, head_.stages.plane_bits[0], samples, Aims()));
    streams_.push_back(std::move(stream));
    return {};
  }

  std::vector<std::vector<std::uint8_t>> SplitBytes() const {
    const std::size_t channels = geometry_.channels, inner = geometry_.inner_extent;
    std::vector<std::vector<std::uint8_t>> split(channels);
    for (std::size_t c = 0; c < channels; ++c) {
      split[c].resize(geometry_.pixels());
      std::size_t pixel = 0;
      for (std::size_t at = c * inner; at < raw_.size(); at += channels * inner) {
        for (std::size_t i = 0; i < inner; ++i) {
          split[c][pixel++] = std::to_integer<std::uint8_t>(raw_[at + i]);
        }
      }
    }
    return split;
  }

  std::vector<std::byte> Serialise() {
    for (std::size_t i = 0; i < streams_.size(); ++i) {
      head_.streams[i] = {.coder = streams_[i].coder,
                          .raw_bytes = static_cast<std::uint32_t>(streams_[i].raw_bytes),
                          .body = streams_[i].body};
    }
    head_.stream_count = static_cast<std::uint32_t>(streams_.size());
    return SerialiseChunk(head_);
  }

  // Elements as unsigned integers of 64 bits, whatever their type.
  void LoadBits() {
    const std::size_t bytes = shape_.element_bytes();
    bits_.resize(shape_.elements());
    for (std::size_t i = 0; i < bits_.size(); ++i) {
      std::memcpy(&bits_[i], raw_.data() + i * bytes, bytes);
    }
  }

  // Flags the elements that a mask will restore.
  void MarkHoles(std::span<const std::uint64_t> patterns) {
    for (const std::uint64_t pattern : patterns) {
      for (std::size_t i = 0; i < bits_.size(); ++i) {
        holes_[i] = static_cast<std::uint8_t>(holes_[i] | (bits_[i] == pattern ? 1 : 0));
      }
    }
  }

  void LoadCodes() {
    const CodeOrder order = OrderOf(shape_.dtype);
    codes_.resize(bits_.size());
    for (std::size_t i = 0; i < bits_.size(); ++i) {
      switch (shape_.element_bytes()) {
        case 1: codes_[i] = CodeOfElement(order, static_cast<std::uint8_t>(bits_[i])); break;
        case 2: codes_[i] = CodeOfElement(order, static_cast<std::uint16_t>(bits_[i])); break;
        case 4: codes_[i] = CodeOfElement(order, static_cast<std::uint32_t>(bits_[i])); break;
        default: codes_[i] = CodeOfElement(order, bits_[i]); break;
      }
    }
  }

  // Numbers less the smallest of them; escapes become holes.
  void Quantise() {
    quantised_ = QuantiseValues(shape_, raw_, options_.bound, holes_);
    if (!quantised_.has_value()) return;
    std::int64_t low = INT64_MAX, high = INT64_MIN;
    for (std::size_t i = 0; i < bits_.size(); ++i) {
      if (holes_[i] != 0 || quantised_->escaped[i] != 0) continue;
      low = std::min(low, quantised_->numbers[i]);
      high = std::max(high, quantised_->numbers[i]);
    }
    // No element is left: every one is a hole or an escape.
    if (low > high) low = high = 0;
    const auto range = static_cast<std::uint64_t>(high - low);
    // Codes must fit the element's width. Where they would not, the chunk is lossless.
    if (static_cast<std::size_t>(std::bit_width(range)) > 8 * shape_.element_bytes()) {
      quantised_.reset();
      return;
    }
    codes_.resize(bits_.size());
    for (std::size_t i = 0; i < bits_.size(); ++i) {
      // What is decoded at a hole is overwritten; FillHoles chooses it later.
      const std::uint8_t hole = holes_[i] | quantised_->escaped[i];
      codes_[i] = hole != 0 ? 0 : static_cast<std::uint64_t>(quantised_->numbers[i] - low);
    }
    head_.stages.quantiser = quantised_->quantiser;
    base_ = static_cast<std::uint64_t>(low);
    // The decoder adds the offset modulo 2^32 for elements of up to 4 bytes.
    if (shape_.element_bytes() < 8) base_ &= 0xFFFF'FFFF;
  }

  // Encodes each mask as run lengths, or as a plane of one bit where that is smaller and the
  // profile allows the time.
  Status EncodeMasks(std::span<const std::uint64_t> patterns) {
    std::vector<std::uint8_t> mask(bits_.size());
    for (const std::uint64_t pattern : patterns) {
      for (std::size_t i = 0; i < bits_.size(); ++i) mask[i] = bits_[i] == pattern ? 1 : 0;
      const std::size_t period =
          geometry_.frames > 1 ? shape_.elements() / geometry_.frames : 0;
      // An element may equal only one pattern, so the order of the masks does not change what is
      // decoded.
      const EncodedRuns runs = EncodeRuns(mask, period);
      EncodedStream stream = EncodeSideStream(runs.bytes, kSideLevel);
      ChunkMask& entry = head_.stages.masks[head_.stages.mask_count++];
      entry = {.pattern = pattern, .temporal = runs.temporal};
      if (IsDense() && geometry_.allows_planes && geometry_.channels == 1) {
        // Quick to decode, as it comes on top of the values.
        FOREBAY_ASSIGN(std::vector<std::byte> planes,
                       EncodePlanes(geometry_.Plane(1), std::as_bytes(std::span(mask)),
                                    Profile::kBalanced));
        if (planes.size() < stream.body.size()) {
          stream = {.coder = StreamCoder::kPlanes, .raw_bytes = mask.size(),
                    .body = std::move(planes)};
          entry.temporal = false;
        }
      }
      streams_.push_back(std::move(stream));
    }
    return {};
  }

  // Places and values of elements for which no quantised number keeps the bound.
  void EncodeEscapes() {
    if (!quantised_.has_value()) return;
    const std::vector<std::uint8_t>& escaped = quantised_->escaped;
    const auto count = std::count(escaped.begin(), escaped.end(), std::uint8_t{1});
    if (count == 0) return;
    head_.stages.escape_count = static_cast<std::uint32_t>(count);
    const std::size_t bytes = shape_.element_bytes();
    std::vector<std::byte> values;
    for (std::size_t i = 0; i < escaped.size(); ++i) {
      // From here on escapes are holes like masked elements: their codes are free to choose.
      holes_[i] |= escaped[i];
      if (escaped[i] == 0) continue;
      values.insert(values.end(), raw_.begin() + static_cast<std::ptrdiff_t>(i * bytes),
                    raw_.begin() + static_cast<std::ptrdiff_t>((i + 1) * bytes));
    }
    streams_.push_back(EncodeSideStream(EncodePlaces(escaped), kSideLevel));
    streams_.push_back(EncodeSideStream(values, kSideLevel));
  }

  // Offset, shift and dictionary. The offset also carries the smallest quantised number.
  void EncodeTable() {
    const bool must_pay =
        quantised_.has_value() || (IsDense() && shape_.element_bytes() == 2);
    CodeTable table = ChooseCodeTable(geometry_, 8 * shape_.element_bytes(),
                                      must_pay ? kGuessShareMin : 0, codes_);
    head_.stages.offset = base_ + table.offset;
    if (shape_.element_bytes() < 8) head_.stages.offset &= 0xFFFF'FFFF;
    head_.stages.shift = table.shift;
    head_.stages.dictionary_count = table.dictionary_count;
    code_bits_ = table.bits;
    if (table.dictionary_count > 0) {
      streams_.push_back(EncodeSideStream(table.dictionary, kSideLevel));
    }
  }

  // Splits codes into channels, colours and planes of at most 16 bits, and encodes each plane.
  Status EncodeAllPlanes() {
    std::vector<std::vector<std::uint64_t>> channels = SplitChannels(geometry_, codes_);
    if (geometry_.channels >= 3 && code_bits_ > 0 && code_bits_ <= 16) {
      std::array<std::vector<std::uint32_t>, 3> colours;
      for (std::size_t c = 0; c < 3; ++c) colours[c] = BitsOf(channels[c], 0, code_bits_);
      head_.stages.colour = ChooseColour(geometry_, code_bits_, colours);
      if (head_.stages.colour != ColourKind::kNone) {
        ForwardColour(head_.stages.colour, code_bits_, geometry_.pixels(), channels[0].data(),
                      channels[1].data(), channels[2].data());
      }
    }
    head_.stages.plane_count = SplitBits(code_bits_, head_.stages.plane_bits);
    for (const auto& channel : channels) {
      unsigned shift = 0;
      for (std::size_t p = 0; p < head_.stages.plane_count; ++p) {
        const std::uint8_t bits = head_.stages.plane_bits[p];
        FOREBAY_ASSIGN(EncodedStream stream,
                       EncodePlaneStream(geometry_, bits, shift, channel, Aims()));
        streams_.push_back(std::move(stream));
        shift += bits;
      }
    }
    return {};
  }

  const ChunkShape& shape_;
  const ChunkGeometry geometry_;
  const std::span<const std::byte> raw_;
  const ChunkOptions& options_;
  const HoleSearch search_;
  std::vector<std::uint64_t> bits_, codes_;
  std::vector<std::uint8_t> holes_;  // masked or escaped: whatever decodes there is overwritten
  std::optional<QuantisedValues> quantised_;
  std::uint64_t base_ = 0;
  std::uint32_t code_bits_ = 0;
  std::uint8_t plain_bits_ = 0;
  bool guessed_ = false;
  CodedHead head_;
  std::vector<EncodedStream> streams_;
};

}  // namespace

Result<std::vector<std::byte>> EncodeCodedChunk(const ChunkShape& shape,
                                                std::span<const std::byte> raw,
                                                const ChunkOptions& options) {
  CodedChunkEncoder encoder(shape, raw, options, HoleSearch::kOutliers);
  if (encoder.IsPlain()) return encoder.RunPlain();
  FOREBAY_TRY(encoder.Prepare());
  const std::optional<HoleSearch> plainer = encoder.PlainerSearch();
  if (!plainer.has_value()) return encoder.Finish();
  CodedChunkEncoder other(shape, raw, options, *plainer);
  FOREBAY_TRY(other.Prepare());
  // Only the chosen attempt encodes its planes, which takes most of the time.
  return encoder.Saves(other) ? encoder.Finish() : other.Finish();
}

}  // namespace forebay::compress
