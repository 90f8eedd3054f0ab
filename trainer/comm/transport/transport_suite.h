// What the tests of all transports share: transport_suite_test.cc is linked with the main of each
// back end.
#pragma once

#include <functional>

#include "trainer/comm/transport/transport.h"

namespace forebay::train {

// Runs `body` on every rank of a group of at least two, at the same time, and returns when all
// have returned. With MPI this process is one of the ranks.
void ForEachRank(const std::function<void(Transport&)>& body);

}  // namespace forebay::train
