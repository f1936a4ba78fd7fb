"""Examines a model on disk: its real behaviour in each runtime, and the traps that it is in.

Its files are checked first: whether they are whole and belong together (files/). Then a folder is
read by the rules of vLLM and SGLang, and measured in transformers: its rotary module is built and
asked, and where weights are there the model is run, at once and through its cache. A GGUF file is
read by llama.cpp's rules, and run where llama.cpp is here. Files and rules need numpy alone; what
is left out where transformers or llama.cpp is not installed is said, and is not established.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from ropewalk.audit import stock_trial
from ropewalk.audit.files import gguf as gguf_file
from ropewalk.audit.files.check import Check
from ropewalk.audit.files.content import of_file, of_folder
from ropewalk.audit.files.tokenizer import tokenizer
from ropewalk.audit.files.weights import weights
from ropewalk.audit.gguf_trial import compared, trial
from ropewalk.audit.result import Audit
from ropewalk.audit.stock_trial import Trial, differs
from ropewalk.context_plan import (
    APPROXIMATES,
    EDITED,
    EDITED_SINCE,
    FULL_ATTENTION,
    PLAN,
    ContextPlan,
)
from ropewalk.errors import (
    InputError,
    InvalidValue,
    MissingExtra,
    RopewalkError,
    UnknownName,
    Unsupported,
)
from ropewalk.exporting.manifest import MANIFEST, Manifest
from ropewalk.extras import required_by
from ropewalk.gguf import carried, llama_cpp_run
from ropewalk.gguf.parts import read_parts, whole
from ropewalk.gguf.rotation import geometry_of
from ropewalk.lengths import MAX_LENGTH
from ropewalk.models.config import (
    KNOWN_KEYS,
    Config,
    ConfigReader,
    load_config,
    present_plan,
)
from ropewalk.models.source import resolve
from ropewalk.progress import Progress, Status, share, silent
from ropewalk.runtimes import every, loading, named, traps
from ropewalk.runtimes.features import loadable_by
from ropewalk.runtimes.finding import Finding, Subject
from ropewalk.runtimes.judgement import subject_of, without_chunks
from ropewalk.runtimes.reading import (
    LLAMA_CPP,
    MEASURED,
    NOT_MEASURED,
    RUN,
    STOCK,
    RotaryReading,
    check_counts,
)
from ropewalk.runtimes.traps.gguf import findings
from ropewalk.schedule import RotaryGeometry
from ropewalk.untrusted import counted

USUAL = (STOCK, "vllm", "sglang")
"""The runtimes that load a folder as exports write it; the others need another form."""


def audit(
    model: str | Path,
    *,
    plan: ContextPlan | None = None,
    length: int | None = None,
    runtimes: Sequence[str] = (),
    run: bool = True,
    progress: Progress = silent,
) -> Audit:
    """Examine a folder or a file against a plan, or against its own settings."""
    if plan is not None and length is not None:
        raise InputError("a plan contains a length; give a plan or a length, not both")
    releases = {name: release for name, _, release in (each.partition("==") for each in runtimes)}
    for name, release in releases.items():
        if name not in every() or (release and not named(name).release()):
            raise UnknownName("runtime", f"{name}=={release}" if release else name, tuple(every()))
    runtimes = tuple(releases)
    source = resolve(model)
    if source.path is None:
        raise InputError(
            f"{source.name}: is known only by name, and verify examines files; give a "
            "model's folder, a config.json or a GGUF file"
        )
    if source.kind == "GGUF file":
        able = loading(source.kind)
        if set(runtimes) - set(able):
            raise InputError(
                f"{source.name}: is a GGUF file, which only {' and '.join(able)} load here; "
                "omit --runtime, or give the folder that it was converted from"
            )
        return _of_file(source.path, plan, length, runtimes or (LLAMA_CPP,), run, progress)
    return _of_folder(source.path, plan, length, releases, run, progress)


def _of_folder(
    path: Path,
    plan: ContextPlan | None,
    length: int | None,
    releases: Mapping[str, str],
    run: bool,
    progress: Progress,
) -> Audit:
    progress(Status("verify", 0.0, "reading"))
    stated = load_config(path)
    check_counts(stated)
    config = without_chunks(stated)
    manifest = _manifest(path)
    judged = "" if releases else manifest.runtime
    runtimes = tuple(releases) or tuple(dict.fromkeys((*filter(None, [judged]), *USUAL)))
    notes: tuple[str, ...] = ()
    if (path / PLAN).is_file():  # what ropewalk exports carries its plan
        plan, notes = _asked(plan, partial(ContextPlan.read, path / PLAN), f"its own {PLAN}")
    layers = tuple(ConfigReader(config).layer_settings())
    meant = plan
    if plan is None:
        meant, notes = _present(config, path)
    else:
        plan.check_layer_types(layers)
        _check_heads(plan, config)
    notes += _edited(plan)
    served = meant.target_length if meant else length or _stated_length(config)
    lengths = {served, length or served}
    if meant is not None:
        lengths |= {step.up_to_length for own in meant.schedules.values() for step in own}
    weighed = weights(path, config, share(progress, "verify", 0.0, 0.15, "reading weights"))
    checked = weighed.checked.check
    words = tokenizer(path, config, weighed.rows)
    content = of_folder(path, share(progress, "verify", 0.15, 0.15, "comparing bytes"))
    readings = tuple(
        _measured(config, layers, sorted(lengths)) if name == STOCK else named(name).reading(config)
        for name in runtimes
    )
    other = {name: named(name).unchecked(releases.get(name, "")) for name in runtimes}
    by_release = {name: why for name, why in other.items() if why and releases.get(name)}
    readings = tuple(
        RotaryReading(r.runtime, r.source, unread=by_release[r.runtime])
        if r.runtime in by_release
        else r
        for r in readings
    )
    notes += tuple(
        f"{name}: {why}" for name, why in other.items() if why and name not in by_release
    )
    subject = subject_of(
        readings,
        stated,
        meant,
        folder=path,
        length=length or served,
        planned=plan is not None,
        asked=plan is not None or length is not None,
    )
    found = tuple(_elsewhere(each, judged, meant, config) for each in traps.find(subject))
    tried = Trial()
    measured = any(reading.source == MEASURED and not reading.unread for reading in readings)
    loadable = bool(weighed.files) and checked.verdict != "wrong"
    if run and meant is not None and measured and loadable:
        progress(Status("verify", 0.3, "running stock transformers and the planned model"))
        tried = stock_trial.trial(path, meant, tokenizer=words.check.verdict == "OK")
    explained = any(f.wrong and STOCK in f.runtimes for f in found)
    # Running it in transformers is the proof of an export for an engine that cannot run here.
    also = (judged,) if judged else ()
    ran = [replace(f, runtimes=tuple(dict.fromkeys((*f.runtimes, *also)))) for f in tried.findings]
    if tried.agreement is not None:
        readings = tuple(replace(r, source=RUN) if r.source == MEASURED else r for r in readings)
        checked = _established(checked, "loaded whole by stock transformers")
    return Audit(
        target="transformers folder",
        path=path,
        length=subject.length,
        runtimes={reading.runtime: reading for reading in readings},
        written_for=judged,
        checks=(checked, words.check, content.check),
        warnings=(
            *(*weighed.checked.findings, *words.findings, *content.findings, *found),
            # What the traps have named already, the run would only say again.
            *(() if explained else ran),
        ),
        compared=meant is not None and not all(reading.unread for reading in readings),
        agreement=tried.agreement,
        notes=(*notes, *tried.notes),
    )


def _of_file(
    path: Path,
    plan: ContextPlan | None,
    length: int | None,
    runtimes: Sequence[str],
    run: bool,
    progress: Progress,
) -> Audit:
    progress(Status("verify", 0.0, "reading"))
    parts = read_parts(path)
    header = whole(parts)
    geometry = geometry_of(header)
    notes: tuple[str, ...] = ()
    own = header.values.get(carried.PLAN)
    if isinstance(own, str):
        read_own = partial(ContextPlan.loads, own, f"{path}: {carried.PLAN}")
        plan, notes = _asked(plan, read_own, "the plan in its metadata")
    elif plan is None and (path.parent / PLAN).is_file():  # of the run that wrote the file
        plan, notes = _plan_next_to(path, geometry)
    notes += _edited(plan)
    readings = {name: named(name).read_file(header) for name in loading("GGUF file")}
    reading = readings[LLAMA_CPP]
    if plan is not None and set(plan.schedules) not in ({FULL_ATTENTION}, {*reading.layers}):
        raise InvalidValue(
            "plan.schedules",
            sorted(plan.schedules),
            f"this file has settings for {' and '.join(sorted(reading.layers))}",
            "create the plan from this model's config",
        )
    served = plan.target_length if plan else reading.limit or geometry.original_length
    subject = Subject(
        readings=tuple(readings[name] for name in runtimes),
        length=length or served,
        plan=plan,
        planned=plan is not None,
        asked=plan is not None or length is not None,
    )
    looking = share(progress, "verify", 0.0, 0.15, "reading weights")
    weighed, words = gguf_file.weights(header, parts, looking), gguf_file.tokenizer(header)
    comparing = share(progress, "verify", 0.15, 0.15, "comparing bytes")
    if len(parts) > 1:
        content = of_folder(path.parent, comparing, of_parts=True)
    else:
        content = of_file(header, comparing)
    found = [*weighed.findings, *words.findings, *content.findings]
    found += [*findings(header), *traps.find(subject)]
    agreement, checked = None, weighed.check
    run = run and LLAMA_CPP in runtimes and weighed.check.verdict != "wrong"
    if run and llama_cpp_run.available():
        progress(Status("verify", 0.3, "running llama.cpp"))
        found += trial(header)
        wrong = any(finding.wrong for finding in found)
        if not wrong:
            readings[LLAMA_CPP] = replace(reading, source=RUN)
            checked = _established(checked, "loaded by llama.cpp")
        if plan is None or wrong:  # what is named already would only be said again
            notes += (f"run in {llama_cpp_run.runtime()}",)
        else:
            try:
                with required_by("its own model"):
                    agreement = compared(header, plan.longest())
            except Unsupported as error:
                notes += (f"not compared with its weights in transformers: {error}",)
                notes += (f"run in {llama_cpp_run.runtime()}",)
            else:
                found += () if agreement.passed else (differs(LLAMA_CPP, agreement),)
    elif run:
        notes += (f"not run: {llama_cpp_run.absent()}",)
    return Audit(
        target="GGUF file",
        path=path,
        length=subject.length,
        runtimes={name: readings[name] for name in runtimes},
        checks=(checked, words.check, content.check),
        warnings=tuple(found),
        compared=plan is not None,
        agreement=agreement,
        notes=notes,
    )


def _check_heads(plan: ContextPlan, config: Config) -> None:
    """Refuse a plan of other heads: with the same frequencies, they turn other pairs."""
    reader = ConfigReader(config)
    for layer_type, rope in reader.layer_settings().items():
        try:
            own = reader.geometry(rope, 1)
        except RopewalkError:  # those who read the config say why
            continue
        planned = plan.longest(layer_type).geometry
        for key in ("head_dim", "pair_layout"):
            if getattr(planned, key) != getattr(own, key):
                raise InvalidValue(
                    f"plan.schedules.{layer_type}: {key}",
                    getattr(planned, key),
                    f"this model has {getattr(own, key)}",
                    "create the plan from this model's config",
                )


def _edited(plan: ContextPlan | None) -> tuple[str, ...]:
    """A note for a plan that is not the one ropewalk wrote, here or before an export."""
    return (EDITED_SINCE,) if plan is not None and EDITED in plan.provenance else ()


def _established(check: Check, how: str) -> Check:
    """Running the model loads all its weights, whatever the headers leave open."""
    if check.verdict == "OK":
        return check
    return replace(check, verdict="OK", what=f"{check.what}; {how}", remedy="")


def _measured(config: Config, layers: Sequence[str], lengths: Sequence[int]) -> RotaryReading:
    """The reading of transformers, measured if it is installed."""
    try:
        with required_by("measuring it"):
            from ropewalk.audit import stock_rotary
    except MissingExtra as error:
        return RotaryReading(STOCK, NOT_MEASURED, unread=str(error))
    return stock_rotary.measure(config, layers, lengths)


def _manifest(folder: Path) -> Manifest:
    """The manifest of a folder; an empty one if it has none that can be read."""
    try:
        return Manifest.read(folder) if (folder / MANIFEST).is_file() else Manifest({})
    except InputError:  # named when the bytes are compared
        return Manifest({})


def _asked(
    plan: ContextPlan | None, read_own: Callable[[], ContextPlan], told: str
) -> tuple[ContextPlan, tuple[str, ...]]:
    """The plan to compare with: an export's own, if none is given, or if it is the nearest one."""
    try:
        own = read_own()
    except RopewalkError:
        if plan is None:
            raise
        return plan, ()
    if plan is None:
        return own, (f"compared with {told}",)
    if own.provenance.get(APPROXIMATES) == plan.id:
        return own, (f"compared with {told}, the approximation that its export was allowed",)
    return plan, ()


def _elsewhere(finding: Finding, judged: str, plan: ContextPlan | None, config: Config) -> Finding:
    """A finding that does not concern the runtime of an export, with the remedy for its own."""
    if not judged or not finding.wrong or finding.concerns(judged) or plan is None:
        return finding
    able = [name for name in finding.runtimes if name in loadable_by(plan, config)]
    remedy = " or ".join(f"export with --runtime {name}" for name in able)
    return replace(finding, remedy=remedy or "no export makes it follow this plan")


def _plan_next_to(
    path: Path, geometry: RotaryGeometry
) -> tuple[ContextPlan | None, tuple[str, ...]]:
    """The plan.json in the folder of a GGUF file, unless it is of another model."""
    plan = ContextPlan.read(path.parent / PLAN)
    if set(plan.schedules) == {FULL_ATTENTION}:
        planned = plan.longest().geometry
        if (planned.head_dim, planned.pairs) == (geometry.head_dim, geometry.pairs):
            return plan, (f"compared with the {PLAN} next to it",)
    return None, (f"not compared with the {PLAN} next to it, which is of another model",)


def _present(config: Config, path: Path) -> tuple[ContextPlan | None, tuple[str, ...]]:
    """The plan that the config itself asks for, without the keys that nobody reads."""
    try:
        return present_plan(_readable(config), str(path)), ()
    except RopewalkError as error:
        return None, (f"nothing to compare with: {error}",)


def _readable(config: Config) -> Config:
    cleaned = dict(config)
    for key, value in config.items():
        if key == "text_config" and isinstance(value, Mapping):
            cleaned[key] = _readable(dict(value))
        elif key in ("rope_parameters", "rope_scaling") and isinstance(value, Mapping):
            cleaned[key] = _known(value)
    return cleaned


def _known(rope: Mapping[str, object]) -> dict[str, object]:
    return {
        key: _known(value) if isinstance(value, Mapping) else value
        for key, value in rope.items()
        if isinstance(value, Mapping) or key in KNOWN_KEYS
    }


def _stated_length(config: Config) -> int:
    stated = ConfigReader(config).get("max_position_embeddings")
    if stated is None:
        raise InputError("the config states no max_position_embeddings; give a length or a plan")
    return counted(stated, "max_position_embeddings", MAX_LENGTH)
