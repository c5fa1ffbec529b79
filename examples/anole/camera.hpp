// SPDX-License-Identifier: MIT
/// A camera below a survey drone, as a model of what light does on its way: where a scene's pictures
/// come from.
///
/// For each pixel, in this order: the ground's albedo (value noise, whose grain has a length in
/// metres) or the object's on it; relief, which the sun lights from one side; haze, by the law of
/// Koschmieder (Koschmieder, "Theorie der horizontalen Sichtweite", 1924): radiance t + airlight
/// (1 - t); blur along the flight while the shutter is open; exposure, whose gain has an upper limit;
/// shot and read noise, the first in proportion to the light; 8 bits. Pixels are means of 2 x 2 rays.
///
/// Everything is a function of the seed and of numbers that name scene, clip and frame.
#pragma once

#include <adacc/core/random.hpp>
#include <adacc/train/initialize.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "../device/random.hpp"

namespace anole {

inline constexpr std::size_t side = 16, pixels = side * side;

/// What somebody would say of a scene.
enum Attribute : unsigned char { heading, altitude, light, weather, ground };
inline constexpr std::size_t attributes = 5;
inline constexpr std::array<const char*, attributes> attribute_names{"heading", "altitude", "light",
                                                                     "weather", "ground"};
/// out, back; low, middle, high; noon, evening, night; clear, mist, fog; asphalt, grass, sand, snow.
inline constexpr std::array<unsigned, attributes> attribute_values{2, 3, 3, 3, 4};
inline constexpr std::size_t kinds_of_scenes = 2 * 3 * 3 * 3 * 4;

/// A scene: a value for each attribute.
struct Scene {
  std::array<unsigned char, attributes> value{};

  static Scene numbered(std::size_t number) {
    Scene scene;
    for (std::size_t a = 0; a < attributes; ++a) {
      scene.value[a] = static_cast<unsigned char>(number % attribute_values[a]);
      number /= attribute_values[a];
    }
    return scene;
  }
};

/// Numbers in a row from one stream.
class Draws : public device::Random {
 public:
  Draws(std::uint64_t seed, std::uint32_t stream, std::uint32_t number)
      : Random(adacc::RandomKey{
            .seed = seed, .step = number, .activation = stream, .purpose = adacc::Purpose::data}) {}

  /// Of the standard normal distribution.
  float normal() {
    if (normals_left_ == 0) {
      normals_ = adacc::normal_block(
          adacc::random_block(key_.with_purpose(adacc::Purpose::sampling), normal_blocks_++));
      normals_left_ = 4;
    }
    return static_cast<float>(normals_.value[--normals_left_]);
  }

 private:
  adacc::NormalBlock normals_{};
  std::uint64_t normal_blocks_ = 0;
  int normals_left_ = 0;
};

/// Streams of random numbers, so that none is used twice.
enum class Stream : std::uint32_t { scenes = 1, clip, frame, stream_order, hints, batches };

/// What a camera meets in one clip of a scene: values near those of the scene's attributes.
struct Conditions {
  float turned = 0;  ///< radians from ground to picture
  float metres_per_pixel = 0;
  float sun = 0;     ///< brightness of the ground in its light
  float relief = 0;  ///< by how much slopes are brighter towards the sun, over a picture
  float seen = 0;    ///< share of light that gets through the haze
  float airlight = 0;
  float blur = 0;  ///< pixels that the ground moves along the flight in an exposure
  float gain = 0;
  float read_noise = 0, shot_noise = 0;
  float albedo = 0, texture = 0, grain = 0;  ///< of the ground; grain in metres

  /// `cue`: how plainly relief and texture show, 1 is usual.
  Conditions(const Scene& scene, float cue, std::uint64_t seed, std::uint32_t clip) {
    Draws draws(seed, static_cast<std::uint32_t>(Stream::clip), clip);
    constexpr float pi = 3.14159265F;
    turned = pi * static_cast<float>(scene.value[heading]) + draws.uniform(-0.12F, 0.12F);
    constexpr float heights[] = {0.45F, 0.61F, 0.83F};
    metres_per_pixel = heights[scene.value[altitude]] * draws.uniform(0.94F, 1.06F);
    constexpr float suns[] = {1.0F, 0.5F, 0.15F};
    sun = suns[scene.value[light]] * draws.uniform(0.8F, 1.2F);
    constexpr float slopes[] = {0.16F, 0.22F, 0.18F};  // lamps at night stand on one side, too
    relief = cue * slopes[scene.value[light]] * draws.uniform(0.8F, 1.2F);
    constexpr float depths[] = {0.05F, 0.3F, 0.6F};  // optical
    const float depth = depths[scene.value[weather]] * draws.uniform(0.8F, 1.2F);
    seen = std::exp(-depth * (0.7F + 0.3F * static_cast<float>(scene.value[altitude])));
    airlight = 0.6F * sun;
    // Who flies higher may fly faster; in the dark the shutter stays open for longer.
    constexpr float moves[] = {0.2F, 0.5F, 1.0F};
    blur = moves[scene.value[light]] * draws.uniform(0.6F, 1.4F);
    constexpr float albedos[] = {0.14F, 0.27F, 0.5F, 0.78F};
    albedo = albedos[scene.value[ground]] * draws.uniform(0.9F, 1.1F);
    constexpr float rough[] = {0.25F, 0.35F, 0.22F, 0.12F};
    texture = cue * rough[scene.value[ground]];
    constexpr float grains[] = {1.0F, 0.9F, 1.3F, 1.5F};
    grain = grains[scene.value[ground]];
    // The exposure aims at a third of full scale, by the light of the haze and the ground.
    const float mean = sun * albedo * seen + airlight * (1 - seen);
    gain = std::min(0.36F / mean, 14.0F);
    read_noise = 0.0025F * gain + 0.006F;
    shot_noise = 0.0008F * gain;
  }
};

/// Something on the ground: its albedo at (u, v), in metres from its middle, or less than 0 beside it.
class Object {
 public:
  Object() = default;
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;
  virtual ~Object() = default;
  virtual float albedo(float u, float v) const = 0;
};

/// Smooth noise in [-1, 1] with a value for each whole number.
class Texture {
 public:
  explicit Texture(Draws& draws) {
    for (float& value : values_) value = draws.uniform(-1, 1);
  }
  float operator()(float x, float y) const {
    const float fx = std::floor(x), fy = std::floor(y);
    const auto i = static_cast<unsigned>(static_cast<int>(fx)),
               j = static_cast<unsigned>(static_cast<int>(fy));
    const float a = x - fx, b = y - fy;
    const float top = at(i, j) + a * (at(i + 1, j) - at(i, j));
    const float low = at(i, j + 1) + a * (at(i + 1, j + 1) - at(i, j + 1));
    return top + b * (low - top);
  }

 private:
  float at(unsigned i, unsigned j) const { return values_[i % 32 * 32 + j % 32]; }
  std::array<float, 1024> values_{};
};

/// One picture, `side` x `side` values from 0 to 255.
inline void photograph(const Conditions& seen, const Object& object, Draws& draws,
                       unsigned char* picture) {
  const Texture texture(draws);
  const float cosine = std::cos(seen.turned), sine = std::sin(seen.turned);
  const float shift_x = draws.uniform(-1, 1), shift_y = draws.uniform(-1, 1);
  std::array<float, pixels> radiance{};
  constexpr int rays = 2;
  for (std::size_t row = 0; row < side; ++row)
    for (std::size_t col = 0; col < side; ++col) {
      float sum = 0;
      for (int ray = 0; ray < rays * rays; ++ray) {
        const float x = static_cast<float>(col) + 0.25F + 0.5F * static_cast<float>(ray % 2) - 8;
        const float y = static_cast<float>(row) + 0.25F + 0.5F * static_cast<float>(ray / 2) - 8;
        // From the picture to the ground, whose north the sun is in.
        const float east = seen.metres_per_pixel * (cosine * x + sine * y);
        const float north = seen.metres_per_pixel * (cosine * y - sine * x);
        const float unit = seen.metres_per_pixel;
        float albedo = object.albedo(east - unit * shift_x, north - unit * shift_y);
        if (albedo < 0)
          albedo = seen.albedo *
                   (1 + seen.texture * texture(east / seen.grain + 64, north / seen.grain + 64));
        sum += albedo * seen.sun * (1 + seen.relief * north / (8 * unit));
      }
      radiance[row * side + col] =
          sum / (rays * rays) * seen.seen + seen.airlight * (1 - seen.seen);
    }
  // Blur along the flight, which is the picture's vertical: a box of 1 + blur pixels.
  std::array<float, pixels> blurred{};
  for (std::size_t col = 0; col < side; ++col)
    for (std::size_t row = 0; row < side; ++row) {
      float sum = 0, weights = 0;
      for (int tap = -2; tap <= 2; ++tap) {
        const float reach = (1 + seen.blur) / 2 - (std::abs(static_cast<float>(tap)) - 0.5F);
        const float weight = std::clamp(reach, 0.0F, 1.0F);
        const int from = std::clamp(static_cast<int>(row) + tap, 0, static_cast<int>(side) - 1);
        sum += weight * radiance[static_cast<std::size_t>(from) * side + col];
        weights += weight;
      }
      blurred[row * side + col] = sum / weights;
    }
  for (std::size_t p = 0; p < pixels; ++p) {
    const float exposed = seen.gain * blurred[p];
    const float noise = std::sqrt(seen.read_noise * seen.read_noise + seen.shot_noise * exposed);
    const float value = exposed + noise * draws.normal();
    picture[p] = static_cast<unsigned char>(std::lround(255 * std::clamp(value, 0.0F, 1.0F)));
  }
}

}  // namespace anole
