// SPDX-License-Identifier: MIT
/// What the camera sees: flat parts on a belt, under a lamp.
///
/// A picture is simulated from the light on: a lamp at a height above the belt lights it, the less the
/// farther away; belt and part reflect a share of it; the camera, maybe tilted, sees them in perspective; its
/// lens, maybe out of focus, spreads edges; its sensor counts photons, with their shot noise and its own
/// noise, and turns them into 8 bits, with a gain that makes up for weak light, as automatic exposure does.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "../device/random.hpp"

namespace tiny_camera {

inline constexpr std::size_t side = 24;  // pixels
enum Part : std::int32_t { disc, washer, plate, nut, cross, bar, bracket, wedge };
inline constexpr std::size_t parts = 8;
inline constexpr const char* part_names[parts] = {"disc",  "washer", "plate",   "nut",
                                                  "cross", "bar",    "bracket", "wedge"};

/// What a place and a day make of a camera. Lengths are in halves of the picture's width.
struct Conditions {
  float tilt = 0;      ///< radians away from straight down
  float turn = 0;      ///< radians; where the tilt leads
  float blur = 0.04F;  ///< radius of the disc that a point becomes
  float lamp_x = 0, lamp_y = 0, lamp_height = 4;
  float photons = 4000;  ///< of a white surface under the lamp, a pixel
  float belt = 0.15F;    ///< reflectance
  float grain = 0.02F;   ///< of the belt's reflectance, standard deviation
  float closeness = 1;   ///< how large parts seem
};

/// Where it was trained: straight down, sharp, well lit, a dark belt.
inline Conditions workshop() { return {}; }

/// Where it may be sent: tilted, out of focus, lit weakly and from the side, above a lighter belt. Each seed
/// is a place.
inline Conditions place(std::uint32_t seed) {
  device::Random random(seed, 77);
  Conditions c;
  c.tilt = random.uniform(0.3F, 0.5F);
  c.turn = random.uniform(0, 6.2831853F);
  c.blur = random.uniform(0.08F, 0.12F);
  const float from = random.uniform(0, 6.2831853F);
  c.lamp_x = 0.8F * std::cos(from), c.lamp_y = 0.8F * std::sin(from);
  c.lamp_height = random.uniform(1.8F, 2.4F);
  c.photons = random.uniform(250, 500);
  c.belt = random.uniform(0.2F, 0.28F);
  c.grain = random.uniform(0.03F, 0.05F);
  c.closeness = random.uniform(0.8F, 0.95F);
  return c;
}

namespace detail {

/// Signed distance of (x, y) to a box of half extents (a, b) around the origin.
inline float box(float x, float y, float a, float b) {
  const float u = std::fabs(x) - a, v = std::fabs(y) - b;
  const float du = u > 0 ? u : 0, dv = v > 0 ? v : 0, inside = u > v ? u : v;
  return std::sqrt(du * du + dv * dv) + (inside < 0 ? inside : 0);
}

/// How far (x, y) lies outside of a part of about radius 1; below 0: inside.
inline float distance(Part part, float x, float y) {
  const float radius = std::sqrt(x * x + y * y);
  switch (part) {
    case disc: return radius - 0.9F;
    case washer: return std::fabs(radius - 0.68F) - 0.24F;
    case plate: return box(x, y, 0.78F, 0.78F);
    case nut: {
      const float ax = std::fabs(x), ay = std::fabs(y), slope = 0.8660254F * ax + 0.5F * ay;
      const float hexagon = (slope > ay ? slope : ay) - 0.85F, hole = 0.4F - radius;
      return hexagon > hole ? hexagon : hole;
    }
    case cross: {
      const float a = box(x, y, 0.95F, 0.28F), b = box(x, y, 0.28F, 0.95F);
      return a < b ? a : b;
    }
    case bar: return box(x, y, 1, 0.32F);
    case bracket: {
      const float a = box(x + 0.55F, y, 0.27F, 0.85F), b = box(x, y + 0.58F, 0.82F, 0.27F);
      return a < b ? a : b;
    }
    case wedge: {
      const float ax = std::fabs(x), side_distance = 0.8660254F * ax + 0.5F * y - 0.5F;
      return side_distance > -y - 0.5F ? side_distance : -y - 0.5F;
    }
  }
  return 1;
}

}  // namespace detail

/// Writes side x side numbers from 0 to 1, in steps of 1/255, and returns the part. `picture` selects it
/// among those of the seed.
inline Part take_picture(const Conditions& c, std::uint32_t picture, std::uint64_t seed,
                         float* out) {
  device::Random random(picture, seed);
  const auto part = static_cast<Part>(random.below(parts));
  const float angle = random.uniform(0, 6.2831853F), cosine = std::cos(angle),
              sine = std::sin(angle);
  const float size = random.uniform(0.62F, 0.78F) * c.closeness;
  const float at_x = random.uniform(-0.15F, 0.15F), at_y = random.uniform(-0.15F, 0.15F);
  const float metal = random.uniform(0.55F, 0.9F);
  const float exposure = random.uniform(0.85F, 1.15F);
  const float turn_x = std::cos(c.turn), turn_y = std::sin(c.turn);
  const float flat = std::cos(c.tilt), depth = std::sin(c.tilt);
  constexpr float eye = 3;  // the camera's distance
  // Automatic exposure: what lies under the lamp would be white at 0.8 of the range.
  const float gain = 0.8F * exposure / c.photons;
  for (std::size_t i = 0; i < side; ++i)
    for (std::size_t j = 0; j < side; ++j) {
      const float v = (static_cast<float>(2 * i) + 1) / side - 1,
                  u = (static_cast<float>(2 * j) + 1) / side - 1;
      // The ray through (u, v) meets the belt, which leans away along the turn's direction.
      const float along = u * turn_x + v * turn_y, across = v * turn_x - u * turn_y;
      const float reach = eye / (eye * flat - along * depth);
      const float a = along * reach, b = across * reach * flat;
      const float x = a * turn_x - b * turn_y, y = a * turn_y + b * turn_x;
      const float px = ((x - at_x) * cosine + (y - at_y) * sine) / size;
      const float py = ((y - at_y) * cosine - (x - at_x) * sine) / size;
      const float edge = 0.5F - size * detail::distance(part, px, py) / (2 * c.blur);
      const float share = edge < 0 ? 0 : edge > 1 ? 1 : edge;
      const float lx = x - c.lamp_x, ly = y - c.lamp_y, h = c.lamp_height;
      const float far = lx * lx + ly * ly + h * h;
      const float light = h * h * h / (far * std::sqrt(far));  // falls with distance and with slant
      const float belt = c.belt + c.grain * random.noise();
      const float photons = c.photons * light * (share * metal + (1 - share) * belt);
      const float counted =
          photons + std::sqrt(photons > 0 ? photons : 0) * random.noise() + 2 * random.noise();
      const float signal = gain * counted;
      const float kept = signal < 0 ? 0 : signal > 1 ? 1 : signal;
      out[i * side + j] = static_cast<float>(static_cast<int>(255 * kept + 0.5F)) / 255;
    }
  return part;
}

}  // namespace tiny_camera
