#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Pairs of text from Python sources: what a function's docstring says first, and its code.

    docstrings.py [FOLDER] > pairs.tsv

Reads every .py file below FOLDER, which is Python's own library if none is named. A line is

    file TAB first sentence of the docstring TAB code without docstring and comments, on one line

in the order of files and lines. Functions that say the same in other words, by an override or by
copying, would be right answers counted as wrong: of equal sentences, and of equal code, the first stays.
"""
import ast
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
from python_sources import found_in_sources, functions


def code(function):
    function.body = function.body[1:] or [ast.Pass()]
    function.decorator_list = []
    return " ".join(ast.unparse(function).split())


def pairs(tree):
    for function, said in functions(tree):
        if len(function.body) >= 2 and len(said.split()) >= 4 and said.isprintable():
            yield said, code(function)


def main():
    seen = set()
    for path, (said, does) in found_in_sources(" ".join(sys.argv[1:2]), pairs):
        if not does.isprintable() or said.lower() in seen or does in seen:
            continue
        seen.update((said.lower(), does))
        print(path, said, does, sep="\t")
    if not seen:
        sys.exit("docstrings.py: there is no function with a docstring")


main()
