// Fuzz target: a ResolveRequest, the only admin request that contains text to parse. The answer has
// only samples of the data set, in ascending order, and no more than were requested.
#include <cstdint>
#include <memory>

#include "proto/contract/check.h"
#include "proto/contract/limits.h"
#include "server/daemon/admin_service.h"
#include "server/io/testing/memory_backend.h"
#include "server/stream/testing/serve_fixture.h"

namespace forebay::daemon {
namespace {

constexpr std::size_t kRecordBytes = 8;
constexpr std::uint64_t kSamples = 10'000;

// A target with one data set, "data". ResolveSelection calls no other function.
class OneDataset final : public AdminTarget {
 public:
  OneDataset() {
    FOREBAY_CHECK(
        backend_
            .AddFile("/gfs/data.bin", stream::ServeFixture::RecordFile(kSamples, kRecordBytes))
            .has_value());
    auto made = stream::ServeFixture::Create(backend_, kRecordBytes, {});
    FOREBAY_CHECK(made.has_value());
    serve_ = std::move(*made);
    FOREBAY_CHECK(serve_->StageAll().has_value());
  }

  v1::StatusReply StatusNow() override { return {}; }
  v1::NodesReply NodesNow() override { return {}; }
  std::vector<stage::Dataset*> FindDatasets(const std::vector<std::string>& names,
                                            std::string& unknown) override {
    if (names.size() == 1 && names.front() == "data") return {&serve_->dataset()};
    unknown = "another";
    return {};
  }
  v1::DatasetStatus StatusOf(const stage::Dataset&) override { return {}; }
  Result<stage::Dataset*> StageNow(const std::string&, bool) override {
    return &serve_->dataset();
  }
  tier::ExtentCache& cache() override { return serve_->cache(); }
  io::IoBackend& backend() override { return backend_; }
  io::Clock& clock() override { return clock_; }
  void RequestDrain(bool) override {}
  Status RequestHandOver(const std::string&, std::int64_t) override { return {}; }
  bool stopping() const override { return false; }

 private:
  io::MemoryBackend backend_;
  io::SteadyClock clock_;
  std::unique_ptr<stream::ServeFixture> serve_;
};

}  // namespace
}  // namespace forebay::daemon

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace forebay;
  // Made once, because staging a data set for every input would take nearly all the time. A request
  // changes nothing in it.
  static daemon::OneDataset target;
  v1::ResolveRequest request;
  if (!request.ParseFromArray(data, static_cast<int>(size))) return 0;
  daemon::AdminService service(target);
  v1::ResolveReply reply;
  // A refused request must not leave a partly filled answer.
  if (!service.ResolveSelection(nullptr, &request, &reply).ok()) {
    FOREBAY_CHECK(reply.sample_ids_size() == 0);
    return 0;
  }
  FOREBAY_CHECK(reply.selected_count() <= daemon::kSamples);
  FOREBAY_CHECK(static_cast<std::uint32_t>(reply.sample_ids_size()) <= request.count());
  for (int i = 0; i < reply.sample_ids_size(); ++i) {
    FOREBAY_CHECK(reply.sample_ids(i) < daemon::kSamples);
    FOREBAY_CHECK(i == 0 || reply.sample_ids(i) > reply.sample_ids(i - 1));
  }
  return 0;
}
