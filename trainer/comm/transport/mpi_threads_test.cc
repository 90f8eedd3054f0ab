// An MPI that gives less than was asked for: MPI's profiling interface stands in for one.
#include <gtest/gtest.h>

#include <memory>

#include "trainer/comm/transport/mpi_transport.h"

extern "C" {
int PMPI_Init_thread(int* argc, char*** argv, int required, int* provided);

int MPI_Init_thread(int* argc, char*** argv, int required, int* provided) {
  const int code = PMPI_Init_thread(argc, argv, required, provided);
  *provided = 0;  // MPI_THREAD_SINGLE, everywhere
  return code;
}
}

namespace forebay::train {
namespace {

TEST(MpiThreadsTest, AnMpiWithoutThreadsIsRefusedWithTheRemedy) {
  const auto transport = MakeMpiTransport();
  ASSERT_FALSE(transport.has_value());
  EXPECT_EQ(transport.error().code(), ErrorCode::kFailedPrecondition);
  EXPECT_NE(transport.error().message().find("MPI_THREAD_FUNNELED"), std::string::npos)
      << transport.error().message();
}

}  // namespace
}  // namespace forebay::train

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
