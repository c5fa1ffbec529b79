#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Conversations about Python sources: a function is described in a fixed form of JSON.

    functions.py [FOLDER] > conversations.jsonl

Reads every .py file below FOLDER, which is Python's own library if none is named. A line is a conversation

    [{"role": "user", "content": HEADER AND DOCSTRING},
     {"role": "assistant", "content": "{\"function\": NAME, \"arguments\": [...], \"says\": FIRST SENTENCE}"}]

in the order of files and lines. Of equal questions the first stays.
"""
import ast
import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
from python_sources import found_in_sources, functions

ASKS = "Describe this function as JSON.\n"


def arguments(function):
    given = function.args
    names = [a.arg for a in given.posonlyargs + given.args]
    if given.vararg:
        names.append("*" + given.vararg.arg)
    names += [a.arg for a in given.kwonlyargs]
    if given.kwarg:
        names.append("**" + given.kwarg.arg)
    return names


def conversations(tree):
    for function, said in functions(tree):
        if 3 <= len(said.split()) <= 24 and said.isascii() and said.isprintable():
            yield (f'{ASKS}def {function.name}({ast.unparse(function.args)}):\n    """{said}"""',
                   json.dumps({"function": function.name, "arguments": arguments(function), "says": said}))


def main():
    seen = set()
    for _, (question, answer) in found_in_sources(" ".join(sys.argv[1:2]), conversations):
        if question in seen:
            continue
        seen.add(question)
        print(json.dumps([{"role": "user", "content": question}, {"role": "assistant", "content": answer}]))
    if not seen:
        sys.exit("functions.py: there is no function with a docstring")


main()
