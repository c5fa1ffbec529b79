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
import sysconfig
import warnings

LEFT_OUT = {"test", "tests", "idle_test", "site-packages", "dist-packages", "__pycache__", "lib2to3"}


def sentence(docstring):
    words = docstring.split("\n\n")[0].split()
    for i, word in enumerate(words):
        if word.endswith(".") and not word.endswith(("e.g.", "i.e.", "etc.", "vs.")):
            return " ".join(words[:i + 1])
    return " ".join(words)


def code(function):
    function.body = function.body[1:] or [ast.Pass()]
    function.decorator_list = []
    return " ".join(ast.unparse(function).split())


def pairs(path):
    with open(path, encoding="utf-8") as file:
        tree = ast.parse(file.read())
    for node in ast.walk(tree):
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        docstring = ast.get_docstring(node)
        if docstring is None or len(node.body) < 2:
            continue
        said = sentence(docstring)
        if len(said.split()) >= 4 and said.isprintable():
            yield said, code(node)


def main():
    warnings.simplefilter("ignore")  # of what the sources are, about which we have no say
    folder = sys.argv[1] if len(sys.argv) > 1 else sysconfig.get_path("stdlib")
    seen = set()
    count = 0
    for parent, folders, files in os.walk(folder):
        folders[:] = sorted(set(folders) - LEFT_OUT)
        for name in sorted(files):
            if not name.endswith(".py"):
                continue
            path = os.path.join(parent, name)
            try:
                found = list(pairs(path))
            except (SyntaxError, ValueError, RecursionError):
                continue
            for said, does in found:
                if not does.isprintable() or said.lower() in seen or does in seen:
                    continue
                seen.update((said.lower(), does))
                print(os.path.relpath(path, folder), said, does, sep="\t")
                count += 1
    if count == 0:
        sys.exit(f"docstrings.py: {folder} has no function with a docstring")


main()
