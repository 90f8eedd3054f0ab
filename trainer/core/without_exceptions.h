// WithoutExceptions: exceptions of memory allocation, file systems and LibTorch become errors at
// the boundary of a room.
#pragma once

#include <exception>
#include <filesystem>
#include <new>
#include <string>
#include <string_view>
#include <utility>

#include "proto/contract/result.h"

namespace forebay::train {

// Returns what `work` returns, a Status or a Result, or an error made of the exception that it
// throws. `what` stands in front of the message: the file, or the action.
template <typename Work>
auto WithoutExceptions(std::string_view what, Work&& work) -> decltype(work()) {
  try {
    return std::forward<Work>(work)();
  } catch (const std::bad_alloc&) {
    return Error(ErrorCode::kResourceExhausted, std::string(what) + ": out of memory");
  } catch (const std::filesystem::filesystem_error& error) {
    const std::string path = error.path1().empty() ? "" : ": " + error.path1().string();
    return Error::FromErrno(error.code().value(), std::string(what) + path);
  } catch (const std::exception& error) {
    return Error(ErrorCode::kInternal, std::string(what) + ": " + error.what());
  }
}

}  // namespace forebay::train
