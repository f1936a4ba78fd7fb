"""The known ways in which a setting is silently dropped, squared or ignored, each found by name.

A trap is a function from a `Subject` to its findings, in the file of its subject:

    assumptions     what reading the config takes for granted
    config_keys     the keys of a config contradict each other, or are misspelt, missing, not read
    lengths         a stated length is too short, multiplied, or has nothing behind it
    positions       what depends on positions beside their rotation is lost
    loading         a runtime does not load it, or would run code of the folder
    rotation        frequencies or attention scaling differ from the plan's
    switching       factors change with the length
    gguf            faults inside a GGUF file, found in its header

Each file lists the names that it finds. `wrong` findings fail a verification, the others inform.
"""

from __future__ import annotations

from dataclasses import replace

from ropewalk.runtimes.finding import Finding, Subject, Trap
from ropewalk.runtimes.traps import (
    assumptions,
    config_keys,
    lengths,
    loading,
    positions,
    rotation,
    switching,
)

TRAPS: tuple[Trap, ...] = (
    config_keys.ignored_keys,
    config_keys.no_rope_type,
    config_keys.factor_count,
    config_keys.theta_missing,
    config_keys.theta_conflict,
    config_keys.scaling_conflict,
    config_keys.original_length_missing,
    config_keys.factor_recomputed,
    config_keys.truncate_nested,
    lengths.unscaled_length,
    lengths.not_extended,
    lengths.tokenizer_limit,
    lengths.generation_limit,
    lengths.window_in_every_layer,
    loading.remote_code,
    loading.refused,
    rotation.rotation,
    rotation.on_a_cpu,
    switching.cache_switch,
    switching.one_position,
    switching.declared_switch,
    lengths.length_limit,
    lengths.length_multiplied,
    lengths.short_by_default,
    rotation.beyond_stock,
    positions.position_scaling_lost,
    positions.dual_chunk,
    positions.eight_bit_keys,
    positions.drafter_unscaled,
    assumptions.assumed,
)


def find(subject: Subject) -> tuple[Finding, ...]:
    """Every trap that this subject is in; one that several runtimes share is reported once."""
    merged: dict[tuple[object, ...], Finding] = {}
    for trap in TRAPS:
        for found in trap(subject):
            key = (found.trap, found.what, found.consequence, found.remedy, found.wrong)
            known = merged.get(key, replace(found, runtimes=()))
            runtimes = dict.fromkeys((*known.runtimes, *found.runtimes))
            merged[key] = replace(known, runtimes=tuple(runtimes))
    return tuple(merged.values())
