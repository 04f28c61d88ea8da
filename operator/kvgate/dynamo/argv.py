"""What a container's command line says: its Dynamo module, its flags, and whether it can be read at all."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

_SHELLS = frozenset({"sh", "bash", "dash", "ash", "zsh", "ksh"})
_SCRIPT_OPTION = re.compile(r"-[a-z]*c")
_EXPANSION = re.compile(r"\$(\w+|\{[^}]*\}|\([^)]*\)|[@*])")
_SHORTEST_ABBREVIATION = 7


@dataclass(frozen=True)
class Word:
    text: str
    place: str

    @property
    def flag(self) -> str:
        """The flag it names, with dashes as the engines' parsers read it; empty for other words."""
        if not self.text.startswith("--"):
            return self.text if re.fullmatch(r"-[a-z]+", self.text) else ""
        return self.text.partition("=")[0].replace("_", "-")


@dataclass(frozen=True)
class Flag:
    value: str
    places: tuple[str, ...]
    words: tuple[str, ...]


@dataclass(frozen=True)
class CommandLine:
    words: tuple[Word, ...]
    in_shell: bool = False

    @cached_property
    def module(self) -> str:
        """The Dynamo module that runs, such as dynamo.vllm; empty when none is named."""
        for option, word in pairwise(self.words):
            if option.text == "-m" and word.text.startswith("dynamo."):
                return ".".join(word.text.split(".")[:2]).rstrip(";")
        return ""

    @cached_property
    def opaque(self) -> bool:
        """True when flags may come from a launcher, a file or an expansion that the spec does not show."""
        if not self.words:
            return False
        return not self.module or any(self._hides_flags(place) for place in range(len(self.words)))

    def _hides_flags(self, place: int) -> bool:
        if not _EXPANSION.fullmatch(self.words[place].text):
            return False
        before = self.words[place - 1] if place else Word("", "")
        return not (before.flag and "=" not in before.text)

    def flag(self, *names: str) -> Flag | None:
        """The last occurrence of a flag under any of its names, as the engines' parsers take it."""
        for place in range(len(self.words) - 1, -1, -1):
            if self.words[place].flag in names:
                return self._flag_at(place)
        return None

    def gated_flag(self, name: str) -> Flag | None:
        """As `flag`, and also the abbreviations of it that argparse would accept."""
        written = {
            word.flag for word in self.words if len(word.flag) >= _SHORTEST_ABBREVIATION and name.startswith(word.flag)
        }
        return self.flag(name, *written)

    def has(self, *names: str) -> bool:
        return self.flag(*names) is not None

    def value(self, *names: str) -> str:
        found = self.flag(*names)
        return found.value if found else ""

    def assigns(self, env: str) -> bool:
        """True when a shell string sets the variable before it starts the module."""
        return self.in_shell and any(word.text.startswith(f"{env}=") for word in self.words)

    def _flag_at(self, place: int) -> Flag:
        word = self.words[place]
        _, equals, value = word.text.partition("=")
        following = self.words[place + 1] if place + 1 < len(self.words) else None
        if equals or following is None or following.flag:
            return Flag(value, (word.place,), (word.text,))
        return Flag(following.text, (word.place, following.place), (word.text, following.text))


def read_command_line(command: tuple[str, ...], args: tuple[str, ...]) -> CommandLine:
    words = tuple(Word(word, f"command[{place}]") for place, word in enumerate(command)) + tuple(
        Word(word, f"args[{place}]") for place, word in enumerate(args)
    )
    script = _script(words)
    if script is None:
        return CommandLine(words)
    split = tuple(Word(word, f"{script.place} (a shell string)") for word in _split(script.text))
    return CommandLine(split, in_shell=True)


def _script(words: tuple[Word, ...]) -> Word | None:
    if not words or words[0].text.rpartition("/")[2] not in _SHELLS:
        return None
    for option, word in pairwise(words[1:]):
        if _SCRIPT_OPTION.fullmatch(option.text):
            return word
    return None


def _split(script: str) -> tuple[str, ...]:
    try:
        found = shlex.split(script)
    except ValueError:
        found = script.split()
    return tuple(word.rstrip(";") for word in found if word.rstrip(";"))
