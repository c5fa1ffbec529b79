// SPDX-License-Identifier: MIT
/// A window of SDL2 that draws boxes, and text of 3 x 5 dots, so that nothing else is needed.
#pragma once

#define SDL_MAIN_HANDLED
#include <SDL.h>

#include <cstddef>
#include <cstdio>

class Screen {
 public:
  Screen(const char* title, int width, int height) {
    if (SDL_Init(SDL_INIT_VIDEO) != 0) return;
    window_ = SDL_CreateWindow(title, 0, 0, width, height, SDL_WINDOW_SHOWN);
    if (window_ == nullptr) return;
    renderer_ = SDL_CreateRenderer(window_, -1, SDL_RENDERER_SOFTWARE);
    picture_ = SDL_CreateRGBSurfaceWithFormat(0, width, height, 32, SDL_PIXELFORMAT_ARGB8888);
  }
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;
  ~Screen() {
    SDL_FreeSurface(picture_);
    if (renderer_ != nullptr) SDL_DestroyRenderer(renderer_);
    if (window_ != nullptr) SDL_DestroyWindow(window_);
    SDL_Quit();
  }

  bool is_there() const { return renderer_ != nullptr && picture_ != nullptr; }
  const char* reason() const { return SDL_GetError(); }

  /// False once the window was closed.
  bool stays_open() {
    for (SDL_Event event; SDL_PollEvent(&event) != 0;)
      if (event.type == SDL_QUIT) return false;
    return true;
  }

  void box(int x, int y, int width, int height, unsigned color) {
    SDL_SetRenderDrawColor(renderer_, static_cast<Uint8>(color >> 16),
                           static_cast<Uint8>(color >> 8), static_cast<Uint8>(color), 255);
    const SDL_Rect rect{x, y, width, height};
    SDL_RenderFillRect(renderer_, &rect);
  }

  /// Capital letters, digits and points; an octal digit is a row of a letter.
  void write(int x, int y, const char* text) {
    constexpr unsigned digits[] = {075557, 026227, 071747, 071717, 055711,
                                   074717, 074757, 071122, 075757, 075717};
    constexpr unsigned letters[] = {025755, 065656, 034443, 065556, 074647, 074644, 034553,
                                    055755, 072227, 011152, 055655, 044447, 057755, 065555,
                                    025552, 065644, 025563, 065655, 034216, 072222, 055557,
                                    055552, 055775, 055255, 055222, 071247};
    for (; *text != 0; ++text, x += 8) {
      const bool is_digit = *text >= '0' && *text <= '9', is_letter = *text >= 'A' && *text <= 'Z';
      const unsigned dots = is_digit       ? digits[*text - '0']
                            : is_letter    ? letters[*text - 'A']
                            : *text == '.' ? 2
                                           : 0;
      for (int i = 0; i < 15; ++i)
        if ((dots >> (14 - i) & 1U) != 0) box(x + 2 * (i % 3), y + 2 * (i / 3), 2, 2, 0x333333);
    }
  }

  /// As printf does.
  template <class... Values>
  void write(int x, int y, const char* format, Values... values) {
    char text[100];
    std::snprintf(text, sizeof text, format, values...);
    write(x, y, text);
  }

  /// The last `count` values as bars above `bottom`, at most 40 high; the oldest is values[oldest % count].
  void bars(int left, int bottom, const float* values, std::size_t count, std::size_t oldest,
            float scale, unsigned color) {
    for (std::size_t i = 0; i < count; ++i) {
      const float high = scale * values[(oldest + i) % count];
      const int dots = high < 40 ? static_cast<int>(high) : 40;
      box(left + static_cast<int>(i), bottom - dots, 1, dots, color);
    }
  }

  void show() { SDL_RenderPresent(renderer_); }

  /// Writes all that was drawn as a BMP file.
  bool save(const char* path) {
    return SDL_RenderReadPixels(renderer_, nullptr, 0, picture_->pixels, picture_->pitch) == 0 &&
           SDL_SaveBMP(picture_, path) == 0;
  }

 private:
  SDL_Window* window_ = nullptr;
  SDL_Renderer* renderer_ = nullptr;
  SDL_Surface* picture_ = nullptr;
};
