#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes what tokenizers have to know of Unicode: BERT's uncased one, with "letters" byte-pair encoding, or with
"graphemes" SentencePiece's normalizers.

    python3 support/wordpiece/make_unicode.py > support/wordpiece/unicode_table.hpp
    python3 support/wordpiece/make_unicode.py letters > include/adacc/io/tokenizer/unicode_table.hpp
    python3 support/wordpiece/make_unicode.py graphemes > include/adacc/io/tokenizer/grapheme_table.hpp

From the tables of Python's unicodedata, or those of PyPI's unicodedata2 if it is there, whose version the file names.
Graphemes need PyPI's regex, and are those of characters that this version has.
"""
import sys
import unicodedata

LAST = 0x110000
HANGUL = range(0xAC00, 0xD7A4)  # decomposed by arithmetic


def fold(code):
    """Lower case, decomposed, without marks: a list of code points."""
    text = unicodedata.normalize("NFD", chr(code).lower())
    return [ord(c) for c in text if unicodedata.category(c) != "Mn"]


def ranges(member):
    found = []
    for code in range(LAST):
        if not member(code):
            continue
        if found and found[-1][1] == code - 1:
            found[-1][1] = code
        else:
            found.append([code, code])
    return found


def singles():
    """What becomes one other code point, by whether its case alone is changed."""
    by_case, others = {}, {}
    for code in range(LAST):
        if code in HANGUL or 0xD800 <= code < 0xE000:
            continue
        to = fold(code)
        if len(to) == 1 and to[0] != code:
            (by_case if chr(code).lower() == chr(to[0]) else others)[code] = to[0]
    return by_case, others


def runs():
    """[first, last, step, delta]: code points from first to last, in steps, become + delta."""
    deltas = {code: to - code for code, to in singles()[0].items()}
    found, used = [], set()
    for code, delta in deltas.items():
        if code in used:
            continue
        best = [code, code, 1]
        for step in (1, 2):
            last = code
            while deltas.get(last + step) == delta and last + step not in used:
                last += step
            if last - code > best[1] - best[0]:
                best = [code, last, step]
        used.update(range(best[0], best[1] + 1, best[2]))
        found.append([*best, delta])
    return found


def groups():
    """Strings whose first letter is what the others become."""
    sources = {}
    for code, to in singles()[1].items():
        sources.setdefault(to, []).append(code)
    return ["".join(map(chr, [to, *sources[to]])) for to in sorted(sources)]


def several():
    """Strings whose first letter becomes the others."""
    return ["".join(map(chr, [code, *fold(code)])) for code in range(LAST)
            if code not in HANGUL and not 0xD800 <= code < 0xE000 and len(fold(code)) > 1]


def table(kind, name, entries):
    print(f"inline constexpr {kind} {name}[] = {{")
    line = "   "
    for entry in entries:
        if isinstance(entry, str):
            text = " u8\"" + entry + "\","
        else:
            numbers = (str(n) if n < 10 else f"0x{n:X}" for n in entry)
            text = " {" + ", ".join(numbers) + "},"
        if len(line + text) > 100:
            print(line)
            line = "   "
        line += text
    print(line.rstrip(",") + "};\n")


def of(*wanted):
    return lambda code: not 0xD800 <= code < 0xE000 and \
        unicodedata.category(chr(code)).startswith(wanted)


def decompositions():
    """[code, first, second] for letters that are two, or, with second 0, another one; by whether they come back."""
    back, gone = [], []
    for code in range(LAST):
        text = unicodedata.decomposition(chr(code))
        if not text or text[0] == "<":
            continue
        parts = [int(part, 16) for part in text.split()]
        composed = unicodedata.normalize("NFC", "".join(map(chr, parts)))
        (back if composed == chr(code) else gone).append([code, *parts, 0][:3])
    return back, gone


def classes():
    found = []
    for code in range(LAST):
        value = unicodedata.combining(chr(code))
        if value == 0:
            continue
        if found and found[-1][1] == code - 1 and found[-1][2] == value:
            found[-1][1] = code
        else:
            found.append([code, code, value])
    return found


def letters():
    print(f"""// SPDX-License-Identifier: MIT
/// Unicode {unicodedata.unidata_version}: letters, numbers, and what canonical composition takes. Made by
/// support/wordpiece/make_unicode.py.
#pragma once

#include <cstdint>

namespace adacc {{ inline namespace v0_1 {{ namespace unicode {{

struct Range {{
  std::uint32_t first, last;
}};
struct Class {{
  std::uint32_t first, last, combining;
}};
struct Decomposition {{
  std::uint32_t code, first, second;  // second is 0 where there is none
}};

// clang-format off""")
    table("Range", "letters", ranges(of("L")))
    table("Range", "numbers", ranges(of("N")))
    table("Class", "classes", classes())
    back, gone = decompositions()
    print("// These are composed again; Hangul syllables are by arithmetic.")
    table("Decomposition", "composed", back)
    print("// These are not.")
    table("Decomposition", "replaced", gone)
    print("// clang-format on\n\n}}}  // namespace adacc::v0_1::unicode")


def graphemes():
    import regex

    def breaks_as(*names):
        of_class = regex.compile("|".join(rf"\p{{Grapheme_Cluster_Break={name}}}" for name in names))
        controls = "Control" in names
        return lambda code: not 0xD800 <= code < 0xE000 and of_class.match(chr(code)) is not None and \
            (controls or unicodedata.category(chr(code)) != "Cn")
    print(f"""// SPDX-License-Identifier: MIT
/// Unicode {unicodedata.unidata_version}: where characters end that are several code points. Made by
/// support/wordpiece/make_unicode.py.
#pragma once

#include "unicode_table.hpp"

namespace adacc {{ inline namespace v0_1 {{ namespace unicode {{

// clang-format off""")
    print("// Belong to the code point before them.")
    table("Range", "joined", ranges(breaks_as("Extend", "ZWJ", "SpacingMark")))
    print("// Belong to the one behind them.")
    table("Range", "prepended", ranges(breaks_as("Prepend")))
    print("// Belong to none.")
    table("Range", "controls", ranges(breaks_as("Control", "CR", "LF")))
    print("// clang-format on\n\n}}}  // namespace adacc::v0_1::unicode")


def main():
    print(f"""// SPDX-License-Identifier: MIT
/// Unicode {unicodedata.unidata_version}, as much of it as BERT's uncased tokenizer looks at. Made by make_unicode.py.
#pragma once

#include <cstdint>

namespace support::unicode {{

struct Range {{
  std::uint32_t first, last;
}};
struct Run {{
  std::uint32_t first, last, step;
  std::int32_t delta;
}};

// clang-format off""")
    print("// Of these, every step-th has itself + delta in lower case.")
    table("Run", "cases", runs())
    print("// Letters that become the first one of their string: in lower case, without marks.")
    table("const char8_t* const", "without_marks", groups())
    print("// The first letter of a string becomes the others.")
    table("const char8_t* const", "several", several())
    table("Range", "marks", ranges(of("Mn")))
    table("Range", "punctuation", ranges(of("P")))
    table("Range", "controls", ranges(of("Cc", "Cf", "Co")))
    table("Range", "spaces", ranges(of("Z")))  # separators of lines and paragraphs, too
    print("// clang-format on\n\n}  // namespace support::unicode")


if __name__ == "__main__":
    sys.stdout.reconfigure(encoding="utf-8")
    if sys.argv[1:] in (["letters"], ["graphemes"]):
        try:
            import unicodedata2 as unicodedata
        except ImportError:
            pass
        letters() if sys.argv[1] == "letters" else graphemes()
    else:
        main()
