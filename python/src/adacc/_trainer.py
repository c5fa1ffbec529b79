# SPDX-License-Identifier: MIT
"""Saved tensors and budgets for transformers' Trainer. Nothing else of adacc imports transformers."""
from __future__ import annotations

import sys
from typing import Any, Union

from . import budget, saved_tensors

try:
    from transformers import TrainerCallback
except ImportError as why:
    raise ImportError(f"adacc.Callback is for the Trainer of transformers, which does not import ({why}): "
                      f"pip install transformers; saved_tensors and budget need no Trainer") from why


class Callback(TrainerCallback):
    """Enters saved_tensors or a budget for each step of a Trainer.

        trainer = transformers.Trainer(..., callbacks=[adacc.Callback(adacc.budget("40%"))])

    What forward or a refusal raises leaves at once; what backward or a batch raises, where the next
    training begins or leave() is called.
    """

    def __init__(self, around: Union[saved_tensors, budget]) -> None:
        if not isinstance(around, (saved_tensors, budget)):
            raise TypeError(f"adacc.Callback takes a saved_tensors or a budget, such as "
                            f"adacc.Callback(adacc.budget('40%')), not a {type(around).__name__}")
        self.around = around
        self._entered = False
        self._watch: Any = None

    def leave(self) -> None:
        """What is saved from here on is plain again."""
        if self._watch is not None:
            self._watch.remove()
            self._watch = None
        if self._entered:
            self._entered = False
            self.around.__exit__(*sys.exc_info())

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.leave()
        model = kwargs.get("model")
        if model is not None:
            self._watch = model.register_forward_hook(self._on_forward, always_call=True)
        self.around.__enter__()
        self._entered = True

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.leave()

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.leave()

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.leave()

    def _on_forward(self, *of_hook: Any) -> None:
        if sys.exc_info()[0] is not None:  # always called: forward raised
            self.leave()
