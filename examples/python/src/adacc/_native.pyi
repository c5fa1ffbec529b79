# SPDX-License-Identifier: MIT
from typing import Callable, List, Optional, Union

import torch

built_for: str

class Packed: ...

class SavedTensor:
    @property
    def sizes(self) -> List[int]: ...
    @property
    def dtype(self) -> torch.dtype: ...
    @property
    def bytes(self) -> int: ...
    @property
    def savers(self) -> List[str]: ...
    @property
    def producer(self) -> str: ...

class Statistics:
    packed: int
    unpacked: int
    parameters: int
    small: int
    others: int
    shared: int
    storages: int
    encoded: int
    decoded: int
    raw_bytes: int
    encoded_bytes: int

class SavedStore:
    def __init__(self, policy: Union[str, Callable[[SavedTensor], str]], least_bytes: int) -> None: ...
    def pack(self, tensor: torch.Tensor) -> Packed: ...
    def unpack(self, packed: Packed) -> torch.Tensor: ...
    def settle(self) -> None: ...
    def statistics(self) -> Statistics: ...

class Scope:
    def enter(self, budget: Optional[MemoryBudget]) -> None: ...
    def exit(self) -> None: ...

class BudgetShare:
    policy: str
    storages: int
    bytes: int

class BudgetReport:
    plain_bytes: int
    budget_bytes: int
    planned_bytes: int
    measured_bytes: int
    most_bytes: int
    least_bytes: int
    plain_seconds: float
    planned_ratio: float
    measured_seconds: float
    planning_seconds: float
    planned_stall_seconds: float
    written_bytes: int
    read_bytes: int
    stall_seconds: float
    steps: int
    recorded: int
    planned: int
    diverged: int
    corrections: int
    shares: List[BudgetShare]
    note: str

class MemoryBudget:
    def __init__(self, amount: Union[str, int], policy: Union[str, Callable[[SavedTensor], str]],
                 least_bytes: int, recorded_steps: int, store: str) -> None: ...
    @property
    def store(self) -> SavedStore: ...
    def enter(self) -> None: ...
    def leave(self) -> None: ...
    def report(self) -> BudgetReport: ...

def has_planner() -> bool: ...
def within_block() -> bool: ...

class PlannedBlock:
    def enter(self, inputs: List[torch.Tensor]) -> bool: ...
    def exit(self) -> None: ...

class Unplanned:
    def enter(self, is_planned: bool) -> None: ...
    def exit(self) -> None: ...

def install_memory_count() -> None: ...
def live_bytes() -> int: ...
def peak_bytes() -> int: ...
def reset_peak() -> None: ...
