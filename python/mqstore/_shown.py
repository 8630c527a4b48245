"""The base of results that are plain data."""


class Shown:
    """A result that notebooks show as a table. `help` and pickles name its class as one of `mqstore`."""

    def __init_subclass__(cls) -> None:
        cls.__module__ = "mqstore"

    def _repr_html_(self) -> str:
        from mqstore._html import shown

        return shown(self)
