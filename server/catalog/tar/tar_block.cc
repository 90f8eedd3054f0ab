// Parsers of tar's blocks. Numbers and lengths come from the archive, so each parser bounds them
// before they are used. Historic writers differ (signed checksums, NUL as a type, GNU's magic);
// this accepts what GNU tar accepts.
#include "server/catalog/tar/tar_block.h"

#include <algorithm>

#include "proto/contract/check.h"
#include "proto/contract/limits.h"
#include "proto/contract/printable.h"
#include "server/catalog/input_error.h"

namespace forebay::catalog {
namespace {

// A field of the ustar header.
struct HeaderField {
  std::size_t offset;
  std::size_t bytes;
};
constexpr HeaderField kName{0, 100};
constexpr HeaderField kSize{124, 12};
constexpr HeaderField kChecksum{148, 8};
constexpr HeaderField kType{156, 1};
constexpr HeaderField kLink{157, 100};
constexpr HeaderField kMagic{257, 6};
constexpr HeaderField kPrefix{345, 155};
constexpr std::string_view kUstarMagic("ustar\0", 6);

std::string_view FieldText(std::span<const std::byte> block, HeaderField field) {
  const auto raw = block.subspan(field.offset, field.bytes);
  return {reinterpret_cast<const char*>(raw.data()), raw.size()};
}

// A header field ends at its first NUL, or at its full width: names of 100 bytes have no NUL.
std::string_view UntilNul(std::string_view text) { return text.substr(0, text.find('\0')); }

Error TarError(TarPlace place, std::string_view reason,
               ErrorCode code = ErrorCode::kInvalidArgument) {
  return InputError(code, place.archive, place.offset, reason);
}

// Parses octal digits after leading spaces, ended by spaces or NULs. nullopt for anything else, and
// on overflow.
std::optional<std::uint64_t> ParseOctal(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(' ');
  if (begin == std::string_view::npos) return std::nullopt;
  std::uint64_t value = 0;
  std::size_t at = begin;
  for (; at < text.size() && text[at] >= '0' && text[at] <= '7'; ++at) {
    // Twelve octal digits cannot reach this bound. It is for fields of any width.
    if (value >> 60 != 0) return std::nullopt;  // another digit would not fit in 63 bits
    value = value << 3 | static_cast<std::uint64_t>(text[at] - '0');
  }
  // At least one digit; the rest must be terminators.
  if (at == begin) return std::nullopt;
  for (; at < text.size(); ++at) {
    if (text[at] != ' ' && text[at] != '\0') return std::nullopt;
  }
  return value;
}

// Parses GNU's base-256 form for sizes of 8 GiB and more: the byte 0x80, then a big-endian number.
std::optional<std::uint64_t> ParseBase256(std::string_view text) {
  if (static_cast<unsigned char>(text.front()) != 0x80) return std::nullopt;  // negative
  std::uint64_t value = 0;
  for (const char c : text.substr(1)) {
    if (value >> 55 != 0) return std::nullopt;  // keeps sums of two sizes within 64 bits
    value = value << 8 | static_cast<unsigned char>(c);
  }
  return value;
}

Status CheckSum(TarPlace place, std::span<const std::byte> block) {
  // Historic writers summed signed characters; both sums are accepted, as every tar does.
  std::int64_t sum_unsigned = 0;
  std::int64_t sum_signed = 0;
  for (std::size_t i = 0; i < block.size(); ++i) {
    // The checksum's own field counts as spaces.
    // The whole block is summed, so a header that was damaged in any byte is refused before a size
    // in it is believed.
    const bool is_sum = i >= kChecksum.offset && i < kChecksum.offset + kChecksum.bytes;
    const auto byte = is_sum ? std::uint8_t{' '} : std::to_integer<std::uint8_t>(block[i]);
    sum_unsigned += byte;
    sum_signed += static_cast<std::int8_t>(byte);
  }
  const auto stored = ParseOctal(FieldText(block, kChecksum));
  if (!stored.has_value() || (static_cast<std::int64_t>(*stored) != sum_unsigned &&
                              static_cast<std::int64_t>(*stored) != sum_signed)) {
    return TarError(place, "tar header does not match its checksum", ErrorCode::kDataLoss);
  }
  return {};
}

// Parses decimal digits; nullopt for anything else, or for more than 18 digits, which fit in 62
// bits.
std::optional<std::uint64_t> ParseDecimal(std::string_view text) {
  if (text.empty() || text.size() > 18) return std::nullopt;
  std::uint64_t value = 0;
  for (const char c : text) {
    if (c < '0' || c > '9') return std::nullopt;
    value = value * 10 + static_cast<std::uint64_t>(c - '0');
  }
  return value;
}

}  // namespace

bool IsZeroBlock(std::span<const std::byte> block) {
  return std::all_of(block.begin(), block.end(), [](std::byte b) { return b == std::byte{0}; });
}

Result<TarBlock> ParseTarBlock(TarPlace place, std::span<const std::byte> block) {
  FOREBAY_CHECK(block.size() == kTarBlockBytes);
  FOREBAY_TRY(CheckSum(place, block));
  TarBlock parsed;
  parsed.type = FieldText(block, kType).front();
  // Archives of v7 have NUL for a regular file.
  if (parsed.type == '\0') parsed.type = '0';
  const std::string_view size = FieldText(block, kSize);
  // Octal digits are ASCII, so a set top bit marks GNU's binary form.
  const bool is_base256 = (static_cast<unsigned char>(size.front()) & 0x80) != 0;
  const auto bytes = is_base256 ? ParseBase256(size) : ParseOctal(size);
  if (!bytes.has_value()) return TarError(place, "malformed size in tar header");
  parsed.bytes = *bytes;
  parsed.path = std::string(UntilNul(FieldText(block, kName)));
  parsed.link = std::string(UntilNul(FieldText(block, kLink)));
  const std::string_view prefix = UntilNul(FieldText(block, kPrefix));
  // GNU's magic is "ustar  ". In such a header, other data lie where ustar has the prefix.
  if (FieldText(block, kMagic) == kUstarMagic && !prefix.empty()) {
    parsed.path = std::string(prefix) + "/" + parsed.path;
  }
  return parsed;
}

Result<PaxRecords> ParsePax(TarPlace place, std::string_view text) {
  // If a key comes twice, the last one holds, as POSIX demands.
  PaxRecords records;
  for (std::size_t at = 0; at < text.size();) {
    // The length counts the whole record, its own digits included. It must leave room for the
    // space, one byte of key, '=' (checked below) and the newline at the end.
    const TarPlace here{place.archive, place.offset + at};
    const std::string_view rest = text.substr(at);
    const std::size_t space = rest.find(' ');
    const auto length = ParseDecimal(rest.substr(0, space));
    if (space == std::string_view::npos || !length.has_value() || *length > rest.size() ||
        *length < space + 3 || rest[*length - 1] != '\n') {
      return TarError(here, "malformed pax record");
    }
    const std::string_view record = rest.substr(space + 1, *length - space - 2);
    const std::size_t equals = record.find('=');
    if (equals == std::string_view::npos || equals == 0) {
      return TarError(here, "malformed pax record");
    }
    const std::string_view key = record.substr(0, equals);
    const std::string_view value = record.substr(equals + 1);
    // The data of a sparse member are not the file's bytes, so they cannot be read in place.
    if (key.starts_with("GNU.sparse.")) {
      return TarError(here, "sparse members are not supported", ErrorCode::kUnimplemented);
    }
    if (key == "path") records.path = std::string(value);
    if (key == "size") {
      records.bytes = ParseDecimal(value);
      if (!records.bytes.has_value()) return TarError(here, "malformed size in pax record");
    }
    at += *length;
  }
  return records;
}

Result<std::string> NormalizeMemberPath(TarPlace place, std::string_view path) {
  const auto refuse = [&](std::string_view reason) {
    return TarError(place, "member path " + Quoted(path) + " " + std::string(reason));
  };
  if (path.find('\0') != std::string_view::npos) return refuse("contains a NUL byte");
  if (path.starts_with('/')) return refuse("is absolute");
  if (path.size() > limits::kPathBytesMax) {
    return refuse("exceeds " + std::to_string(limits::kPathBytesMax) + " bytes (kPathBytesMax)");
  }
  std::string normal;
  while (!path.empty()) {
    const std::size_t slash = path.find('/');
    const std::string_view component = path.substr(0, slash);
    // A member path becomes a key and a name in logs. It opens no file, but other tools may use it
    // so.
    if (component == "..") return refuse("contains '..'");
    if (!component.empty() && component != ".") {
      if (!normal.empty()) normal += '/';
      normal += component;
    }
    if (slash == std::string_view::npos) break;
    path.remove_prefix(slash + 1);
  }
  return normal;
}

std::optional<SampleName> SplitMemberPath(std::string_view path) {
  // The key runs to the first dot and not to the last: "0001.seg.png" is field "seg.png" of sample
  // "0001", which is WebDataset's rule. Names such as ".hidden" and "name." are no fields.
  const std::size_t name = path.rfind('/') + 1;  // npos + 1 is 0
  const std::size_t dot = path.find('.', name);
  if (dot == std::string_view::npos || dot == name || dot + 1 == path.size()) {
    return std::nullopt;
  }
  SampleName split{std::string(path.substr(0, dot)), std::string(path.substr(dot + 1))};
  for (char& c : split.field) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return split;
}

}  // namespace forebay::catalog
