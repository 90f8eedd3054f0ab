// The data-set formats: the one list in which a format registers itself.
#pragma once

#include <cstdint>
#include <string_view>

namespace forebay::catalog {

// One line for each format: its number in saved catalogs, which never changes and is never given to
// another format; its enumerator; its driver (format_driver.h), which the format's folder defines.
// Messages name formats in this order. If a data set does not set its format, a configuration key
// that several formats have gets the meaning of the first of them.
#define FOREBAY_CATALOG_FORMATS(FORMAT)            \
  FORMAT(2, kTar, kTarDriver)                      \
  FORMAT(3, kIdx, kIdxDriver)                      \
  FORMAT(4, kNpy, kNpyDriver)                      \
  FORMAT(5, kRaw, kRawDriver)                      \
  FORMAT(6, kPack, kPackDriver)                    \
  FORMAT(7, kJsonLines, kJsonLinesDriver)          \
  FORMAT(1, kImageFolder, kImageFolderDriver)

enum class Format : std::uint8_t {
#define FOREBAY_ENUMERATOR(number, enumerator, driver) enumerator = (number),
  FOREBAY_CATALOG_FORMATS(FOREBAY_ENUMERATOR)
#undef FOREBAY_ENUMERATOR
};

// The name in configuration and messages ("tar"); "unknown" if no format has the number.
std::string_view FormatName(Format format);

}  // namespace forebay::catalog
