"""pydantic's models without its plugins."""

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
        """Make a model. Other models of this process have their plugins, unless another thread makes one in the same ms."""
        before = os.environ.get(_DISABLE)
        if before == _ALL:
            # The user's, or another thread's, which takes it back.
            return super().__new__(cls, *args, **more)
        os.environ[_DISABLE] = _ALL
        try:
            return super().__new__(cls, *args, **more)
        finally:
            if before is None:
                os.environ.pop(_DISABLE, None)
            else:
                os.environ[_DISABLE] = before


class PlainModel(BaseModel, metaclass=_WithoutPlugins):
    """A model that no plugin of pydantic sees.

    A plugin would be given the options, passwords among them, and may log them. And to look for plugins takes 80 ms of each run
    of a query: each distribution is opened, and so are the jars that Spark has on Python's path.
    """
