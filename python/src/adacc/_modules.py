# SPDX-License-Identifier: MIT
"""Which module runs, for what a budget records: torch's operators do not know who calls them."""
from __future__ import annotations

from typing import Any, Dict, List

import torch
from torch.nn.modules import module as _torch_module

from . import _native


class NamesModules:
    """From enter to exit, the native part knows the name of the module that runs on this thread.

    The name is that among the submodules of the outermost module that is called, with its class.
    """

    def __init__(self) -> None:
        self._names: Dict[int, str] = {}
        self._running: List[str] = []
        self._hooks: List[Any] = []

    def enter(self) -> None:
        self._hooks = [_torch_module.register_module_forward_pre_hook(self._begins),
                       _torch_module.register_module_forward_hook(self._ends, always_call=True)]

    def exit(self) -> None:
        for hook in self._hooks:
            hook.remove()
        self._hooks, self._running, self._names = [], [], {}
        _native.set_module("")

    def _begins(self, module: torch.nn.Module, given: Any) -> None:
        if not self._running:
            self._names = {id(each): name for name, each in module.named_modules()}
        name, kind = self._names.get(id(module), ""), type(module).__name__
        self._running.append(f"module {name} ({kind})" if name else f"module {kind}")
        _native.set_module(self._running[-1])

    def _ends(self, module: torch.nn.Module, given: Any, made: Any) -> None:
        if self._running:
            self._running.pop()
        _native.set_module(self._running[-1] if self._running else "")
