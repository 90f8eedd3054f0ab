// FOREBAY_FOR_PROCESSORS compiles a function for several x86-64 processors; the loader chooses one
// at program start. It does nothing with clang, on other processors, and under sanitizers, which do
// not support functions that are chosen before they are initialised.
#pragma once

#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && \
    !defined(__clang__)
#define FOREBAY_FOR_PROCESSORS \
  __attribute__((target_clones("arch=skylake-avx512", "avx2", "default")))
#else
#define FOREBAY_FOR_PROCESSORS
#endif
