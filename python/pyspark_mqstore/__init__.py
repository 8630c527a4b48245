"""The discovery of format "mqstore": Spark imports each package named pyspark_* and registers its DefaultSource."""

from __future__ import annotations

import sys

from pyspark.sql.datasource import DataSource

__all__ = ["DefaultSource"]

DefaultSource: type[DataSource]
try:
    from mqstore.spark.source import MessageDataSource as DefaultSource
except Exception as _error:
    # An import error of one pyspark_* package would disable the discovery of all of them, so it is raised at a use of the format.
    _reason = f"{type(_error).__name__}: {_error}"

    class _Unavailable(DataSource):
        @classmethod
        def name(cls) -> str:
            return "mqstore"

        def __init__(self, options: dict[str, str]) -> None:
            raise ImportError(
                f'format "mqstore" is not available in this Python, {sys.executable}: {_reason}. Install mqstore there, '
                "or set PYSPARK_PYTHON to the Python that has it before Spark starts"
            )

    DefaultSource = _Unavailable
