"""AnchorAttention, as its authors train with it."""

from ropewalk.training.recipes import TrainingRecipe

RECIPE = TrainingRecipe(
    name="anchor",
    source="Wang et al. 2024, When Precision Meets Position, Section 4.1 and Table 1",
    method="base_change",
    layout="anchor",
    steps=(2000,),
    batch=8,
    learning_rate=2e-5,
    decay="constant",
    weight_decay=0.1,
    betas=(0.9, 0.95),
    # Table 1 has 16k, 64k and 128k. It has neither 32k nor 256k: those two are ours, in its row.
    bases={16_384: 1e6, 32_768: 1e6, 65_536: 5e6, 131_072: 1e7, 262_144: 5e7},
    open="no decay and no warm-up of the learning rate are named: it is constant",
)
