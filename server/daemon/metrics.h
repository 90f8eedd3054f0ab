// MetricsEndpoint: a Prometheus endpoint over what `forebay status` shows, so that the two never
// disagree.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "forebay/v1/admin.pb.h"
#include "proto/contract/result.h"

namespace forebay::daemon {

// Serves from construction to destruction, on threads of its own.
class MetricsEndpoint {
 public:
  // `listen` is "host:port". Anything but loopback is refused: metrics are not authenticated.
  static Result<std::unique_ptr<MetricsEndpoint>> Start(
      const std::string& listen, std::function<v1::StatusReply()> snapshot);
  ~MetricsEndpoint();
  // Where it listens: "127.0.0.1:9464".
  const std::string& address() const { return address_; }

 private:
  struct Parts;
  MetricsEndpoint(std::string address, std::unique_ptr<Parts> parts);
  const std::string address_;
  std::unique_ptr<Parts> parts_;
};

}  // namespace forebay::daemon
