"""Regenerate the worked answer of the Start page: python tools/make_recommended.py."""

from __future__ import annotations

import json

from tessel_core.costs.meshes import find_mesh
from tessel_core.exports.recommendation import recommendation_document
from tessel_core.samples import WORKED_ANSWER
from tessel_core.strategies.naming import preset_network
from tessel_core.strategies.recommendation import Question, recommend

ASKED = {"model": "llama-3.1-70b", "mesh": "h100-64", "global_batch": 1024, "sequence": 8192}


def worked_question() -> Question:
    """Return the question, with the default ranges."""
    found = preset_network(str(ASKED["model"]))
    assert found is not None, "the model is a preset"
    family, said = found
    sizes = {"batch": ASKED["global_batch"], "sequence": ASKED["sequence"], "dtype": "bf16"}
    return Question(family, family.spec(**{**said, **sizes}), find_mesh(str(ASKED["mesh"])))


if __name__ == "__main__":
    answer = recommendation_document(recommend(worked_question()))
    kept = {name: answer[name] for name in ("best", "leanest", "configurations", "bound_s", "proved")}
    WORKED_ANSWER.write_text(json.dumps({"asked": ASKED, **kept}, indent=1) + "\n")
