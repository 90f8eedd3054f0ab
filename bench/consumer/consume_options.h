// What forebay_consume is asked to do.
#pragma once

#include <cstdint>
#include <string>

namespace forebay::bench {

struct ConsumeOptions {
  std::string address;               // "unix:/path"; empty: $FOREBAY_ADDRESS
  std::string dataset;
  std::string delivery = "contiguous";
  std::string stream_name = "train";
  std::string selection = "all";
  std::uint32_t global_batch = 64;
  std::uint32_t ranks = 1;
  std::uint32_t rank = 0;
  std::uint32_t epochs = 1;
  std::uint64_t seed = 0;
  std::string mode = "global";
  std::string epoch0_mode;           // empty: as `mode`
  std::uint64_t block_samples = 1024;
  std::uint64_t window_runs = 16;
  std::uint32_t canonical_nodes = 0;
  double exchange_fraction = 0.1;
  std::uint32_t prefetch_depth = 4;
  double step_ms = 0;                // compute time of an emulated accelerator per step
  std::uint32_t connects = 0;        // measure connect to first batch this often, instead
  bool check = false;                // an untimed epoch first, with the content digest
  bool content = false;              // digests of content and positions in all epochs, too
  std::uint32_t stop_after = 0;      // ends the stream after this many batches; 0: at its end
  std::string token;                 // file for the position after the last batch; empty: none
  std::string resume;                // such a file of a former run; empty: begins at the start
};

}  // namespace forebay::bench
