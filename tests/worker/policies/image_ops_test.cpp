// Against torch, torchvision and LeRobot themselves: tests/data/goldens/image_ops.safetensors, made by
// scripts/reference/make_image_ops_golden.py.
#include "worker/image_ops.hpp"

#include <cstdio>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "worker/checkpoint/safetensors.hpp"
#include "worker/color_ops.hpp"

namespace vla {
namespace {

const TensorMap& golden() {
  static const TensorMap file = load_safetensors(std::string(TEST_DATA_DIR) + "/goldens/image_ops.safetensors");
  return file;
}

double difference(const at::Tensor& a, const at::Tensor& b) {
  EXPECT_EQ(a.sizes(), b.sizes());
  return (a.to(at::kDouble) - b.to(at::kDouble)).abs().max().item<double>();
}

// Calls check(name, height, width) for every golden "<prefix><height>x<width><suffix>".
template <class Check>
void for_sizes(const std::string& prefix, const std::string& suffix, Check check) {
  int found = 0;
  for (const auto& [name, tensor] : golden()) {
    int64_t height = 0, width = 0;
    char rest[32] = "";
    if (!name.starts_with(prefix) || std::sscanf(name.c_str() + prefix.size(), "%ldx%ld%31s", &height, &width, rest) < 2) continue;
    if (suffix != rest) continue;
    check(name, height, width);
    ++found;
  }
  EXPECT_GE(found, 4) << prefix;
}

at::Tensor channels_last(const at::Tensor& images) { return images.contiguous(at::MemoryFormat::ChannelsLast); }

TEST(ImageOps, ResizeIsTorchs) {
  for (const bool antialias : {false, true}) {
    for_sizes("resize/", antialias ? "/antialias" : "", [&](const std::string& name, int64_t height, int64_t width) {
      const at::Tensor images = golden().at("images");
      EXPECT_LE(difference(resize_bilinear(images, height, width, antialias), golden().at(name)), 1e-6) << name;
      const at::Tensor last = resize_bilinear(channels_last(images), height, width, antialias);
      EXPECT_LE(difference(last, golden().at(name)), 1e-6) << name;
      EXPECT_TRUE(last.is_contiguous(at::MemoryFormat::ChannelsLast)) << name;
      const at::Tensor bytes = resize_bilinear(golden().at("images_uint8"), height, width, antialias);
      EXPECT_EQ(bytes.scalar_type(), at::kByte);
      EXPECT_LE(difference(bytes, golden().at("uint8/" + name)), 1) << name;
    });
  }
}

TEST(ImageOps, PaddingFollowsSmolVlaAndOpenpi) {
  for_sizes("pad/left_top/", "", [](const std::string& name, int64_t height, int64_t width) {
    EXPECT_LE(difference(resize_with_pad(golden().at("images"), height, width, PadPlace::kLeftTop, -1), golden().at(name)), 1e-6) << name;
  });
  for_sizes("pad/centre/", "", [](const std::string& name, int64_t height, int64_t width) {
    EXPECT_LE(difference(resize_with_pad(golden().at("images"), height, width, PadPlace::kCentre), golden().at(name)), 1e-6) << name;
  });
}

TEST(ImageOps, CentreCropIsTorchvisions) {
  for_sizes("centre_crop/", "", [](const std::string& name, int64_t height, int64_t width) {
    EXPECT_TRUE(centre_crop(golden().at("images"), height, width).equal(golden().at(name))) << name;
  });
}

TEST(ImageOps, WindowsAreCutWhereEachSampleSays) {
  const at::Tensor images = torch::rand({3, 2, 3, 9, 7});  // two frames a sample
  const at::Tensor top = torch::tensor({0, 2, 4}), left = torch::tensor({3, 0, 1});
  const at::Tensor windows = crop_at(images, top, left, 5, 4);
  for (int64_t i = 0; i < 3; ++i) {
    EXPECT_TRUE(windows[i].equal(images[i].narrow(-2, top[i].item<int64_t>(), 5).narrow(-1, left[i].item<int64_t>(), 4)));
  }
  const at::Tensor same = crop_at(images, torch::tensor({1}), torch::tensor({2}), 5, 4);
  EXPECT_TRUE(same.equal(images.narrow(-2, 1, 5).narrow(-1, 2, 4)));
  EXPECT_TRUE(crop_at(channels_last(images[0]), torch::tensor({1}), torch::tensor({2}), 5, 4).is_contiguous(at::MemoryFormat::ChannelsLast));
  EXPECT_THROW(crop_at(images, top, left, 10, 4), c10::Error);
}

TEST(ImageOps, EveryPlaceOfAWindowIsDrawn) {
  const at::Tensor uniform = torch::tensor({0.0, 0.24, 0.26, 0.51, 0.999999});
  EXPECT_TRUE(crop_offsets(uniform, 10, 7).equal(torch::tensor({0, 0, 1, 2, 3})));
  EXPECT_TRUE(crop_offsets(torch::full({1}, 16777215.0f / 16777216.0f), 1 << 26, 1).equal(torch::tensor({(1 << 26) - 4})));
}

TEST(ImageOps, BytesBecomeSharesOf255) {
  const at::Tensor bytes = golden().at("images_uint8");
  EXPECT_TRUE(images_to_float(bytes).equal(bytes.to(at::kFloat) / torch::tensor(255.0f)));
}

class ColorOps : public testing::TestWithParam<bool> {
 protected:
  at::Tensor images() { return GetParam() ? channels_last(golden().at("images")) : golden().at("images").clone(); }
  const at::Tensor& factor(const std::string& name) { return golden().at("factor/" + name); }
  void expect(const std::string& name, const at::Tensor& actual) {
    EXPECT_LE(difference(actual, golden().at("adjust/" + name)), 1e-5) << name;
    EXPECT_EQ(actual.strides(), images().strides()) << name;
  }
};

TEST_P(ColorOps, EqualTorchvisionForFactorsOfEachSample) {
  expect("brightness", adjust_brightness(images(), factor("brightness")));
  expect("contrast", adjust_contrast(images(), factor("contrast")));
  expect("saturation", adjust_saturation(images(), factor("saturation")));
  expect("hue", adjust_hue(images(), factor("hue")));
  expect("sharpness", adjust_sharpness(images(), factor("sharpness")));
  const at::Tensor& moves = factor("affine");
  expect("affine", affine(images(), moves.select(1, 0), moves.select(1, 1), moves.select(1, 2)));
}

TEST_P(ColorOps, FramesOfASampleChangeAlike) {
  const at::Tensor pairs = at::stack({images(), images().flip(0)}, 1);  // [4, 2, 3, H, W]
  using Op = at::Tensor (*)(const at::Tensor&, const at::Tensor&);
  for (const Op op : {Op(adjust_brightness), Op(adjust_contrast), Op(adjust_saturation), Op(adjust_hue), Op(adjust_sharpness)}) {
    const at::Tensor factor = torch::tensor({0.1, 0.2, 0.3, 0.4});
    const at::Tensor changed = op(pairs, factor);
    for (int64_t frame = 0; frame < 2; ++frame) EXPECT_LE(difference(changed.select(1, frame), op(pairs.select(1, frame), factor)), 1e-6);
  }
  const at::Tensor one = torch::ones({4}), degrees = one * 20;
  const at::Tensor moved = affine(pairs, degrees, one, one);
  EXPECT_TRUE(moved.select(1, 1).equal(affine(pairs.select(1, 1), degrees, one, one)));
}

TEST_P(ColorOps, NeutralFactorsChangeNothing) {
  const at::Tensor one = torch::ones({4}), zero = torch::zeros({4});
  EXPECT_TRUE(adjust_brightness(images(), one).equal(images()));
  EXPECT_TRUE(adjust_contrast(images(), one).equal(images()));
  EXPECT_TRUE(adjust_saturation(images(), one).equal(images()));
  EXPECT_TRUE(adjust_sharpness(images(), one).equal(images()));
  EXPECT_TRUE(affine(images(), zero, zero, zero).equal(images()));
  EXPECT_TRUE(add_noise(images(), torch::randn_like(images()), zero).equal(images()));
}

INSTANTIATE_TEST_SUITE_P(Layouts, ColorOps, testing::Bool(),
                         [](const auto& test) { return test.param ? "channels_last" : "contiguous"; });

}  // namespace
}  // namespace vla
