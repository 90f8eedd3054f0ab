// ConfigChanges: what differs between the configuration that a checkpoint was made with and this
// run's.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace forebay::train {

// Returns a line for each key with another value, such as "train.learning_rate: 0.05 -> 0.01". Both
// are documents as ToToml writes them. `then` is untrusted: it may be any text, and control
// characters are shown as '?'. Left out are keys that `then` does not have, because they belong to
// a later program, and keys that say how this process begins (checkpoint.resume,
// checkpoint.new_run).
std::vector<std::string> ConfigChanges(std::string_view then, std::string_view now);

}  // namespace forebay::train
