"""The lines of the table in recipes/README.md, from the plans: `python -m tests.recipe_table` prints the table."""

import pathlib

from hf_dpsynth import recipe
from hf_dpsynth.guarantees import ApproxDP, LocalDP, MetricDP

FOLDER = pathlib.Path(__file__).parents[1] / "recipes"
README = FOLDER / "README.md"


def line(path, found, plan):
    """Return a recipe's name, data, mechanism, guarantee and noise as a line of Markdown."""
    where = [found.data["path"], *([found.data["name"]] if "name" in found.data else [])]
    noise = "" if plan.noise_multiplier is None else f"{plan.noise_multiplier:g}"
    words = [f"[{path.stem}]({path.relative_to(FOLDER)})", " ".join(where), found.mechanism, guarantee(plan.guarantee)]
    return f"| {' | '.join(words)} | {noise} |"


def guarantee(promised):
    if isinstance(promised, ApproxDP):
        whole = round(1 / promised.delta)
        delta = f"1/{whole}" if 1 / whole == promised.delta and str(whole).strip("0") != "1" else f"{promised.delta:g}"
        return f"({promised.epsilon:g}, {delta}) per {promised.unit}"
    if isinstance(promised, LocalDP | MetricDP):
        kind = "local DP" if isinstance(promised, LocalDP) else "metric DP, scale"
        return f"{kind} {promised.epsilon:g} per {promised.unit}"
    return f"p = {promised.p:g}, r = {promised.r:g} per secret"


if __name__ == "__main__":
    for folder in (FOLDER, FOLDER / "papers"):
        print("\n| recipe | data | mechanism | guarantee | noise multiplier |\n|---|---|---|---|---|")
        for one in sorted(folder.glob("*.yaml")):
            made = recipe.load(one)
            print(line(one, made, made.plan()))
