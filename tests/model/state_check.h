// StateCheck: what must be true of a node on which nothing is under way, whatever was done to it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "proto/contract/result.h"
#include "server/plan/placement.h"
#include "server/stream/testing/serve_fixture.h"

namespace forebay::model {

// The error that says where the node is not as the model.
Error Difference(std::string what);

// Of a data set with a catalog: each extent with its home and the tiers that have it.
std::string DescribeTiers(stream::ServeFixture& rooms);

// An extent of the data set that is served, by its number: whether a tier has it.
std::vector<bool> ResidentExtents(stream::ServeFixture& rooms);

// Waits until the data set is neither being catalogued nor staged; kDeadlineExceeded after a
// minute.
Status AwaitIdle(stream::ServeFixture& rooms);
// The same, but a catalog suffices.
Status AwaitCatalogued(stream::ServeFixture& rooms);

// Every byte of the RAM tier in use is of a resident extent. Waits for threads that are about to
// let go of theirs.
Status CheckMemory(stream::ServeFixture& rooms);
// What is left for extents without a home, and what those with a home take, is what there was at
// the daemon's start. Extents that it found on SSD then are in `room_at_start` already.
Status CheckRoom(stream::ServeFixture& rooms, const plan::TierSpace& room_at_start);
// "staged" is true: each extent with a home lies on a tier. Waits for those that found no memory
// during the pass, because a stream needed it: they are loaded again later (StagingQueue::Defer).
Status CheckStaged(stream::ServeFixture& rooms);
// Evicts everything. Nothing is in use then.
Status CheckEmptied(stream::ServeFixture& rooms, bool is_ssd_sound);

}  // namespace forebay::model
