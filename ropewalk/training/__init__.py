"""Parts for `transformers.Trainer`, each of use on its own: batches of windows, a callback that
holds the model to its plan, and a trainer that shards windows and weights over ranks.

    from ropewalk.training import RopewalkCallback, WindowCollator

examples/train.py has them in one script. Parts that need torch are imported when they are used,
since settings and previews do without it.
"""

from importlib import import_module
from typing import Any

from ropewalk.data.store import TokenStore
from ropewalk.data.windows import SpecialTokens, Windows, WindowSettings, WindowStream
from ropewalk.extras import required_by

__all__ = ["SpecialTokens", "TokenStore", "WindowSettings", "WindowStream", "Windows"]
_WITH_TORCH = {
    "RopewalkCallback": "callback",
    "RopewalkTrainer": "trainer",
    "WindowCollator": "collator",
}


def __getattr__(name: str) -> Any:
    if name not in _WITH_TORCH:
        raise AttributeError(f"module 'ropewalk.training' has no attribute {name!r}")
    with required_by(f"ropewalk.training.{name}"):
        return getattr(import_module(f"ropewalk.training.{_WITH_TORCH[name]}"), name)
