// XXH3 with the widest vector instructions that the processor has. xxHash's ordinary functions use
// those that every processor of the architecture has, because that is how distributions compile it:
// on x86-64 that is SSE2, which takes 2.5 to 3 times as long as AVX2 for rows of 4 KiB and more
// (bench/results/2026-11-27-link.md). The library has other functions that look at the
// processor first; this header takes their names in place of the ordinary ones. All give the same
// hashes.
#pragma once

#ifdef FOREBAY_XXH3_DISPATCH
#include <xxh_x86dispatch.h>
#else
#include <xxhash.h>
#endif

namespace forebay {

// The first call chooses the functions and keeps the choice in variables that no lock guards. So it
// is made when this code is loaded, before any thread can call the functions of this library.
inline const XXH64_hash_t kXxh3IsChosen = XXH3_64bits("", 0);

}  // namespace forebay
