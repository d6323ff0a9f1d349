"""The command group and the one error boundary. Imports nothing heavy: a command's module is loaded when it is run."""

from __future__ import annotations

import importlib

import click

from trtspec import __version__

# verb -> (module under trtspec.cli that holds a click command named `command`, one line of help)
COMMANDS: dict[str, tuple[str, str]] = {
    "init": ("init", "Print or write a commented spec."),
    "schema": ("schema", "Print the JSON Schema of the spec, for editors."),
    "check": ("check", "Everything that can be known before work."),
    "plan": ("plan", "The ordered steps of a build, with exact argv; runs nothing."),
    "build": ("build", "Do the plan, then write the Triton model repository."),
    "serve": ("serve", "Launch tritonserver, wait until ready, supervise."),
    "stop": ("stop", "Stop a server and everything it started."),
    "generate": ("generate", "Send one request to a running server, streamed."),
    "run": ("run", "Answer a JSONL file of requests in this process."),
    "status": ("status", "What a running server says of itself."),
    "doctor": ("doctor", "What this machine has and lacks."),
}


class LazyGroup(click.Group):
    """Loads a command's module only when that command is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"trtspec.cli.{COMMANDS[cmd_name][0]}")
        command: click.Command = module.command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="trtspec")
def group() -> None:
    """One YAML file in, a measured and lossless speculative-decoding deployment out."""


def main() -> None:
    group()
