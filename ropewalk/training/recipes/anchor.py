"""AnchorAttention, as its authors train with it."""

from ropewalk.training.recipes import TrainingRecipe

RECIPE = TrainingRecipe(
    name="anchor",
    source="Wang et al. 2024, When Precision Meets Position, Sections 4.1 and 4.3, Table 1",
    method="base_change",
    layout="anchor",
    steps=(2000,),
    batch=8,
    learning_rate=2e-5,
    decay="constant",
    weight_decay=0.1,
    betas=(0.9, 0.95),
    # Section 4.3 has 32k to 256k; Table 1 has 16k too.
    bases={16_384: 1e6, 32_768: 1e6, 65_536: 5e6, 131_072: 1e7, 262_144: 5e7},
    open="no decay and no warm-up of the learning rate are named: it is constant",
)
