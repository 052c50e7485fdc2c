"""The same quiet as for the pipeline."""

from tests.pipeline.conftest import quiet

__all__ = ["quiet"]
