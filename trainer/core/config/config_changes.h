// What differs between the configuration that a checkpoint was made with and this run's.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace forebay::train {

// A line for each key whose value is another one, as "train.learning_rate: 0.05 -> 0.01". Both are
// documents as ToToml writes them; `then` is untrusted: any text, control characters are shown as
// '?'. Keys that `then` does not have are of a later program and left out, as are those that say
// how this process begins (checkpoint.resume, checkpoint.new_run).
std::vector<std::string> ConfigChanges(std::string_view then, std::string_view now);

}  // namespace forebay::train
