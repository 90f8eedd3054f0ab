// A stand-in for TEZip (Sato et al., "Compression of Time Evolutionary Image Data through
// Predictive Deep Neural Networks", CCGrid 2021), written from a description of its stages. The
// predictor's place is taken by the previous frame, which favours it in speed: per window of
// frames one key frame; prediction minus pixel in 16 bits; one first difference over the
// flattened residual; values replaced by their rank in frequency; zstd level 9 over the 16-bit
// ranks of all frames, and over all frames with zeros where there is no key frame.
#include <zstd.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <numeric>
#include <utility>

#include "bench/codec/peer_table.h"
#include "proto/contract/checksum.h"

namespace forebay::bench {
namespace {

constexpr int kLevel = 9;
using Words = std::vector<std::int16_t>;

struct TezipFile {
  ArrayInfo info;
  std::uint32_t window = 8;
  std::vector<std::byte> keys;     // zstd
  std::vector<std::byte> entropy;  // zstd: ranks, then the table
  std::size_t table_words = 0;
  std::uint64_t checksum = 0;  // not in TEZip; verified here as for every peer
};

// TEZip, too, compresses the whole stream in one call.
Result<std::vector<std::byte>> Squeeze(std::span<const std::byte> raw) {
  std::vector<std::byte> coded(ZSTD_compressBound(raw.size()));
  const std::size_t size =
      ZSTD_compress(coded.data(), coded.size(), raw.data(), raw.size(), kLevel);
  if (ZSTD_isError(size) != 0) return Error(ErrorCode::kInternal, ZSTD_getErrorName(size));
  coded.resize(size);
  return coded;
}

Status Expand(std::span<const std::byte> coded, std::span<std::byte> raw) {
  const std::size_t size = ZSTD_decompress(raw.data(), raw.size(), coded.data(), coded.size());
  if (size != raw.size()) return Error(ErrorCode::kDataLoss, "TEZip stand-in: another size");
  return {};
}

// Replaces words by their rank in frequency; returns rank -> word.
Words RankByFrequency(Words& words) {
  std::map<std::int16_t, std::size_t> counts;
  for (const std::int16_t word : words) ++counts[word];
  Words table;
  for (const auto& entry : counts) table.push_back(entry.first);
  std::ranges::stable_sort(table, [&counts](std::int16_t a, std::int16_t b) {
    return counts[a] > counts[b];
  });
  std::map<std::int16_t, std::int16_t> ranks;
  for (std::size_t rank = 0; rank < table.size(); ++rank) {
    ranks[table[rank]] = static_cast<std::int16_t>(rank);
  }
  for (std::int16_t& word : words) word = ranks[word];
  return table;
}

// Buffers of the array's size are made before the timing, which favours it.
class TezipDecoder : public ArrayDecoder {
 public:
  explicit TezipDecoder(const TezipFile& file)
      : file_(file),
        keys_(file.info.bytes()),
        words_(Residuals(file) + file.table_words),
        whole_(file.info.bytes()) {}

  static std::size_t Residuals(const TezipFile& file) {
    const std::uint32_t frames = file.info.frames();
    const std::uint32_t keys = (frames + file.window - 1) / file.window;
    return (frames - keys) * file.info.frame_bytes();
  }

  Status Decode(std::size_t /*first*/, std::size_t /*count*/,
                std::span<std::byte> array) override {
    FOREBAY_TRY(Expand(file_.keys, keys_));
    FOREBAY_TRY(Expand(file_.entropy, std::as_writable_bytes(std::span(words_))));
    const std::size_t frame_bytes = file_.info.frame_bytes();
    const std::int16_t* const table = words_.data() + Residuals(file_);
    const std::int16_t* rank = words_.data();
    // The difference runs on over all frames of the stream, as the description says, so no frame
    // can be decoded without all frames before it.
    int residual = 0;
    for (std::uint32_t frame = 0; frame < file_.info.frames(); ++frame) {
      std::byte* const out = array.data() + frame * frame_bytes;
      if (frame % file_.window == 0) {
        std::memcpy(out, keys_.data() + frame * frame_bytes, frame_bytes);
        continue;
      }
      for (std::size_t i = 0; i < frame_bytes; ++i, ++rank) {
        // Checked, because a decoder that reads beyond its table when the input is damaged would be
        // faster than an honest one.
        if (static_cast<std::size_t>(*rank) >= file_.table_words) {
          return Error(ErrorCode::kDataLoss, "TEZip stand-in: a rank beyond the table");
        }
        residual += table[*rank];
        out[i] = static_cast<std::byte>(std::to_integer<int>(out[i - frame_bytes]) - residual);
      }
    }
    if (Checksum(array) != file_.checksum) {
      return Error(ErrorCode::kDataLoss, "TEZip stand-in: decoded bytes differ");
    }
    return {};
  }

  Status DecodeFrame(std::uint32_t frame, std::span<std::byte> out) override {
    FOREBAY_TRY(Decode(0, 1, whole_));  // the format has no random access
    std::memcpy(out.data(), whole_.data() + frame * out.size(), out.size());
    return {};
  }

 private:
  const TezipFile& file_;
  std::vector<std::byte> keys_;
  Words words_;
  std::vector<std::byte> whole_;
};

class TezipArray : public EncodedArray {
 public:
  explicit TezipArray(TezipFile file) : file_(std::move(file)) {}
  // Its header, its checksum and the number of its windows are not counted, which favours it by
  // less than 100 bytes.
  std::size_t coded_bytes() const override { return file_.keys.size() + file_.entropy.size(); }
  std::size_t parts() const override { return 1; }
  Result<std::unique_ptr<ArrayDecoder>> MakeDecoder() const override {
    return std::make_unique<TezipDecoder>(file_);
  }

 private:
  TezipFile file_;
};

class TezipPeer : public Peer {
 public:
  explicit TezipPeer(std::uint32_t window) : window_(window) {}
  std::string name() const override { return "tezip_style"; }
  std::string settings() const override {
    return "previous frame, difference, rank map, int16, zstd 9; window " +
           std::to_string(window_) + "; one stream";
  }
  Status Accepts(const ArrayInfo& info) const override {
    if (info.item_bytes != 1) {
      return Error(ErrorCode::kUnimplemented, "tezip_style: 8-bit images only");
    }
    return {};
  }

  Result<std::unique_ptr<EncodedArray>> Encode(const CodecArray& array) const override {
    TezipFile file{.info = array.info, .window = window_, .keys = {}, .entropy = {}};
    const std::size_t frame_bytes = array.info.frame_bytes();
    // All frames, with zeros where there is no key frame, as the description says; zstd makes
    // almost nothing of the zeros.
    std::vector<std::byte> keys(array.bytes.size());
    Words words;
    int before = 0;
    for (std::uint32_t frame = 0; frame < array.info.frames(); ++frame) {
      const std::byte* const now = array.bytes.data() + frame * frame_bytes;
      if (frame % window_ == 0) {
        std::memcpy(keys.data() + frame * frame_bytes, now, frame_bytes);
        continue;
      }
      for (std::size_t i = 0; i < frame_bytes; ++i) {
        const int residual =
            std::to_integer<int>(now[i - frame_bytes]) - std::to_integer<int>(now[i]);
        words.push_back(static_cast<std::int16_t>(residual - before));
        before = residual;
      }
    }
    // Frequent words get small ranks, so that most high bytes are 0 and zstd finds them.
    const Words table = RankByFrequency(words);
    file.table_words = table.size();
    words.insert(words.end(), table.begin(), table.end());
    FOREBAY_ASSIGN(file.keys, Squeeze(keys));
    FOREBAY_ASSIGN(file.entropy, Squeeze(std::as_bytes(std::span(words))));
    file.checksum = Checksum(array.bytes);
    return std::make_unique<TezipArray>(std::move(file));
  }

 private:
  std::uint32_t window_;
};

}  // namespace

std::unique_ptr<Peer> MakeTezipPeer(std::uint32_t window) {
  return std::make_unique<TezipPeer>(window);
}

}  // namespace forebay::bench
