// `forebay pack --profile learned`: with a model, with one trained by a stand-in for the trainer.
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client/cli/pack/model_training.h"
#include "client/cli/testing/pack_command_test_folder.h"
#include "compress/encode/testing/learned_samples.h"

namespace forebay::cli {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

constexpr int kUsage = 2, kNotFound = 5, kRefused = 6;

class PackLearnedTest : public PackCommandTest {
 protected:
  PackLearnedTest() : path_before_(std::getenv("PATH") != nullptr ? std::getenv("PATH") : "") {
    for (int i = 0; i < 6; ++i) {
      const auto pixels =
          compress::MakeLargerOfTwo(64, 96, kSeed + static_cast<std::uint32_t>(i));
      const std::string picture(reinterpret_cast<const char*>(pixels.data()), pixels.size());
      Write("pictures/" + std::to_string(i) + ".pgm", "P5\n96 64\n255\n" + picture);
      pixels_ += picture;
    }
    const auto predictor = compress::LargerOfTwoPredictor();
    const auto bytes = predictor->bytes();
    Write("given.net", std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
    hex_ = compress::Sha256Hex(predictor->id());
  }
  ~PackLearnedTest() override { setenv("PATH", path_before_.c_str(), 1); }

  ForebayRun Pack(const std::string& name, std::vector<std::string> more) {
    std::vector<std::string> arguments = {"pack", "--images", Path("pictures"), Path(name),
                                          "--samples-per-chunk", "1", "--profile", "learned"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return Forebay(std::move(arguments));
  }

  // A trainer in $PATH that puts down given.net and says what `done` says.
  void PutTrainer(const std::string& script) {
    Write("bin/forebay-compress-train", "#!/bin/sh\n" + script);
    fs::permissions(Path("bin/forebay-compress-train"), fs::perms::owner_all);
    setenv("PATH", (Path("bin") + ":" + path_before_).c_str(), 1);
  }

  std::string TrainerThatSaves(int learned_bytes) const {
    return "test -f \"$1\" || exit 1\ncp " + Path("given.net") + " \"$3\"\n" +
           "echo '{\"event\":\"epoch\",\"kind\":\"first frames\",\"epoch\":1,"
           "\"bits_per_pixel\":2.5}'\n" +
           "echo '{\"event\":\"done\",\"model_bytes\":60,\"macs_per_pixel\":15,"
           "\"held_out_raw_bytes\":12288,\"dense_bytes\":6000,\"learned_bytes\":" +
           std::to_string(learned_bytes) + "}'\n";
  }

  void ExpectComesBack(const std::string& name) {
    const ForebayRun unpacked = Forebay({"unpack", Path(name), "--to", Path(name + ".out")});
    ASSERT_EQ(unpacked.code, 0) << unpacked.err;
    EXPECT_EQ(Elements(name + ".out/image.npy"), pixels_);
  }

  const std::string path_before_;
  std::string pixels_, hex_;
};

TEST_F(PackLearnedTest, TakesAModelIntoThePack) {
  ASSERT_EQ(Pack("a.fbp", {"--model", Path("given.net")}).code, 0);
  ASSERT_EQ(Pack("d.fbp", {"--model", Path("given.net"), "--profile", "dense"}).code, kUsage);
  ExpectComesBack("a.fbp");
}

TEST_F(PackLearnedTest, NamesAModelThatLiesBeside) {
  ASSERT_EQ(Pack("a.fbp", {"--model", Path("given.net"), "--name-model"}).code, 0);
  ASSERT_TRUE(fs::exists(Path(hex_ + ".net")));
  ExpectComesBack("a.fbp");
  fs::remove(Path(hex_ + ".net"));
  const ForebayRun refused = Forebay({"inspect", Path("a.fbp"), "--verify"});
  EXPECT_EQ(refused.code, kRefused);
  EXPECT_THAT(refused.err, HasSubstr(hex_));
}

TEST_F(PackLearnedTest, TakesAModelThatHasItsFinalNameAlready) {
  fs::rename(Path("given.net"), Path(hex_ + ".net"));
  const ForebayRun packed = Pack("a.fbp", {"--model", Path(hex_ + ".net"), "--name-model"});
  ASSERT_EQ(packed.code, 0) << packed.err;
  ExpectComesBack("a.fbp");
  const ForebayRun second = Pack("b.fbp", {"--model", Path(hex_ + ".net"), "--name-model"});
  ASSERT_EQ(second.code, 0) << second.err;
  ExpectComesBack("b.fbp");
}

TEST_F(PackLearnedTest, LeavesAnotherFileAloneThatHasTheNameOfTheModel) {
  const std::string other = Read("given.net").substr(0, 20);
  Write(hex_ + ".net", other);
  const ForebayRun packed = Pack("a.fbp", {"--model", Path("given.net"), "--name-model"});
  EXPECT_EQ(packed.code, 1);
  EXPECT_THAT(packed.err, HasSubstr(hex_ + ".net: this file is not the predictor of its name"));
  EXPECT_EQ(Read(hex_ + ".net"), other);
  EXPECT_FALSE(fs::exists(Path("a.fbp")));
}

TEST_F(PackLearnedTest, PackedAgainNeedsNoPredictorOfTheFirst) {
  ASSERT_EQ(Pack("a.fbp", {"--model", Path("given.net"), "--name-model"}).code, 0);
  fs::create_directory(Path("other"));
  const ForebayRun again = Forebay({"pack", "--from", Path("a.fbp"), Path("other/b.fbp")});
  ASSERT_EQ(again.code, 0) << again.err;
  EXPECT_FALSE(fs::exists(Path("other/" + hex_ + ".net")));
  ExpectComesBack("other/b.fbp");
}

TEST_F(PackLearnedTest, TrainsAModelOnItsOwnSamples) {
  const std::string id = "00112233445566778899aabbccddeeff";
  PutTrainer(TrainerThatSaves(5000));
  const ForebayRun packed = Pack("a.fbp", {"--train", "--id", id});
  ASSERT_EQ(packed.code, 0) << packed.err;
  EXPECT_THAT(packed.err, HasSubstr("epoch 1"));
  EXPECT_THAT(packed.err, HasSubstr("+20.00 %"));
  EXPECT_EQ(Read("a.fbp.net"), Read("given.net"));
  EXPECT_FALSE(fs::exists(Path("a.fbp.train")));
  ExpectComesBack("a.fbp");
  ASSERT_EQ(Pack("given.fbp", {"--model", Path("given.net"), "--id", id}).code, 0);
  EXPECT_EQ(Read("a.fbp"), Read("given.fbp"));
}

TEST_F(PackLearnedTest, LeavesAModelOutThatDoesNotPay) {
  PutTrainer(TrainerThatSaves(5999));
  const ForebayRun packed = Pack("a.fbp", {"--train"});
  ASSERT_EQ(packed.code, 0) << packed.err;
  EXPECT_THAT(packed.err, HasSubstr("does not pay"));
  EXPECT_EQ(Read("a.fbp").find("FEBYNET1"), std::string::npos);
  ExpectComesBack("a.fbp");
}

TEST_F(PackLearnedTest, LeavesAFileAloneThatHasTheNameOfTheTrainingPack) {
  PutTrainer(TrainerThatSaves(5000));
  for (const char* name : {"a.fbp.train", "b.fbp.train.part"}) {
    Write(name, "the user's");
    const ForebayRun packed = Pack(std::string(name).substr(0, 5), {"--train"});
    EXPECT_NE(packed.code, 0);
    EXPECT_THAT(packed.err, HasSubstr(name));
    EXPECT_EQ(Read(name), "the user's");
  }
}

TEST_F(PackLearnedTest, SaysWhatTheTrainerSaid) {
  PutTrainer("echo 'forebay-compress-train: no planes' >&2\nexit 2\n");
  const ForebayRun packed = Pack("a.fbp", {"--train"});
  EXPECT_EQ(packed.code, kUsage);
  EXPECT_THAT(packed.err, HasSubstr("no planes"));
  EXPECT_FALSE(fs::exists(Path("a.fbp")));
  EXPECT_FALSE(fs::exists(Path("a.fbp.train")));
}

TEST_F(PackLearnedTest, SaysWhereTheTrainerIsToBeHad) {
  setenv("PATH", Path("nowhere").c_str(), 1);
  const ForebayRun packed = Pack("a.fbp", {"--train"});
  EXPECT_EQ(packed.code, kNotFound);
  EXPECT_THAT(packed.err, HasSubstr("libtorch-dev"));
}

TEST_F(PackLearnedTest, IsToldOneWayToAModel) {
  EXPECT_EQ(Pack("a.fbp", {}).code, kUsage);
  EXPECT_EQ(Pack("a.fbp", {"--train", "--model", Path("given.net")}).code, kUsage);
  const ForebayRun resumed = Pack("a.fbp", {"--train", "--resume"});
  EXPECT_EQ(resumed.code, kUsage);
  EXPECT_THAT(resumed.err, HasSubstr("a.fbp.net"));
  EXPECT_EQ(Pack("a.fbp", {"--model", Path("missing.net")}).code, kNotFound);
  Write("broken.net", "FEBYNET1 and no more");
  EXPECT_NE(Pack("a.fbp", {"--model", Path("broken.net")}).code, 0);
}

}  // namespace
}  // namespace forebay::cli
