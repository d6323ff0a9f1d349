"""The command group and the one error boundary. Imports nothing heavy: a command's module is loaded when it is run."""

from __future__ import annotations

import contextlib
import difflib
import errno
import importlib
import json
import os
import signal
import sys
import tempfile
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

import click

from trtspec import __version__
from trtspec.cli import streams
from trtspec.errors import InternalError, TrtspecError, UserError

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
INTERRUPTED = 130
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.ENOMEM, errno.EMFILE, errno.ENFILE)
_OPTIONAL = ("torch", "numpy", "tokenizers", "jinja2", "huggingface_hub", "tritonclient", "google", "grpc", "gevent")


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

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        near = [] if not args or args[0] in COMMANDS else difflib.get_close_matches(args[0], COMMANDS, 1)
        if near:
            ctx.fail(f"No such command '{args[0]}'. Did you mean '{near[0]}'?")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="trtspec")
def group() -> None:
    """One YAML file in, a lossless speculative-decoding deployment out, counted per route."""


def main() -> None:
    streams.settle()
    signal.signal(signal.SIGTERM, _interrupt)
    code = run(sys.argv[1:])
    if code == INTERRUPTED:
        streams.leave(code)
    sys.exit(code)


def run(argv: Sequence[str], commands: click.Group = group) -> int:
    """The exit code: 0 good, 1 the user's mistake, 2 usage of flags, 3 our bug, 130 interrupted."""
    as_json = "--json" in argv[: argv.index("--")] if "--" in argv else "--json" in argv
    try:
        code = commands.main(list(argv), prog_name="trtspec", standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except BrokenPipeError:  # whoever read our output closed the pipe: nothing is said
        streams.drop_output()
        return 1
    except (click.Abort, KeyboardInterrupt):
        return _interrupted(as_json)
    except click.UsageError as error:
        return _usage(error, as_json)
    except click.ClickException as error:
        return _tell(UserError(error.format_message()), as_json)
    except TrtspecError as error:
        return _tell(error, as_json)
    except ModuleNotFoundError as error:
        return _tell(_not_installed(error), as_json)
    except OSError as error:
        return _tell(_of_the_system(error), as_json)
    except Exception as error:  # the outermost boundary: whatever else comes is our bug, and its log is named
        return _tell(_our_bug(error), as_json)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _interrupted(as_json: bool) -> int:
    if as_json:
        _print_json(TrtspecError("interrupted", code="interrupted"))
    streams.tell("interrupted")
    return INTERRUPTED


def _usage(error: click.UsageError, as_json: bool) -> int:
    if as_json:
        hint = f"see `{error.ctx.command_path} --help`" if error.ctx else None
        _print_json(TrtspecError(error.format_message(), code="usage", hint=hint))
    with contextlib.suppress(OSError):  # stderr is closed
        error.show()
    return 2


def _tell(error: TrtspecError, as_json: bool) -> int:
    if as_json:
        _print_json(error)
    streams.tell(message_of(error))
    return error.exit_code


def _print_json(error: TrtspecError) -> None:
    streams.print_last(json.dumps({"error": error.to_dict()}))


def _of_the_system(error: OSError) -> TrtspecError:
    """What the system refuses of the user's files, of stdout, or for want of room; anything else is our bug."""
    reason = error.strerror or str(error)
    closed = error.errno == errno.EBADF and error.filename is None
    fault = reason if closed else streams.output_fault()
    if fault is not None:
        streams.drop_output()
        return UserError(f"standard output cannot be written: {fault}", code="output")
    name = error.filename
    if name is not None and not isinstance(name, int) and not _is_ours(Path(os.fsdecode(name))):
        shown = os.fsdecode(name)
        return UserError(f"{shown}: {reason}", code="file", where=shown, hint="name another, or mend this one")
    if error.errno in _NO_ROOM:
        return UserError(f"the system refuses: {reason}", code="no_room", hint="free some, and try again")
    return _our_bug(error)


def _is_ours(path: Path) -> bool:
    return path.is_absolute() and path.is_relative_to(Path(__file__).parent.parent)


def message_of(error: TrtspecError) -> str:
    """What, where, what to do."""
    place = [error.where] if error.where and error.where not in error.message else []
    if error.line is not None:
        place.append(f"line {error.line}, column {error.column}")
    text = "error: " + "".join(f"{part}: " for part in place) + error.message
    return text if error.hint is None else f"{text}\n  {error.hint}"


def _not_installed(error: ModuleNotFoundError) -> TrtspecError:
    package = (error.name or "").partition(".")[0]
    if package not in _OPTIONAL:
        return _our_bug(error)
    return UserError(
        f"{package} is not installed, and this command needs it",
        code="not_installed",
        where=package,
        hint="pip install 'trtspec[cpu]'",
    )


def _our_bug(error: Exception) -> TrtspecError:
    with tempfile.NamedTemporaryFile("w", prefix="trtspec-", suffix=".log", delete=False) as log:
        log.write(f"trtspec {__version__}, Python {sys.version}\n{sys.argv}\n\n")
        traceback.print_exception(error, file=log)
    summary = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return InternalError(
        f"this is a bug in trtspec ({summary})", where=log.name, hint="please report it with the log file named here"
    )
