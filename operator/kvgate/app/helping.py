"""Help in the shape of kubectl's: what a command does, examples, options, usage; commands by what they are for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from inspect import cleandoc
from typing import Any

import click


class Command(click.Command):
    """One command; its help has the order of kubectl's: what it does, examples, options, usage."""

    def __init__(self, *arguments: Any, examples: Sequence[str] = (), **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.examples = examples

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write_text(cleandoc(self.help or ""))
        if self.examples:
            with formatter.section("Examples"):
                formatter.write("".join(f"  {line}\n" for line in self.examples))
        self.format_options(ctx, formatter)
        words = [word for word in self.collect_usage_pieces(ctx) if word != self.options_metavar]
        with formatter.section("Usage"):
            formatter.write(" ".join(["  " + ctx.command_path, *words, "[flags]"]) + "\n")


class Commands(click.Group):
    """Help in the shape of kubectl's; `sections` is title → names of commands."""

    command_class = Command

    def __init__(self, *arguments: Any, sections: Mapping[str, Sequence[str]], **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.sections = sections

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and self.get_command(ctx, args[0]) is None and not args[0].startswith("-"):
            name = ctx.command_path
            raise click.UsageError(f'unknown command "{args[0]}" for "{name}"; {name} --help lists them')
        return super().resolve_command(ctx, args)

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write(f"{(self.help or '').strip()}\n\n")
        for title, names in self.sections.items():
            formatter.write(f"{title}:\n")
            for name in names:
                formatter.write(f"  {name:<12}{self.commands[name].get_short_help_str(90)}\n")
            formatter.write("\n")
        formatter.write(f"Usage:\n  {ctx.command_path} [command] [flags]\n\n")
        formatter.write(f'Use "{ctx.command_path} [command] --help" for more information about a command.\n')
