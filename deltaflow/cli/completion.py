"""Shell completion: click's own script for each shell."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from deltaflow.cli.output import Output


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Prints the script with which SHELL completes the commands of deltaflow.

    \b
    bash: deltaflow completion bash > ~/.local/share/bash-completion/completions/deltaflow
    zsh:  eval "$(deltaflow completion zsh)"       in ~/.zshrc, after compinit
    fish: deltaflow completion fish > ~/.config/fish/completions/deltaflow.fish
    """
    root = ctx.find_root()
    found = get_completion_class(shell)
    assert found is not None, shell
    script = found(root.command, {}, "deltaflow", "_DELTAFLOW_COMPLETE").source()
    output: Output = ctx.obj
    if output.as_json:
        output.json([{"shell": shell, "script": script}])
    else:
        click.echo(script)
