// Reconstruction of quantised values: the one definition that encoder, decoder and every other
// reader follow (docs/pack_chunk.md, section 4).
//
// IEEE 754 doubles, each operation rounded to nearest, none contracted: quantiser.cc is compiled
// with -ffp-contract=off.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "compress/format/chunk/chunk_header.h"
#include "proto/contract/tensor.h"

namespace forebay::compress {

// The value of an element's bits, exactly. Of i64 rounded to the nearest double.
double ValueOfElement(Dtype dtype, std::uint64_t bits);

// The bits of the nearest value of a floating-point type, ties to even.
std::uint64_t FloatElementOf(Dtype dtype, double value);

// 2^(logarithm / 2^32), within one part in 2^51; powers below 2^-1022 count as that.
double PowerOfTwo(std::int64_t logarithm);

// The elements, little-endian and dense, of quantised numbers. `Number` is int32_t for elements
// of up to 4 bytes and int64_t for those of 8. `elements` has numbers.size() of them.
template <typename Number>
void Dequantise(const Quantiser& quantiser, Dtype dtype, std::span<const Number> numbers,
                std::byte* elements);

extern template void Dequantise(const Quantiser&, Dtype, std::span<const std::int32_t>,
                                std::byte*);
extern template void Dequantise(const Quantiser&, Dtype, std::span<const std::int64_t>,
                                std::byte*);

}  // namespace forebay::compress
