// Marks a function to be compiled for several x86-64 processors; the fitting one is chosen when
// the program is loaded. Nothing elsewhere. Sanitizers and such early choices do not go together.
#pragma once

#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && \
    !defined(__clang__)
#define FOREBAY_FOR_PROCESSORS \
  __attribute__((target_clones("arch=skylake-avx512", "avx2", "default")))
#else
#define FOREBAY_FOR_PROCESSORS
#endif
