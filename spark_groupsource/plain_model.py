"""Provides a base class for pydantic models that are hidden from pydantic's plugins."""

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
    """Disables pydantic's plugins while a model class is created."""

    def __new__(cls, *args: Any, **more: Any) -> Any:
        """Create a model class without plugins. Other models keep theirs, unless another thread creates one at the same time."""
        earlier = os.environ.get(_DISABLE)
        if earlier == _ALL:
            # The user has set the variable, or another thread has set it and will reset it.
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
    """A pydantic model that is hidden from pydantic's plugins.

    A plugin would get the options, including passwords, and could log them. Searching for plugins would also delay each query run
    by 80 ms, because pydantic opens every distribution, and every jar that Spark has put on Python's path.
    """
