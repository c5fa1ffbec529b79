// SPDX-License-Identifier: MIT
/// The score of a match over time, as a picture.
#pragma once

#include <support/draw/svg.hpp>

#include <algorithm>
#include <string>

#include "../ppo/match.hpp"

namespace game {

/// A mean return, in per cent of the best possible.
template <class Game>
double percent_of(const ppo::Score& score) {
  return 100 * score.mean() / Game::best_return;
}

/// A point for each fortieth of the frames, and the means of the first and the last tenth.
template <class Game>
std::string picture(const ppo::Match<Game>& match, double frames_per_second) {
  constexpr double width = 720, height = 360;
  const draw::Box box{60, 46, 640, 260};
  const std::size_t frames = match.scores.size(), points = std::min<std::size_t>(40, frames);
  const auto x = [&](double frame) {
    return box.left + box.width * frame / static_cast<double>(frames);
  };
  const auto y = [&](double percent) { return box.top + box.height * (1 - percent / 100); };

  std::string svg = draw::open_svg(width, height);
  svg +=
      draw::print("<text x='%.0f' y='24' font-size='15'>%s</text>\n", box.left, Game::score_words);
  for (int percent = 0; percent <= 100; percent += 25)
    svg += draw::print("<line x1='%.1f' x2='%.1f' y1='%.1f' y2='%.1f' stroke='#ddd'/>", box.left,
                       box.left + box.width, y(percent), y(percent)) +
           draw::print("<text x='%.0f' y='%.1f' text-anchor='end'>%d</text>\n", box.left - 8,
                       y(percent) + 4, percent);
  for (int quarter = 0; quarter <= 4; ++quarter) {
    const double frame = static_cast<double>(frames) * quarter / 4;
    svg += draw::print("<text x='%.1f' y='%.0f' text-anchor='middle'>%.1f s</text>\n", x(frame),
                       box.top + box.height + 22, frame / frames_per_second);
  }

  std::string line, dots;
  for (std::size_t i = 0; i < points; ++i) {
    const std::size_t from = frames * i / points, to = frames * (i + 1) / points;
    const ppo::Score score = match.score(from, to);
    if (score.ended == 0) continue;
    const double at = x(static_cast<double>(from + to) / 2), up = y(percent_of<Game>(score));
    line += draw::print("%.1f,%.1f ", at, up);
    dots += draw::print("<circle cx='%.1f' cy='%.1f' r='2.5' fill='#4e79a7'/>", at, up);
  }
  svg += "<polyline fill='none' stroke='#4e79a7' stroke-width='2' points='" + line + "'/>\n" + dots;
  const std::size_t tenth = frames / 10;
  const auto mean = [&](std::size_t from, std::size_t to) {
    const double percent = percent_of<Game>(match.score(from, to));
    svg += draw::print(
               "\n<line x1='%.1f' x2='%.1f' y1='%.1f' y2='%.1f' stroke='#f28e2b' "
               "stroke-width='3'/>",
               x(static_cast<double>(from)), x(static_cast<double>(to)), y(percent), y(percent)) +
           draw::print("<text x='%.1f' y='%.1f' text-anchor='middle'>%.1f</text>",
                       x(static_cast<double>(from + to) / 2), y(percent) - 8, percent);
  };
  mean(0, tenth);
  mean(frames - tenth, frames);
  return svg + "\n" + draw::key(box.left, height - 22, "#4e79a7", "each fortieth of the match") +
         draw::key(box.left + 240, height - 22, "#f28e2b", "its first and its last tenth") +
         "</svg>\n";
}

}  // namespace game
