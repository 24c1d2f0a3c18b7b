"""The command line: its commands, and what becomes of their errors.

An error is one line on standard error and an exit code; nobody should have to read a traceback to learn that
a bucket does not exist. ``EXIT_CODES`` is the whole table.
"""

from __future__ import annotations

import io
import os
import sys
import traceback as tracebacks
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

import hedgerow as hg
from hedgerow.cli import demo as demonstration
from hedgerow.cli.create import create
from hedgerow.cli.load import load
from hedgerow.cli.read import get, inspect, scan
from hedgerow.cli.session import AsJson, Quiet, RowsCommand, Session, StoreOptions, Traceback
from hedgerow.cli.write import delete, put

__all__ = ["EXIT_CODES", "app", "main"]

EXIT_CODES: tuple[tuple[type[hg.HedgerowError], int], ...] = (
    (hg.InvalidInput, 2),
    (hg.TableNotFound, 3),
    (hg.TableExists, 3),
    (hg.Unauthorized, 4),
    (hg.StoreUnavailable, 4),
    (hg.UnsafeStore, 4),
    (hg.Fenced, 5),
    (hg.Corrupt, 6),
    (hg.UnsupportedFormat, 6),
)
_OTHER_ERROR = 7
_INTERRUPTED = 130
_LINE_CHARACTERS_MAX = 1_000


def main() -> None:
    """The entry point of ``hedgerow``."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a name that the terminal cannot show is no error
    app(prog_name="hedgerow")


class Commands(TyperGroup):
    """The commands, each of whose errors ends as one line and one exit code."""

    def invoke(self, ctx: Any) -> Any:
        """Run a command; that nobody reads its output any more is not an error of it."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise typer.Exit(_reader_gone()) from None

    def main(self, args: Any = None, *rest: Any, **extra: Any) -> Any:
        """Run a command, and leave with its exit code."""
        arguments = list(sys.argv[1:] if args is None else args)
        try:
            code = super().main(arguments, *rest, **{**extra, "standalone_mode": False})
            sys.stdout.flush()
        except (KeyboardInterrupt, typer.Abort):
            code = _INTERRUPTED
        except BrokenPipeError:
            code = _reader_gone()
        except Exception as error:
            if "--traceback" in arguments:
                tracebacks.print_exception(error)
            line, code = _explained(error)
            print(f"hedgerow: {line}", file=sys.stderr)
        sys.exit(code if isinstance(code, int) else 0)


app = typer.Typer(
    cls=Commands,
    name="hedgerow",
    add_completion=False,
    no_args_is_help=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["--help", "-h"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"hedgerow {hg.__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def everywhere(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and leave.")
    ] = False,
    options: StoreOptions = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
    traceback: Traceback = False,
) -> None:
    """Fenced, keyed tables on object storage.

    \b
    Examples:
      hedgerow demo
      hedgerow create ./orders --column order_id:int64 --column status:string --key order_id
      hedgerow put ./orders '{"order_id": 17, "status": "paid"}'
      hedgerow get ./orders 17
      hedgerow --option endpoint=http://localhost:9000 scan s3://shop/orders --limit 10

    \b
    Exit codes:
        0  done
        1  a key was not found, or the demo's check failed
        2  the command, a file or a value is not usable
        3  there is no such table, or there is one already
        4  the store refused, or did not answer
        5  fenced: another writer owns the partition now
        6  an object is damaged, or of a newer format
        7  another error
      130  interrupted
    """
    context.obj = Session.of(context, options, as_json, quiet)
    if context.invoked_subcommand is None:
        help_text = context.get_help()
        if help_text:
            print(help_text)


app.command("create")(create)
app.command("put", cls=RowsCommand)(put)
app.command("delete", cls=RowsCommand)(delete)
app.command("get", cls=RowsCommand)(get)
app.command("scan", cls=RowsCommand)(scan)
app.command("load")(load)
app.command("inspect")(inspect)


@app.command("demo")
def demo(context: typer.Context, as_json: AsJson = False, quiet: Quiet = False, traceback: Traceback = False) -> None:
    """See it work: two writers, the fence, and what was refused.

    In a temporary folder, one writer is replaced by another while some of its rows are not stored yet. What
    can be read afterwards is compared with a plain dictionary; the exit code is 1 where they differ. It takes
    a second or two.

    \b
    Example:
      hedgerow demo
    """
    session = Session.of(context, None, as_json, quiet)
    raise typer.Exit(demonstration.run(as_json=session.json, quiet=session.quiet))


def _explained(error: Exception) -> tuple[str, int]:
    """One line, and an exit code."""
    usage = getattr(error, "format_message", None)
    if usage is not None:
        context = getattr(error, "ctx", None)
        hint = f" Try '{context.command_path} --help'." if context is not None else ""
        sentence = usage().rstrip(". ")
        return _one_line(f"{sentence}{'' if sentence.endswith('?') else '.'}{hint}"), 2
    if isinstance(error, hg.HedgerowError):
        code = next((code for kind, code in EXIT_CODES if isinstance(error, kind)), _OTHER_ERROR)
        return _one_line(str(error) or type(error).__name__), code
    return _one_line(f"unexpected {type(error).__name__}: {error} (--traceback shows where)"), _OTHER_ERROR


def _one_line(text: str) -> str:
    line = "".join(one if one.isprintable() else "?" for one in " ".join(text.split()))
    return line if len(line) <= _LINE_CHARACTERS_MAX else line[: _LINE_CHARACTERS_MAX - 3] + "..."


def _reader_gone() -> int:
    """The next program in the pipe has seen enough: what is left goes nowhere, and that is no error."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, sys.stdout.fileno())
    except (OSError, ValueError):
        pass
    finally:
        os.close(nowhere)
    return 0
