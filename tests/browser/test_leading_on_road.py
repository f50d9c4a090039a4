"""From a file on this machine to its placement: choose sizes, a mesh and samples on the way."""

from __future__ import annotations

import re
from pathlib import Path

from helpers.browser import IDLE, equals, go, no_wider_than_the_screen, press
from helpers.onnx_models import mlp


def test_a_model_by_its_path_its_sizes_its_mesh_and_its_placement(page, address: str, tmp_path: Path) -> None:
    """Questions about the model stand below its field. The chosen mesh is used, and the sizes can be changed later."""
    path = tmp_path / "model.onnx"
    path.write_bytes(mlp().SerializeToString())
    page.goto(f"{address}/graph")
    typed = page.get_by_label("File on this machine")
    typed.fill(f"{path}.missing")
    typed.press("Enter")
    page.get_by_text("No such file or directory").wait_for()
    typed.fill(str(path))
    typed.press("Enter")
    batch = page.get_by_label("batch", exact=True)
    batch.fill("8")
    press(page, "Open with these sizes")
    page.get_by_text("file model.onnx: batch 8").wait_for()
    go(page, "Device mesh")
    page.get_by_text("Individual links").wait_for()
    page.wait_for_function(IDLE)
    page.get_by_test_id("stPopoverButton").nth(1).click()
    page.get_by_label("Preset").click()
    page.get_by_role("option", name="NVIDIA H200 SXM, 2 GPUs of one node").click()
    press(page, "Open preset")
    title = page.get_by_text(re.compile("devices · preset h200-2 ·")).first
    title.wait_for()
    go(page, "Operator graph")
    press(page, "Place it")
    page.wait_for_url("**/placement**")
    page.get_by_role("button", name=re.compile("h200-2")).wait_for()
    page.wait_for_function("() => location.search.includes('work=')")
    page.reload()
    page.get_by_role("button", name=re.compile("h200-2")).wait_for()
    page.wait_for_function(IDLE)
    press(page, "Place")
    press(page, "Schedule this")
    page.wait_for_url("**/schedule**view=plan**")
    page.wait_for_function(IDLE)
    for before in ("placement", "graph"):  # neither button has made a step of undo
        page.go_back()
        page.wait_for_url(f"**/{before}?**")
        page.wait_for_function(IDLE)
    go(page, "Program")
    page.get_by_test_id("stMain").get_by_text("File", exact=True).click()
    page.locator("input[type=file]").set_input_files(path)
    equals(lambda: page.get_by_label("batch", exact=True).input_value(), "8")
    page.get_by_text("gemm(").first.wait_for(state="attached")
    mesh = page.get_by_label("Mesh", exact=True)
    equals(mesh.input_value, "NVIDIA H200 SXM, 2 GPUs of one node")
    no_wider_than_the_screen(page)


def test_samples_stand_in_groups_with_pictures(page, address: str) -> None:
    """Samples are radio buttons: a click chooses, arrow keys move on, and another group shows other samples."""
    page.goto(address)
    gallery = page.locator(".gallery").first
    equals(lambda: gallery.locator("svg").count(), 8)
    gallery.get_by_text("mT5-XXL, NN, 4 H200s").click()
    assert gallery.get_by_title("Embeddings, projection and loss are sharded").count()
    gallery.locator("input:checked").press("ArrowDown")
    equals(lambda: gallery.locator("input:checked").get_attribute("value"), "mt5-v-8")
    page.get_by_label("Sample, group", exact=True).click()
    page.get_by_role("option", name="Shapes, inference").click()
    equals(lambda: gallery.locator("label").count(), 8)
    gallery.get_by_text("NN, 4 devices, inference").click()
    equals(lambda: gallery.locator("input:checked").get_attribute("value"), "nn-shape-4-inference")
    press(page, "Open sample")
    page.get_by_text("sample nn-shape-4-inference").first.wait_for()
