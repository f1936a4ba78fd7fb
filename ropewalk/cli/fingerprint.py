"""`ropewalk fingerprint`: how a planned model answers, and whether a server answers so."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from ropewalk.api.fingerprint import TIMEOUT, as_fingerprint, check_server, fingerprint
from ropewalk.cli.declared import Call, command_of
from ropewalk.cli.shared import (
    JsonOption,
    OverwriteOption,
    check_outputs,
    show_result,
    show_written,
    written,
)
from ropewalk.errors import InputError
from ropewalk.evaluation.served.fingerprint import Fingerprint, Verdict
from ropewalk.gguf.header import is_gguf
from ropewalk.outputs import STANDARD_OUTPUT, write_atomically
from ropewalk.torchrun import check_alone, first

NOT_SAME = {"same": 0, "deviates": 1, "unknown": 3}
"""The exit status by the result."""


@command_of(fingerprint, check_server)
def command(
    call: Call[Fingerprint],
    check: Call[Verdict],
    *,
    output: Annotated[Path | None, written("the fingerprint here")] = None,
    overwrite: OverwriteOption = False,
    as_json: JsonOption = False,
) -> None:
    server = check.given.get("server")
    if output is None and server is None:
        raise InputError("give -o FILE to keep the fingerprint, or --server URL to compare with it")
    if output == STANDARD_OUTPUT:
        raise InputError("output = '-': a fingerprint is not printed; give the name of a file")
    if server is not None:
        check_alone("fingerprint --server")
    model = Path(call.given["model"])
    file = model if model.is_file() and not is_gguf(model) else None
    if file is not None and ({"plan", "length"} & set(call.given) or output is not None):
        as_fingerprint(file)
        raise InputError(
            f"{file}: is a fingerprint, which holds its plan; give only --server URL with it"
        )
    check_outputs(output=output, sources=(model,) if model.is_dir() else (), overwrite=overwrite)
    if server is not None and not model.is_file():  # the fingerprint takes minutes
        from ropewalk.evaluation.served.client import Client
        from ropewalk.evaluation.served.server import discover

        discover(
            Client.of(server, check.given.get("timeout", TIMEOUT)), check.given.get("model_name")
        )
    wanted = file or call()
    if not first():
        return
    if output is not None and not isinstance(wanted, Path):
        write_atomically(output, wanted.dumps())
    if server is None:
        assert not isinstance(wanted, Path)
        show_result(wanted, as_json=as_json)
        show_written(output, as_json=as_json)
        return
    tokenizer = {"tokenizer": model} if model.is_dir() else {}
    verdict = replace(check, given={**tokenizer, **check.given})(fingerprint=wanted)
    show_written(output, as_json=as_json)
    show_result(verdict, as_json=as_json)
    if NOT_SAME[verdict.status]:
        raise typer.Exit(NOT_SAME[verdict.status])
