// The families of models that forebay-train knows. A new one is declared and listed here;
// everything else about it is in its own file. The order is that of --list-models.
#include "trainer/models/families/model_family.h"

namespace forebay::train {

extern const ModelFamily kLeNet;
extern const ModelFamily kResNet;
extern const ModelFamily kVisionTransformer;
extern const ModelFamily kUNet3d;
extern const ModelFamily kCosmoFlow;

std::span<const ModelFamily* const> ModelFamilies() {
  static constexpr const ModelFamily* kFamilies[] = {
      &kLeNet, &kResNet, &kVisionTransformer, &kUNet3d, &kCosmoFlow,
  };
  return kFamilies;
}

}  // namespace forebay::train
