"""A base class for pydantic models that no plugin of pydantic sees."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

if TYPE_CHECKING:
    from pydantic._internal._model_construction import ModelMetaclass
else:
    ModelMetaclass = type(BaseModel)

_DISABLE, _ALL = "PYDANTIC_DISABLE_PLUGINS", "__all__"


class _WithoutPlugins(ModelMetaclass):
    def __new__(cls, *args: Any, **more: Any) -> Any:
        """Make a model. Other models of the process keep their plugins, unless another thread makes one in the same ms."""
        earlier = os.environ.get(_DISABLE)
        if earlier == _ALL:
            # The user has set it, or another thread, which resets it.
            return super().__new__(cls, *args, **more)
        os.environ[_DISABLE] = _ALL
        try:
            return super().__new__(cls, *args, **more)
        finally:
            if earlier is None:
                os.environ.pop(_DISABLE, None)
            else:
                os.environ[_DISABLE] = earlier


class PlainModel(BaseModel, metaclass=_WithoutPlugins):
    """A model that no plugin of pydantic sees.

    A plugin would get the options, including passwords, and could log them. Looking for plugins also takes 80 ms of each run of a
    query, because every distribution is opened, and every jar that Spark has on Python's path.
    """
