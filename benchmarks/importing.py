"""CPU seconds that a process spends importing, module by module.

Python's ``-X importtime`` counts seconds on the clock, which other work on the machine lengthens.
"""

from __future__ import annotations

import importlib
import time
from collections import defaultdict
from collections.abc import Callable, Collection
from types import ModuleType
from typing import Any, Self

_MACHINERY: Any = vars(importlib)["_bootstrap"]


class ImportMeter:
    """While it is entered: CPU seconds of imports, each module without those it imports itself.

    Attributes
    ----------
    seconds : by module, what running it took
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self._inside: list[float] = []
        self._find: Callable[..., ModuleType] | None = None

    def __enter__(self) -> Self:
        # Both the import statement and `import_module` look this function up when they need it.
        find = self._find = _MACHINERY._find_and_load

        def measured(name: str, *rest: Any) -> ModuleType:
            begin = time.process_time()
            self._inside.append(0.0)
            try:
                return find(name, *rest)
            finally:
                spent = time.process_time() - begin
                self.seconds[name] += spent - self._inside.pop()
                if self._inside:
                    self._inside[-1] += spent

        _MACHINERY._find_and_load = measured
        return self

    def __exit__(self, *_: object) -> None:
        _MACHINERY._find_and_load = self._find

    def total(self, without: Collection[str] = ()) -> float:
        """Return the seconds of all modules but some."""
        return sum(spent for name, spent in self.seconds.items() if name not in without)
