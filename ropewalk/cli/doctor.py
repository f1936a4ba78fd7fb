"""`ropewalk doctor`: versions, extras and device."""

from __future__ import annotations

import typer

from ropewalk.api.doctor import Diagnosis, doctor
from ropewalk.cli.declared import Call, command_of
from ropewalk.cli.shared import JsonOption, say, show_result

EXAMPLE = "ropewalk doctor"


@command_of(doctor)
def command(call: Call[Diagnosis], *, as_json: JsonOption = False) -> None:
    """Describe this installation for a report: versions, extras, device, broken packages."""
    found = call()
    show_result(found, _show, as_json=as_json)
    if found.broken:
        raise typer.Exit(1)


def _show(found: Diagnosis) -> None:
    say(f"ropewalk {found.ropewalk}, Python {found.python}, {found.system}")
    say(f"{found.machine}; device: {found.device}\n")
    for extra in dict.fromkeys(each.extra for each in found.packages):
        own = [each for each in found.packages if each.extra == extra]
        told = ", ".join(f"{each.name} {each.version or 'missing'}" for each in own)
        remedy = "" if all(each.version for each in own) else f"; pip install 'ropewalk[{extra}]'"
        say(f"{extra or 'core':8}{told}{remedy}")
    for each in found.broken:
        say(f"{each.name} is broken: {each.fault}")
