"""A retrieval task of one's own: `ropewalk evaluate MODEL --plugin own_task.py --tasks colour`."""

import ropewalk as rw
from ropewalk.evaluation.prose import FILLER
from ropewalk.evaluation.tasks import Draft, Scene

COLOURS = ("red", "green", "blue", "black")


def first_word(written: str, references: tuple[str, ...]) -> float:
    """1 if the text begins with the colour."""
    return float(written.strip().lower().startswith(references[0].strip()))


@rw.register("task", score=first_word)
def colour(scene: Scene, units: int) -> Draft:
    """The colour of a door, told once in irrelevant text."""
    answer = COLOURS[scene.random.below(len(COLOURS))]
    lines = [FILLER[i % len(FILLER)] for i in range(units)]
    lines.insert(int(scene.depth * len(lines)), f"The door is {answer}.")
    prompt = " ".join([*lines, "The door is"])
    return Draft(prompt, f" {answer}", prompt.index(f"is {answer}") / len(prompt))


if __name__ == "__main__":
    found = rw.evaluate("bundled", tasks=["colour"], lengths=[256, 512], samples=4)
    print(found.summary())
