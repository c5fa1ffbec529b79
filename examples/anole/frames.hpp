// SPDX-License-Identifier: MIT
/// Frames of clips: what models learn from offline, and what streams by online.
#pragma once

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "camera.hpp"
#include "objects.hpp"

namespace anole {

/// Pictures of one kind of objects. Digits are split: streams show those that nobody learned from.
class World {
 public:
  World(std::uint64_t seed, float cue, std::optional<Digits> digits)
      : seed_(seed), cue_(cue), digits_(std::move(digits)) {}

  bool has_digits() const { return digits_.has_value(); }
  std::size_t classes() const { return has_digits() ? Digits::classes : Vehicle::classes; }
  std::uint64_t seed() const { return seed_; }
  Conditions conditions(const Scene& scene, std::uint32_t clip) const {
    return Conditions(scene, cue_, seed_, clip);
  }

  /// Frame number `frame`, which no other call may have; its class.
  std::size_t photograph(const Conditions& seen, std::uint32_t frame, bool held_out,
                         unsigned char* picture) const {
    Draws draws(seed_, static_cast<std::uint32_t>(Stream::frame), frame);
    if (!has_digits()) {
      const std::size_t kind = draws.below(Vehicle::classes);
      anole::photograph(seen, Vehicle(kind, seen, draws), draws, picture);
      return kind;
    }
    // Two of three to learn from.
    const std::size_t third = Digits::count / 3;
    const std::size_t which =
        held_out ? 3 * draws.below(third) + 2 : 3 * draws.below(third) + draws.below(2);
    const Digits::Digit& digit = digits_->all[which];
    anole::photograph(seen, PaintedDigit(digit, seen, draws), draws, picture);
    return digit.kind;
  }

 private:
  std::uint64_t seed_;
  float cue_;
  std::optional<Digits> digits_;
};

/// Clips of frames, one behind the other and all of the same length.
struct Clips {
  std::size_t frames_per_clip = 0;
  std::vector<Scene> scenes;            ///< by clip: what nobody tells but by hints
  std::vector<unsigned char> pictures;  ///< pixels of each frame
  std::vector<std::int32_t> kinds;      ///< by frame: the class

  std::size_t frames() const { return kinds.size(); }
  const unsigned char* picture(std::size_t frame) const { return pictures.data() + frame * pixels; }

  /// `per_scene` clips of each scene. Frames and clips are numbered from `first` on.
  static Clips film(const World& world, const std::vector<Scene>& scenes, std::size_t per_scene,
                    std::size_t frames_per_clip, std::uint32_t first, bool held_out) {
    Clips clips;
    clips.frames_per_clip = frames_per_clip;
    const std::size_t frames = scenes.size() * per_scene * frames_per_clip;
    clips.pictures.resize(frames * pixels);
    for (const Scene& scene : scenes)
      for (std::size_t c = 0; c < per_scene; ++c) {
        const auto number = first + static_cast<std::uint32_t>(clips.scenes.size());
        const Conditions seen = world.conditions(scene, number);
        clips.scenes.push_back(scene);
        for (std::size_t f = 0; f < frames_per_clip; ++f) {
          const std::size_t at = clips.kinds.size();
          clips.kinds.push_back(static_cast<std::int32_t>(
              world.photograph(seen, first + static_cast<std::uint32_t>(at), held_out,
                               clips.pictures.data() + at * pixels)));
        }
      }
    return clips;
  }
};

/// What networks see of a picture.
inline void as_input(const unsigned char* picture, float* input) {
  for (std::size_t p = 0; p < pixels; ++p)
    input[p] = 3 * (static_cast<float>(picture[p]) / 255 - 0.4F);
}

/// Scenes to learn from and scenes that are not: `known` and `unseen` kinds, drawn without repeats.
struct SceneSplit {
  std::vector<Scene> known, unseen;

  SceneSplit(std::uint64_t seed, std::size_t known_count, std::size_t unseen_count) {
    std::vector<std::size_t> kinds(kinds_of_scenes);
    std::iota(kinds.begin(), kinds.end(), std::size_t{0});
    Draws draws(seed, static_cast<std::uint32_t>(Stream::scenes), 0);
    for (std::size_t i = 0; i < known_count + unseen_count; ++i) {
      std::swap(kinds[i], kinds[i + draws.below(kinds.size() - i)]);
      (i < known_count ? known : unseen).push_back(Scene::numbered(kinds[i]));
    }
  }
};

}  // namespace anole
