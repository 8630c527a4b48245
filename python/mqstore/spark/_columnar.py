"""Adapts functions of Arrow arrays to Spark columns: an Arrow UDF, or a pandas UDF before pyspark 4.1."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pandas as pd
import pyarrow as pa
from pyspark.sql import functions
from pyspark.sql.pandas.types import from_arrow_type

_arrow_udf: Any = getattr(functions, "arrow_udf", None)

#: True from pyspark 4.1 on, which passes Arrow arrays to a function of columns. Earlier versions pass pandas series.
HAS_ARROW_UDF: bool = _arrow_udf is not None

# Nullable integer types. By default pandas converts integers with nulls to floats.
_INTEGERS = {pa.int32(): pd.Int32Dtype(), pa.int64(): pd.Int64Dtype()}


def columnar(
    name: str, answer: Callable[[Sequence[pa.Array]], pa.Array], takes: Sequence[pa.DataType], gives: pa.DataType
) -> Any:
    """Returns a function of Spark columns. Plans show its name; `takes` are the types of its columns."""
    decorate: Any = _arrow_udf or functions.pandas_udf
    function = _of_arrays(answer) if HAS_ARROW_UDF else _of_series(answer, takes, gives)
    function.__name__ = name
    return decorate(function, from_arrow_type(gives))


def _of_arrays(answer: Callable[[Sequence[pa.Array]], pa.Array]) -> Any:
    def function(*columns: pa.Array) -> pa.Array:
        return answer(columns)

    return function


def _of_series(answer: Callable[[Sequence[pa.Array]], pa.Array], takes: Sequence[pa.DataType], gives: pa.DataType) -> Any:
    def array(series: pd.Series, kind: pa.DataType) -> pa.Array:
        if series.dtype.kind == "M":
            raise TypeError("pyspark 4.0 passes a timestamp without its time zone: pass unix_micros(time)")
        return pa.Array.from_pandas(series, type=kind)

    def answered(columns: Sequence[pd.Series]) -> pa.Array:
        return answer([array(series, kind) for series, kind in zip(columns, takes, strict=False)])

    def function(*columns: pd.Series) -> pd.Series:
        return answered(columns).to_pandas(types_mapper=_INTEGERS.get)

    def function_of_rows(*columns: pd.Series) -> pd.DataFrame:
        return pa.RecordBatch.from_struct_array(answered(columns)).to_pandas(types_mapper=_INTEGERS.get)

    return function_of_rows if pa.types.is_struct(gives) else function
