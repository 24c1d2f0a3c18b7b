"""What every command has in common: the store's options, how to print, and the table behind an address."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
import typer
from rich.console import Console
from typer.core import TyperCommand

import hedgerow as hg

__all__ = [
    "AsHex",
    "AsJson",
    "Quiet",
    "RowsCommand",
    "Session",
    "StoreOptions",
    "Traceback",
    "Url",
    "console_of",
    "print_json",
]

_WIDTH_WITHOUT_TERMINAL = 160

Url = Annotated[
    str,
    typer.Argument(
        metavar="URL",
        show_default=False,
        help="Where the table is: a folder, or file://, s3://, gs:// or az:// and a path.",
    ),
]
StoreOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--option",
        metavar="KEY=VALUE",
        show_default=False,
        help="An option of the store, such as endpoint=http://localhost:9000. Repeat it for more. What is "
        "not given comes from the environment.",
    ),
]
AsJson = Annotated[
    bool,
    typer.Option(
        "--json",
        help="Print JSON: binary as hex, times in ISO format, decimals as strings, NaN as null.",
    ),
]
Quiet = Annotated[
    bool,
    typer.Option(
        "--quiet",
        "-q",
        help="No progress and no closing line: only data and errors.",
    ),
]
Traceback = Annotated[
    bool,
    typer.Option("--traceback", help="After an error, show where in the code it happened."),
]
AsHex = Annotated[
    bool,
    typer.Option(
        "--hex",
        help="Binary keys (and values of a table of bytes) are given and shown as hex, not as UTF-8 text.",
    ),
]


class Session(msgspec.Struct, frozen=True):
    """One run of the command line.

    >>> Session({"region": "eu-central-1"}).options["region"]
    'eu-central-1'
    """

    options: dict[str, str] = {}
    json: bool = False
    quiet: bool = False

    @classmethod
    def of(cls, context: typer.Context, options: list[str] | None, as_json: bool, quiet: bool) -> Session:
        """What was given before the command's name and after it, together."""
        before = context.obj if isinstance(context.obj, Session) else cls()
        return cls({**before.options, **_parsed(options)}, before.json or as_json, before.quiet or quiet)

    def open(self, url: str) -> hg.Table:
        """The table at an address."""
        return hg.open(url, options=self.options or None, refresh_interval_s=None)

    def conclude(self, sentence: str, facts: Mapping[str, Any]) -> None:
        """The last line of a command that changed something: a sentence for people, facts for machines."""
        if self.json:
            print_json(msgspec.json.encode(facts) + b"\n")
        elif not self.quiet:
            print(sentence)


class RowsCommand(TyperCommand):
    """A command whose arguments may be negative numbers: ``hedgerow get URL -5`` asks for the key -5."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Numbers are kept from being taken for options; the value of an option is none of our business."""
        takes_value = {name for one in self.params if not getattr(one, "is_flag", True) for name in one.opts}
        marked = [
            _MARK + text if _NEGATIVE.match(text) and before not in takes_value else text
            for before, text in zip(["", *args], args, strict=False)
        ]
        rest = super().parse_args(ctx, marked)
        for name, value in ctx.params.items():
            if isinstance(value, list | tuple):
                ctx.params[name] = [one.removeprefix(_MARK) if isinstance(one, str) else one for one in value]
        return rest


def print_json(data: bytes) -> None:
    """JSON on standard output: UTF-8, whatever the terminal speaks."""
    sys.stdout.flush()
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def console_of(*, stderr: bool = False) -> Console:
    """A console on standard output or error; wide where there is no terminal, so that nothing is cut off."""
    stream = sys.stderr if stderr else sys.stdout
    wide = None if stream.isatty() or "COLUMNS" in os.environ else _WIDTH_WITHOUT_TERMINAL
    return _PipeConsole(file=stream, width=wide, highlight=False, soft_wrap=False)


class _PipeConsole(Console):
    def on_broken_pipe(self) -> None:
        """The reader has gone: ``main`` knows what to do."""
        self.quiet = True
        raise BrokenPipeError


_MARK = "\x1f"  # a character that nobody types
_NEGATIVE = re.compile(r"-[\d.]")


def _parsed(options: list[str] | None) -> dict[str, str]:
    parsed = {}
    for text in options or ():
        name, separator, value = text.partition("=")
        if not separator or not name.strip():
            # The value may be a secret, so it is not repeated here.
            raise hg.InvalidInput("--option: give a name and a value, as in --option region=eu-central-1.")
        parsed[name.strip()] = value
    return parsed
