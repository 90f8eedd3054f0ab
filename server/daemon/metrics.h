// MetricsEndpoint: a Prometheus endpoint (HTTP, /metrics). Every scrape takes the message that
// `forebay status` shows, so the two never disagree.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "forebay/v1/admin.pb.h"
#include "proto/contract/result.h"

namespace forebay::daemon {

// Serves from Start to destruction, on threads of its own.
class MetricsEndpoint {
 public:
  // `listen` is "127.0.0.1:PORT" or "[::1]:PORT"; port 0: the system chooses one. Other addresses
  // are refused (kInvalidArgument), because metrics are not authenticated. kUnavailable: the port
  // is in use. `snapshot` is called on the endpoint's threads and must be thread-safe.
  static Result<std::unique_ptr<MetricsEndpoint>> Start(
      const std::string& listen, std::function<v1::StatusReply()> snapshot);
  ~MetricsEndpoint();
  // The address that it listens on, with the actual port: "127.0.0.1:9464".
  const std::string& address() const { return address_; }

 private:
  struct Parts;
  MetricsEndpoint(std::string address, std::unique_ptr<Parts> parts);
  const std::string address_;
  std::unique_ptr<Parts> parts_;
};

}  // namespace forebay::daemon
