// forebay-train: the models of models/, run by RunTrainer.
#include "trainer/models/model_config.h"
#include "trainer/program/run_trainer.h"

int main(int argc, char** argv) {
  using namespace forebay::train;  // NOLINT: nothing else is here
  return RunTrainer(argc, argv, {.make_task = MakeModelTask, .models = ModelList()});
}
