"""Base of RoPE Bounds Context Length: fine-tuning with the base that a length needs."""

from ropewalk.training.recipes import TrainingRecipe

RECIPE = TrainingRecipe(
    name="base-bound",
    source="Men et al. 2024, Base of RoPE Bounds Context Length, Section 5.1 and Table 5",
    method="base_change",  # without a base of its own: the safe base of the theory
    layout="full",
    steps=(1000,),
    batch=128,
    learning_rate=2e-5,
    decay="constant",
    weight_decay=0.0,
    betas=(0.9, 0.95),
    open="how windows are packed and the betas are not named: documents in a row, and (0.9, 0.95)",
)
