// Completions of a program's command line for bash and zsh: commands, options, and what an option's
// value can be. The scripts stand alone: they need no other file and ask no daemon.
#pragma once

#include <string>

#include "deploy/manual/command_description.h"

namespace forebay::manual {

// For share/bash-completion/completions/PROGRAM; registers itself where it is sourced.
std::string BashCompletion(const CommandDescription& program);
// For share/zsh/site-functions/_PROGRAM; a function that compinit loads by its first line.
std::string ZshCompletion(const CommandDescription& program);

}  // namespace forebay::manual
