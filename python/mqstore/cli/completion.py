"""The command `completion`: completion for shells."""

from __future__ import annotations

import click

from mqstore.cli._main import command, commands


@command(
    examples=(
        "completion bash >> ~/.bashrc",
        "completion zsh >> ~/.zshrc",
        "completion fish > ~/.config/fish/completions/mqstore.fish",
    )
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Prints the completion script for a shell."""
    from click.shell_completion import get_completion_class

    found = get_completion_class(shell)
    assert found is not None, shell
    print(found(commands, {}, "mqstore", "_MQSTORE_COMPLETE").source())
