// Exceptions end at the boundary of a room: of memory that is not there, of file systems, of
// LibTorch.
#pragma once

#include <exception>
#include <filesystem>
#include <new>
#include <string>
#include <string_view>
#include <utility>

#include "proto/contract/result.h"

namespace forebay::train {

// What `work` returns, a Status or a Result, or the error that its exception is. `what` leads the
// message: the file, or what is done.
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
