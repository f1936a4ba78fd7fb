"""The command's tiny model, for the functions too."""

from tests.cli.conftest import model

__all__ = ["model"]
