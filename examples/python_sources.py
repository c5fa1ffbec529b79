# SPDX-License-Identifier: MIT
"""The functions with docstrings of Python sources, for scripts that make data sets of them."""
import ast
import os
import sysconfig
import warnings

LEFT_OUT = {"test", "tests", "idle_test", "site-packages", "dist-packages", "__pycache__", "lib2to3"}


def sentence(docstring):
    """The first sentence."""
    words = docstring.split("\n\n")[0].split()
    for i, word in enumerate(words):
        if word.endswith(".") and not word.endswith(("e.g.", "i.e.", "etc.", "vs.")):
            return " ".join(words[:i + 1])
    return " ".join(words)


def functions(tree):
    """Each function of a syntax tree with the first sentence of its docstring."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            docstring = ast.get_docstring(node)
            if docstring is not None:
                yield node, sentence(docstring)


def found_in_sources(folder, find):
    """(path, what) for all that find(tree) yields, of every .py file below `folder` in the order of files.

    Without a folder: Python's own library. Files that cannot be read are left out.
    """
    warnings.simplefilter("ignore")  # of what the sources are, about which we have no say
    folder = folder or sysconfig.get_path("stdlib")
    for parent, folders, files in os.walk(folder):
        folders[:] = sorted(set(folders) - LEFT_OUT)
        for name in sorted(files):
            if not name.endswith(".py"):
                continue
            path = os.path.join(parent, name)
            try:
                with open(path, encoding="utf-8") as file:
                    found = list(find(ast.parse(file.read())))
            except (SyntaxError, ValueError, RecursionError):
                continue
            for what in found:
                yield os.path.relpath(path, folder), what
