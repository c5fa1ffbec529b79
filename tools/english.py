#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Counts the words that make the comments of headers, and the pages of docs/, hard to read.

    python3 tools/english.py                 each folder of include/adacc, their sum, and docs/
    python3 tools/english.py -f FOLDER...    each file of folders of include/adacc (core, codec/quant, ...)
    python3 tools/english.py -l FOLDER...    their lines that have such a word, to go through by hand
    python3 tools/english.py --check         fails if all headers, or all pages, have more of them than MOST says

Columns: words of comments (C++ comments without licence lines; Markdown without code blocks; `quoted code` is left
out of both); "what", "that" and "it"/"its" per 1000 words; the number of sentences that begin with Of, As, What,
Those or The same, and of "likewise". CONTRIBUTING.md says how comments are written.
"""
import argparse
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
INCLUDE = ROOT / "include/adacc"

WORD = re.compile(r"[A-Za-z][A-Za-z'’]*")
# Per 1000 words of all headers, and of all pages.
MOST = {"what": 1.5, "that": 8, "it/its": 10}
COUNTED = {"what": r"\bwhat(ever)?\b", "that": r"\bthat\b", "it/its": r"\b(it|its|itself)\b"}
BEGINNING = re.compile(r"(?:^|(?<=[.!?:] ))(?:Of|As|What|Those|The same)\b")
BEGINNING_OF_COMMENT = re.compile(r"^(?:of|as|what|those|the same)\b", re.IGNORECASE)
LIKEWISE = re.compile(r"\blikewise\b", re.IGNORECASE)
# Strings come first, so that a "//" in one begins no comment.
TOKEN = re.compile(r'R"\(.*?\)"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])\'|/\*.*?\*/|//[^\n]*', re.DOTALL)


def comments_of(text):
    """Pairs of a line number and the text of a comment; comments of adjacent whole lines are one."""
    found = []
    last_line = None  # of the comment before, if it stood alone on its line
    for match in TOKEN.finditer(text):
        comment = match.group()
        if not comment.startswith("/") or "SPDX-License-Identifier" in comment:
            continue
        line = text.count("\n", 0, match.start()) + 1
        alone = not text[text.rfind("\n", 0, match.start()) + 1:match.start()].strip()
        words = re.sub(r"^[ \t]*(?:/\*+|\*/|\*|/{2,}<?!?)|\*/$", "", comment, flags=re.MULTILINE).strip()
        if alone and last_line == line - 1:
            found[-1] = (found[-1][0], found[-1][1] + "\n" + words)
        else:
            found.append((line, words))
        last_line = line + comment.count("\n") if alone else None
    return found


def paragraphs_of(text):
    """Pairs of a line number and a paragraph of a Markdown page, without its blocks of code."""
    found, fenced, begins = [], False, True
    for number, line in enumerate(text.split("\n"), 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
            begins = True
        elif fenced or line.startswith("    ") and begins or not line.strip():
            begins = True
        elif begins or line.lstrip().startswith(("#", "|", "-", "*")):
            found.append((number, line))
            begins = False
        else:
            found[-1] = (found[-1][0], found[-1][1] + "\n" + line)
    return found


def prose(text):
    return re.sub(r"\s+", " ", re.sub(r"`[^`]*`", "`", text)).strip()


class Counts:
    def __init__(self):
        self.words = 0
        self.of = dict.fromkeys([*COUNTED, "begins", "likewise"], 0)

    def add(self, text):
        text = prose(text)
        self.words += len(WORD.findall(text))
        for name, pattern in COUNTED.items():
            self.of[name] += len(re.findall(pattern, text, re.IGNORECASE))
        begins = BEGINNING.findall(text) or BEGINNING_OF_COMMENT.findall(text)
        self.of["begins"] += len(begins)
        self.of["likewise"] += len(LIKEWISE.findall(text))

    def add_file(self, path):
        text = path.read_text()
        for _, part in paragraphs_of(text) if path.suffix == ".md" else comments_of(text):
            self.add(part)

    def rate(self, key):
        return 1000 * self.of[key] / max(self.words, 1)

    def print(self, name):
        rates = "".join(f"{self.rate(key):8.1f}" for key in COUNTED)
        print(f"{name:36}{self.words:8}{rates}{self.of['begins']:8}{self.of['likewise']:9}")


def headers_of(folder):
    return sorted(path for path in folder.rglob("*") if path.suffix in (".hpp", ".cuh", ".h"))


def print_counts(groups):
    print(f"{'':36}{'words':>8}{''.join(f'{name:>8}' for name in COUNTED)}{'begins':>8}{'likewise':>9}")
    total = Counts()
    for name, paths in groups:
        counts = Counts()
        for path in paths:
            counts.add_file(path)
            total.add_file(path)
        counts.print(name)
    total.print("sum")


def print_lines(paths):
    for path in paths:
        for first, part in comments_of(path.read_text()):
            for i, line in enumerate(part.split("\n")):
                counts = Counts()
                counts.add(line)
                if any(counts.of.values()):
                    print(f"{path.relative_to(INCLUDE)}:{first + i}: {line}")


def check():
    """The exit status: 1 if the headers or the pages have too many of a word."""
    status = 0
    for name, paths in (("headers", headers_of(INCLUDE)), ("pages", sorted((ROOT / "docs").glob("*.md")))):
        counts = Counts()
        for path in paths:
            counts.add_file(path)
        for key, most in MOST.items():
            if counts.rate(key) > most:
                print(f"{name}: {counts.rate(key):.1f} of {key} per 1000 words, and {most} are the most; -l FOLDER has the lines")
                status = 1
    return status


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("-f", "--files", action="store_true", help="each file of the folders")
    parser.add_argument("-l", "--lines", action="store_true", help="the lines that have such a word")
    parser.add_argument("--check", action="store_true", help="fail if there are too many")
    parser.add_argument("folders", nargs="*", help="folders of include/adacc")
    options = parser.parse_args()
    if options.check:
        return check()
    folders = [INCLUDE / name for name in options.folders] or sorted(p for p in INCLUDE.iterdir() if p.is_dir())
    for folder in folders:
        if not folder.is_dir():
            sys.exit(f"{folder} is no folder")
    if options.lines:
        print_lines([path for folder in folders for path in headers_of(folder)])
    elif options.files:
        print_counts([(str(path.relative_to(INCLUDE)), [path]) for folder in folders for path in headers_of(folder)])
    else:
        groups = [(str(folder.relative_to(INCLUDE)), headers_of(folder)) for folder in folders]
        if not options.folders:
            groups.append(("(headers of no folder)", sorted(p for p in INCLUDE.iterdir() if p.is_file())))
        print_counts(groups)
        if not options.folders:
            print_counts([(page.name, [page]) for page in sorted((ROOT / "docs").glob("*.md"))])
    return 0


if __name__ == "__main__":
    sys.exit(main())
