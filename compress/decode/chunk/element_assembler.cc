// Puts planes together to elements, in blocks of 1,024 pixels that stay in a near cache: joins the
// bits of all planes to codes, undoes the colour transform, puts the channels of a pixel side by
// side, looks codes up in the dictionary, applies shift and offset, turns codes into values of the
// element's type, and lays the masks' patterns over them. Two common cases have kernels of their
// own: bytes that a dictionary maps (byte_table.h) and floats on a linear scale (linear_values.h).
#include "compress/decode/chunk/element_assembler.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <type_traits>

#include "compress/decode/chunk/byte_table.h"
#include "compress/decode/chunk/linear_values.h"
#include "compress/format/chunk/colour.h"
#include "compress/format/chunk/element_code.h"
#include "compress/format/chunk/quantiser.h"
#include "compress/format/damaged.h"
#include "proto/contract/check.h"

namespace forebay::compress {
namespace {

constexpr std::size_t kBlockPixels = 1024;

// Adds a plane to the codes: its samples, less bits beyond the valid ones, shifted to their place.
// The first plane is assigned, so that codes need not be cleared.
template <typename Code, typename Sample>
void Accumulate(const std::byte* samples, std::uint8_t bits, unsigned shift, bool first,
                std::size_t count, Code* codes) {
  const auto mask = static_cast<Sample>((1U << bits) - 1);
  for (std::size_t i = 0; i < count; ++i) {
    Sample sample = 0;
    // Planes begin at cache lines, and blocks of pixels need not: memcpy loads from any address.
    std::memcpy(&sample, samples + i * sizeof(Sample), sizeof(Sample));
    const Code part = static_cast<Code>(static_cast<Code>(sample & mask) << shift);
    codes[i] = first ? part : static_cast<Code>(codes[i] | part);
  }
}

// Code: unsigned, of the element's width; of a quantised chunk 4 bytes at least.
template <typename Code, typename Element>
class Assembler {
 public:
  Assembler(const AssemblyJob& job, std::span<std::byte> out)
      : job_(job),
        stages_(*job.stages),
        geometry_(*job.geometry),
        order_(OrderOf(job.shape->dtype)),
        code_bits_(job.stages->code_bits()),
        out_(out) {}

  Status Run() {
    const std::size_t begin = job_.first_sample * geometry_.sample_pixels;
    const std::size_t end = begin + job_.sample_count * geometry_.sample_pixels;
    // Without channels, and with the channels of a pixel side by side, all pixels are one run.
    const bool one_run = geometry_.channels == 1 || geometry_.inner_extent == 1;
    // Otherwise each channel's pixels of a run lie together in the output, as in
    // [channel][row][column].
    const std::size_t run = one_run ? end - begin : geometry_.inner_extent;
    for (std::size_t at = begin; at < end; at += run) {
      for (std::size_t i = 0; i < run; i += kBlockPixels) {
        RunBlock(at - begin, at + i, i, std::min(kBlockPixels, run - i));
      }
    }
    if (beyond_dictionary_) {
      return Damaged("coded chunk", "a code lies beyond the dictionary");
    }
    return {};
  }

 private:
  // `count` pixels from `pixel` on, which is the `inner`th of a run that begins `run_begin`
  // pixels behind the first wanted one.
  void RunBlock(std::size_t run_begin, std::size_t pixel, std::size_t inner, std::size_t count) {
    const std::uint32_t channels = geometry_.channels;
    for (std::uint32_t c = 0; c < channels; ++c) Gather(c, pixel, count, codes_[c].data());
    if (stages_.colour != ColourKind::kNone) {
      InverseColour(stages_.colour, code_bits_, count, codes_[0].data(), codes_[1].data(),
                    codes_[2].data());
    }
    if (channels == 1) {
      Emit(codes_[0].data(), run_begin + inner, count);
    } else if (geometry_.inner_extent == 1) {
      Interleave(count);
      Emit(mixed_.data(), (run_begin + inner) * channels, count * channels);
    } else {
      for (std::uint32_t c = 0; c < channels; ++c) {
        Emit(codes_[c].data(), run_begin * channels + c * geometry_.inner_extent + inner, count);
      }
    }
  }

  // Joins the planes of a channel to codes. Constant planes are one number for all pixels.
  void Gather(std::uint32_t channel, std::size_t pixel, std::size_t count, Code* codes) const {
    unsigned shift = 0;
    std::uint64_t constant = 0;
    bool first = true;
    // The lowest plane comes first. The shift stays below the width of Code, because the planes
    // together take no more bytes than an element.
    for (std::size_t p = 0; p < stages_.plane_count; ++p) {
      const PlaneSource& plane = job_.planes[channel * stages_.plane_count + p];
      if (plane.samples == nullptr) {
        constant |= static_cast<std::uint64_t>(plane.constant) << shift;
      } else {
        const std::byte* const samples = plane.samples + pixel * plane.sample_bytes;
        const std::uint8_t bits = stages_.plane_bits[p];
        if (plane.sample_bytes == 1) {
          Accumulate<Code, std::uint8_t>(samples, bits, shift, first, count, codes);
        } else {
          Accumulate<Code, std::uint16_t>(samples, bits, shift, first, count, codes);
        }
        first = false;
      }
      shift += stages_.plane_bits[p];
    }
    if (first) {
      std::fill_n(codes, count, static_cast<Code>(constant));
    } else if (constant != 0) {
      for (std::size_t i = 0; i < count; ++i) codes[i] |= static_cast<Code>(constant);
    }
  }

  // Puts the channels of each pixel side by side; three channels have a loop of their own.
  void Interleave(std::size_t count) {
    const std::uint32_t channels = geometry_.channels;
    if (channels == 3) {
      for (std::size_t i = 0; i < count; ++i) {
        mixed_[3 * i] = codes_[0][i];
        mixed_[3 * i + 1] = codes_[1][i];
        mixed_[3 * i + 2] = codes_[2][i];
      }
      return;
    }
    for (std::uint32_t c = 0; c < channels; ++c) {
      for (std::size_t i = 0; i < count; ++i) mixed_[channels * i + c] = codes_[c][i];
    }
  }

  // Turns codes into elements and writes them from element `element` of the output on: dictionary,
  // offset and shift, value, and at last the masks, in the order of docs/pack_chunk.md.
  void Emit(Code* codes, std::size_t element, std::size_t count) {
    // Each step works in place on a block that stays in the nearest cache.
    if (stages_.dictionary_count > 0) LookUp(codes, count);
    if (stages_.offset != 0 || stages_.shift != 0) {
      const auto offset = static_cast<Code>(stages_.offset);
      for (std::size_t i = 0; i < count; ++i) {
        codes[i] = static_cast<Code>(offset + static_cast<Code>(codes[i] << stages_.shift));
      }
    }
    std::byte* const to = out_.data() + element * sizeof(Element);
    if (stages_.is_quantised()) {
      EmitQuantised(codes, count, to);
    } else {
      for (std::size_t i = 0; i < count; ++i) {
        const Element value = ElementOfCode(order_, static_cast<Element>(codes[i]));
        std::memcpy(to + i * sizeof(Element), &value, sizeof(Element));
      }
    }
    for (std::size_t m = 0; m < stages_.mask_count; ++m) {
      // Elements under a mask were decoded as well. Overwriting them costs less than a branch for
      // each.
      const std::uint8_t* const mask = job_.masks[m].data() + element;
      const auto pattern = static_cast<Element>(stages_.masks[m].pattern);
      for (std::size_t i = 0; i < count; ++i) {
        Element value = 0;
        std::memcpy(&value, to + i * sizeof(Element), sizeof(Element));
        value = mask[i] != 0 ? pattern : value;
        std::memcpy(to + i * sizeof(Element), &value, sizeof(Element));
      }
    }
  }

  // Looks up codes in the dictionary. Codes beyond it are clamped and remembered, so that the loop
  // has no branch; Run reports them at the end.
  void LookUp(Code* codes, std::size_t count) {
    // A dictionary is never larger than codes can name (ParseChunkHead), so this cast loses
    // nothing.
    const auto last = static_cast<Code>(stages_.dictionary_count - 1);
    Code largest = 0;
    for (std::size_t i = 0; i < count; ++i) largest = std::max(largest, codes[i]);
    beyond_dictionary_ = beyond_dictionary_ || largest > last;
    for (std::size_t i = 0; i < count; ++i) {
      // Values are taken modulo the element's width, as the format says.
      codes[i] = static_cast<Code>(job_.dictionary[std::min(codes[i], last)]);
    }
  }

  void EmitQuantised(const Code* codes, std::size_t count, std::byte* to) {
    if constexpr (sizeof(Code) >= 4) {
      using Number = std::make_signed_t<Code>;
      const std::span numbers(reinterpret_cast<const Number*>(codes), count);
      Dequantise<Number>(stages_.quantiser, job_.shape->dtype, numbers, to);
    } else {
      FOREBAY_CHECK(false);
    }
  }

  const AssemblyJob& job_;
  const ChunkStages& stages_;
  const ChunkGeometry& geometry_;
  const CodeOrder order_;
  const std::uint32_t code_bits_;
  const std::span<std::byte> out_;
  bool beyond_dictionary_ = false;
  std::array<std::array<Code, kBlockPixels>, kChannelsMax> codes_;
  std::array<Code, kBlockPixels * kChannelsMax> mixed_;
};

template <typename Code, typename Element>
Status Assemble(const AssemblyJob& job, std::span<std::byte> out) {
  return Assembler<Code, Element>(job, out).Run();
}

// True where elements are one plane of bytes looked up in a dictionary, and nothing else.
bool IsByteDictionary(const AssemblyJob& job) {
  const ChunkStages& stages = *job.stages;
  return job.shape->element_bytes() == 1 && job.geometry->channels == 1 &&
         stages.plane_count == 1 && job.planes[0].samples != nullptr &&
         job.planes[0].sample_bytes == 1 && stages.dictionary_count > 0 &&
         stages.dictionary_count <= 256 && stages.mask_count == 0 && stages.offset == 0 &&
         stages.shift == 0 && !stages.is_quantised() &&
         OrderOf(job.shape->dtype) == CodeOrder::kUnsigned;
}

// False where a sample lies beyond the dictionary, or has bits beyond its plane's, which are to be
// dropped first; what is written then counts for nothing.
bool LookUpBytes(const AssemblyJob& job, std::span<std::byte> out) {
  // Entries beyond the dictionary stay zero. The largest byte that MapBytes returns shows whether
  // any of them was used.
  ByteTable table{.entries = job.stages->dictionary_count};
  for (std::size_t i = 0; i < table.entries; ++i) {
    table.bytes[i] = static_cast<std::uint8_t>(job.dictionary[i]);
  }
  const std::size_t begin = job.first_sample * job.geometry->sample_pixels;
  const auto* const from = reinterpret_cast<const std::uint8_t*>(job.planes[0].samples) + begin;
  const std::size_t addressed = std::size_t{1} << job.stages->plane_bits[0];
  return MapBytes(table, {from, out.size()}, reinterpret_cast<std::uint8_t*>(out.data()),
                  job.isa) < std::min(table.entries, addressed);
}

// The one plane that has samples, where elements are f32 on a linear scale, in one channel and
// without a dictionary; planes above and below it may be constant. Nothing where that is not so.
std::optional<LinearRun> AsLinearRun(const AssemblyJob& job) {
  const ChunkStages& stages = *job.stages;
  if (job.shape->dtype != Dtype::kF32 || stages.quantiser.kind != QuantiserKind::kLinear ||
      job.geometry->channels != 1 || stages.dictionary_count > 0) {
    return std::nullopt;
  }
  LinearRun run = {.step = stages.quantiser.linear_step, .mask_count = stages.mask_count};
  std::uint64_t constant = 0;
  unsigned shift = 0;
  for (std::size_t p = 0; p < stages.plane_count; ++p) {
    const PlaneSource& plane = job.planes[p];
    if (plane.samples == nullptr) {
      constant |= static_cast<std::uint64_t>(plane.constant) << shift;
    } else if (run.samples != nullptr || shift + stages.shift >= 32) {
      return std::nullopt;
    } else {
      run.samples = plane.samples + job.first_sample * job.geometry->sample_pixels *
                                        plane.sample_bytes;
      run.sample_bytes = static_cast<std::uint8_t>(plane.sample_bytes);
      run.sample_mask = (1U << stages.plane_bits[p]) - 1;
      run.shift = static_cast<std::uint8_t>(shift + stages.shift);
    }
    shift += stages.plane_bits[p];
  }
  if (run.samples == nullptr) return std::nullopt;
  // A sum, since what is constant and what is not have no bit in common.
  run.base = static_cast<std::uint32_t>(stages.offset + (constant << stages.shift));
  for (std::uint32_t m = 0; m < stages.mask_count; ++m) {
    run.masks[m] = job.masks[m].data();
    run.patterns[m] = static_cast<std::uint32_t>(stages.masks[m].pattern);
  }
  return run;
}

}  // namespace

Status AssembleElements(const AssemblyJob& job, std::span<std::byte> out) {
  // If a sample lies beyond the dictionary, the general way below finds out and reports it.
  if (IsByteDictionary(job) && LookUpBytes(job, out)) return {};
  if (const std::optional<LinearRun> run = AsLinearRun(job)) {
    EmitLinearValues(*run, out.size() / sizeof(float), out.data(), job.isa);
    return {};
  }
  const bool quantised = job.stages->is_quantised();
  switch (job.shape->element_bytes()) {
    case 1:
      return quantised ? Assemble<std::uint32_t, std::uint8_t>(job, out)
                       : Assemble<std::uint8_t, std::uint8_t>(job, out);
    case 2:
      return quantised ? Assemble<std::uint32_t, std::uint16_t>(job, out)
                       : Assemble<std::uint16_t, std::uint16_t>(job, out);
    case 4: return Assemble<std::uint32_t, std::uint32_t>(job, out);
    default: return Assemble<std::uint64_t, std::uint64_t>(job, out);
  }
}

}  // namespace forebay::compress
