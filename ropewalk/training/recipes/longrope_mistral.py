"""LongRoPE on Mistral: short windows, whatever the length that the factors are searched for."""

from ropewalk.training.recipes import SEARCH, TrainingRecipe

RECIPE = TrainingRecipe(
    name="longrope-mistral",
    source="Ding et al. 2024, LongRoPE, Section 4.1 (Fine-tuning)",
    method=SEARCH,
    layout="bookends",
    steps=(400,),
    batch=64,
    learning_rate=1e-6,
    decay="constant",
    weight_decay=0.0,
    betas=(0.9, 0.95),
    filling="greedy",
    window=16_384,
    open="weight decay and betas are not named: none, and those of YaRN, which it follows",
)
