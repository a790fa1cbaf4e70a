"""The next step of an error as the command that was typed, corrected."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from kmip_data.errors import KmipDataError

#: Options alone, such as ``--set header=yes``, at the end of a step.
_OPTIONS = re.compile(r"(?:^|: )((?:--[a-z-]+(?: (?:'[^']*'|[^\s,;'-][^\s,;']*))?(?: |$))+)$")
_PLACEHOLDER = re.compile(r"\b[A-Z]{3,}\b")  #: such as ``KEY=VALUE``
#: Key of ``--set`` -> the option that is taken for it.
_MEANT = {"model.attention.k": "--k"}
#: Options and keys of a fold, which a rule that draws the split replaces.
_FOLDS = {("--folds", ""), ("--set", "data.split.fold"), ("--set", "fold")}
#: Commands whose line is not repeated with another name: what they remove is gone.
_LOSING = {"remove"}
_WITH_KEYS = {"train", "sweep"}


def complete_step(error: KmipDataError, args: Sequence[str], program: str) -> None:
    """Replace the ``next`` line of ``error`` by a whole command, where one is known.

    A word that was probably meant replaces the word that was typed. Options that the error names
    are added to the line: of two values the last one counts.
    """
    if not args or args[0] in _LOSING:
        return
    if error.correction is not None:
        corrected = _replace_typed_word(args, *error.correction)
        if corrected is not None:
            error.next = shlex.join([program, *corrected])
            return

    step = error.next or ""
    options = _OPTIONS.search(step)
    if options is None or _PLACEHOLDER.search(options[1]):
        return
    if args[0] not in _WITH_KEYS and "--set model." in options[1]:
        return
    # Keys without a dot are parameters of a build, which other commands spell differently.
    if args[0] != "build" and re.search(r"--set [^.=]+=", options[1]):
        return
    line = shlex.join([program, *args])
    if options[1].strip() not in line:
        kept = _drop_replaced_options(args, shlex.split(options[1]))
        line = shlex.join([program, *kept])
        error.next = f"{step[: options.start(1)]}{line} {options[1].strip()}"


def _drop_replaced_options(args: Sequence[str], options: Sequence[str]) -> list[str]:
    """Return the line without the values that ``options`` replace: of ``--set`` the same key alone."""
    replaced = set()
    for option, value in zip(options, [*options[1:], ""], strict=True):
        if option == "--set":
            key = value.partition("=")[0]
            replaced.add((option, key))
            if key in _MEANT:
                replaced.add((_MEANT[key], ""))
        elif option.startswith("--"):
            replaced.add((option, ""))
            if option == "--split-rule":
                replaced |= _FOLDS

    kept: list[str] = []
    position = 0
    while position < len(args):
        option, equals, value = args[position].partition("=")
        words = 1
        if not equals and position + 1 < len(args):
            value = args[position + 1]
            words = 2
        key = value.partition("=")[0] if option == "--set" else ""
        if (option, key) in replaced and value and not value.startswith("--"):
            position += words
            continue
        kept.append(args[position])
        position += 1
    return kept


def _replace_typed_word(args: Sequence[str], typed: str, meant: str) -> list[str] | None:
    """Return the line with another word; None unless the typed one stands in it once."""
    word = re.compile(rf"(?<![\w-]){re.escape(typed)}(?![\w.-])")
    # A dataset without its option may also begin the name of a run.
    is_bare = meant.startswith("--") and args.count(typed) == 1
    if sum(len(word.findall(arg)) for arg in args) != 1 and not is_bare:
        return None
    line = []
    for arg in args:
        # An option may be meant by a word, as --model gcn by gcn.
        if arg == typed and meant.startswith("--"):
            line += shlex.split(meant)
        elif is_bare:
            line.append(arg)
        else:
            line.append(word.sub(lambda _: meant, arg))
    if meant.endswith("="):  # of a key whose value follows a blank
        position = next(number for number, word in enumerate(line) if word.endswith(meant))
        value = "".join(line[position + 1 : position + 2])
        if not value or value.startswith("--") or is_data_name(value, args):
            return None
        line[position : position + 2] = [line[position] + value]
    return line


def is_data_name(word: str, args: Sequence[str]) -> bool:
    """True if a word on the line names a dataset, or a build of the home."""
    from kmip_data.builds.home import Home
    from kmip_data.cli.shared.names import BUILD

    home = None
    if "--home" in args[:-1]:
        home = args[args.index("--home") + 1]
    return word in BUILD.known_names(Home.locate(home))
