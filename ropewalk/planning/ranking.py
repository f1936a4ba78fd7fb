"""The order in which methods are worth trying: lists of names, by what small models retrieved.

studies/ranking measured the methods on small models of several shapes, untrained and fine-tuned,
ordered them by their mean on some of the models, and checked the order on the others. That is a
starting order for other models: an evaluation of the model itself has the last word. A method that
is on no list was not measured.
"""

from __future__ import annotations

UNCHANGED = "none"
"""The name of the unmodified model in the lists."""
FITS = "no new angle"
"""The same if the model meets no angle at the target that training has not shown it. It comes
first: every model of the study met new ones, so a method had something to mend."""
WITHOUT_TRAINING = (
    *(FITS, "yarn", "llama3", "two_band", "base_change", "dynamic_ntk", "ntk", "ntk_old"),
    *("ntk_fixed", UNCHANGED, "ntk_mixed", "linear"),
)
AFTER_TRAINING = (
    *(FITS, "base_change", "two_band", "llama3", "yarn", "ntk_mixed", "ntk_old", "ntk_fixed"),
    *("dynamic_ntk", "ntk", UNCHANGED, "linear"),
)
