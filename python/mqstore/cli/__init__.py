"""The command line, `mqstore COMMAND STORE` or `python -m mqstore`. It needs the extra `cli`.

Each command is in its own file, or in that of its group, and calls the Python API. Commands share the files that begin with `_`.
Only the file of the command that runs is imported.
"""

from __future__ import annotations

import gc
import sys

#: The commands in the order of the help, each with its module and function.
COMMANDS = {
    "info": "info:info",
    "topics": "topics:topics",
    "queues": "topics:queues",
    "find": "find:find",
    "trace": "trace:trace",
    "cat": "cat:cat",
    "get": "get:get",
    "dump": "dump:dump",
    "tail": "tail:tail",
    "du": "du:du",
    "lag": "lag:lag",
    "groups": "groups:groups",
    "consume": "groups:consume",
    "segments": "files:segments",
    "index": "files:index",
    "delayed": "delayed:delayed",
    "transactions": "transactions:transactions",
    "dead": "dead:dead",
    "resend": "groups:resend",
    "handover": "handover:handover",
    "export": "transfer:export",
    "import": "transfer:import_from",
    "copy": "transfer:copy",
    "diff": "diff:diff",
    "manifest": "manifest:manifest",
    "doctor": "doctor:doctor",
    "verify": "verify:verify",
    "repair": "repair:repair",
    "rebuild": "repair:rebuild",
    "trim": "trim:trim",
    "replicate": "replicate:replicate",
    "tap": "replicate:tap",
    "report": "report:report",
    "demo": "demo:demo",
    "completion": "completion:completion",
}


def main() -> None:
    """Runs the command of `sys.argv`, and ends the process with its exit code."""
    # Objects of imports live until the exit: the garbage collector need not examine them again and again.
    gc.disable()
    try:
        from mqstore.cli._main import run

        gc.freeze()
        gc.enable()
        run()
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in ("click", "rich"):
            raise
        print(f"mqstore: the command line needs {package}: run pip install '.[cli]' in a checkout of mqstore", file=sys.stderr)
        raise SystemExit(2) from None
