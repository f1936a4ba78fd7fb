"""What each architecture of llama.cpp honours of a rotary setting, read in llama.cpp's source.

    python -m tools.observatory.llama_cpp_architectures [--write] [ARCHIVE]

ARCHIVE is a source archive; without it, pip fetches that of the installed xllamacpp.

The package xllamacpp publishes the source that it is built from, llama.cpp's among it, so the table
is of the very llama.cpp that the tests run (tests/gguf/test_architectures.py). Shows where the
source differs from the package's table (ropewalk/gguf/architectures.json), and ends with 1 if it
does. Nothing of the archive is built or run: its C++ is read as text, and what cannot be read is
`unknown` in the table.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from pathlib import Path

from ropewalk.gguf.architectures import TABLE

Row = dict[str, object]
_LLAMA_CPP = re.compile(r"[^/]+/thirdparty/llama\.cpp/src/(?P<name>[\w./-]+\.(?:cpp|h))")
_CALL = re.compile(r"\bggml_rope_(?P<kind>ext|multi)\s*\(")
_FIRST = {"ext": 7, "multi": 8}
"""Where the arguments begin that say how a call turns: the base, the scale, then YaRN's."""
_BETAS = ("LLM_KV_ROPE_SCALING_YARN_BETA_FAST", "LLM_KV_ROPE_SCALING_YARN_BETA_SLOW")


def sources(archive: Path) -> dict[str, str]:
    """llama.cpp's own C++ in a source archive, without comments, by its path below src/."""
    found = {}
    with tarfile.open(archive) as tar:
        for member in tar:
            place = _LLAMA_CPP.fullmatch(member.name)
            content = tar.extractfile(member) if place and member.isfile() else None
            if place and content is not None:
                text = content.read().decode("utf-8", "replace")
                found[place["name"]] = re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.DOTALL)
    return found


def table(files: Mapping[str, str]) -> dict[str, Row]:
    """A row for each architecture."""
    names = dict(
        re.findall(r"\{\s*(LLM_ARCH_\w+),\s*\"([\w.-]+)\"\s*\}", files["llama-arch.cpp"]),
    )
    model = files["llama-model.cpp"]
    classes = dict(
        re.findall(r"case (LLM_ARCH_\w+):\s*(?:\{\s*)?return new (llama_model_\w+)\(", model)
    )
    still = _without_rotation(model)
    rows: dict[str, Row] = {}
    for enum, name in names.items():
        if enum in still:
            rows[name] = {"rotates": False}
        elif enum in classes:
            rows[name] = _row(classes[enum], files)
    return dict(sorted(rows.items()))


def _without_rotation(model: str) -> set[str]:
    """The architectures of which llama.cpp says that they do not rotate."""
    function = _body(model, r"llama_rope_type llama_model_rope_type\(")
    before = function.partition("return LLAMA_ROPE_TYPE_NONE")[0]
    return set(re.findall(r"case (LLM_ARCH_\w+):", before))


def _row(name: str, files: Mapping[str, str]) -> Row:
    header = files["models/models.h"]
    struct = _struct(header, name)
    base = re.match(r"[^{]*public (llama_model_\w+)", struct)
    parents = [name]
    while base and base[1] != "llama_model_base":
        parents.append(base[1])
        base = re.match(r"[^{]*public (llama_model_\w+)", _struct(header, base[1]))
    aliased = re.search(r"using graph = (llama_model_\w+)::graph", struct)
    home = aliased[1] if aliased else name
    tensors = _method(files, parents, "load_arch_tensors")
    hparams = _method(files, parents, "load_arch_hparams")
    graph = _graph(files, [home, *parents])
    calls = [_arguments(graph, match) for match in _CALL.finditer(graph)]
    if not calls or "LLM_TYPE_" in graph:  # no call, or one for some sizes of the model alone
        return {"rotates": "unknown"}
    factors = [_resolved(arguments[3], graph) for _, arguments in calls]
    taken = any(own != "nullptr" for own in factors)
    declared = [
        *(["rope_freqs"] if "LLM_TENSOR_ROPE_FREQS" in tensors else []),
        *(["rope_factors"] if "LLM_TENSOR_ROPE_FACTORS_LONG" in tensors else []),
    ]
    turning = [
        [_resolved(argument, graph) for argument in arguments[_FIRST[kind] :]]
        for kind, arguments in calls
    ]
    windows = "LLM_KV_ATTENTION_SLIDING_WINDOW" in hparams
    return {
        "rotates": True,
        "tensors": declared,
        "factors": ("honoured" if taken else "ignored") if declared else "refused",
        "freq_base": any("freq_base" in own[0] for own in turning),
        "linear": any("freq_scale" in own[1] for own in turning),
        "yarn": any("ext_factor" in own[2] for own in turning),
        "attn_factor": any("attn_factor" in own[3] for own in turning)
        and not _normed_after(graph, hparams),
        "betas": all(key in hparams for key in _BETAS),
        "log_multiplier": "LLM_KV_ROPE_SCALING_YARN_LOG_MUL" in hparams,
        "windows": _windows(hparams, turning) if windows else "none",
    }


def _normed_after(graph: str, hparams: str) -> bool:
    """Whether queries are normalised once they are rotated, which takes any factor from them."""
    for found in re.finditer(r"Qcur = ggml_rope_", graph):
        rest = graph[found.end() :].partition("build_attn(")[0]
        norm = re.search(r"(build_norm\(|ggml_rms_norm\(ctx0, )Qcur\b", rest)
        if norm and ("use_kq_norm" not in rest[: norm.start()] or "use_kq_norm" in hparams):
            return True
    return False


def _windows(hparams: str, turning: list[list[str]]) -> str:
    """By which base the layers with a sliding window turn: `same`, or one of their `own`."""
    apart = any("get_rope_freq_base" in own[0] or "_swa" in own[0] for own in turning)
    plain = {own[1] for own in turning}
    if apart and "rope_freq_base_train_swa = hparams.rope_freq_base_train" not in re.sub(
        r"\s+", " ", hparams
    ):
        return "own"
    if len(plain) > 1 or "rope_freq_scale_train_swa = 1.0" in re.sub(r"\s+", " ", hparams):
        return "same base, unscaled"
    return "same in the file, not by flags" if apart else "same"


def _struct(header: str, name: str) -> str:
    found = re.search(rf"struct {name}\b", header)
    return "" if found is None else header[found.start() :].partition("\n};")[0]


def _method(files: Mapping[str, str], classes: list[str], method: str) -> str:
    """The method of the first class that has one."""
    for name in classes:
        for text in files.values():
            found = _body(text, rf"void {name}::{method}\(")
            if found:
                return found
    return ""


def _graph(files: Mapping[str, str], classes: list[str]) -> str:
    """Where the graph of the first class that has one is built, to the ends of the files."""
    for name in classes:
        found = [
            text[graph.start() :]
            for text in files.values()
            if (graph := re.search(rf"{name}::graph\w*(<\w+>)?::\w+\(", text))
        ]
        if found:
            return "\n".join(found)
    return ""


def _body(text: str, head: str) -> str:
    """A function from its head to the brace that ends it."""
    found = re.search(head, text)
    if found is None:
        return ""
    return text[found.start() :].partition("\n}")[0]


def _arguments(text: str, call: re.Match[str]) -> tuple[str, list[str]]:
    """The arguments of a call, as they are written."""
    depth, at, found, current = 1, call.end(), [], ""
    while depth and at < len(text):
        char = text[at]
        depth += (char in "([{") - (char in ")]}")
        if depth == 0 or (char == "," and depth == 1):
            found.append(" ".join(current.split()))
            current = ""
        else:
            current += char
        at += 1
    return call["kind"], found


def _resolved(argument: str, text: str) -> str:
    """What a name was set to, where the same text sets it; else the argument itself."""
    if not re.fullmatch(r"\w+", argument) or argument in ("nullptr", "NULL"):
        return "nullptr" if argument == "NULL" else argument
    own = re.findall(rf"\b{argument}\s*=\s*([^;=][^;]*);", text)
    parts = [argument, *(" ".join(value.split()) for value in own)]
    return " | ".join(dict.fromkeys(parts)) if set(parts) - {"nullptr"} else "nullptr"


def fetched(folder: Path) -> Path:
    """The source archive of the installed package, by pip."""
    wanted = f"xllamacpp=={version('xllamacpp')}"
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    subprocess.run([*command, "--no-binary", "xllamacpp", "-d", str(folder), wanted], check=True)
    return next(folder.glob("xllamacpp-*.tar.gz"))


def read(archive: Path) -> dict[str, object]:
    """The table with what it was read from."""
    name = archive.name.removesuffix(".tar.gz")
    return {
        "source": name,
        "llama_cpp": f"b{name.rpartition('.')[2]}",
        "sha256": hashlib.sha256(archive.read_bytes()).hexdigest(),
        "architectures": table(sources(archive)),
    }


def _differences(old: object, new: Mapping[str, object]) -> Iterator[str]:
    before = old.get("architectures", {}) if isinstance(old, dict) else {}
    after = new["architectures"]
    assert isinstance(after, dict)
    for name in sorted({*before, *after}):
        if before.get(name) != after.get(name):
            yield f"{name}: {before.get(name)} -> {after.get(name)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("archive", nargs="?", type=Path)
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = read(given.archive or fetched(Path(folder)))
    old = json.loads(TABLE.read_text("utf-8")) if TABLE.exists() else {}
    told = list(_differences(old, found))
    print("\n".join(told) or "no difference")
    if given.write:
        TABLE.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    elif told:
        sys.exit(1)


if __name__ == "__main__":
    main()
