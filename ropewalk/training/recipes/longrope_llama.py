"""LongRoPE on LLaMA2: 400 steps at the first length, 600 more at the second."""

from ropewalk.training.recipes import SEARCH, TrainingRecipe

RECIPE = TrainingRecipe(
    name="longrope-llama",
    source="Ding et al. 2024, LongRoPE, Section 4.1 (Fine-tuning) and Section 3.3",
    method=SEARCH,
    layout="bookends",
    steps=(400, 600),
    batch=32,
    learning_rate=2e-5,
    decay="linear",
    weight_decay=0.0,
    betas=(0.9, 0.95),
    filling="greedy",
    open="weight decay and betas are not named: none, and those of YaRN, which it follows",
)
