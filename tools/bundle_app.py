"""Build hook that adds the app, its pages and the samples to the wheel, where `tessel_core.bundle` finds them."""

from __future__ import annotations

from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

BUNDLED = ("app.py", "pages", "sample_models", "docs/icon.png", ".streamlit")


class BundleApp(BuildHookInterface):
    """Adds the bundled files to a wheel. An editable install finds them in the checkout."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "standard":
            build_data["force_include"] |= {each: f"tessel_core/installed/{each}" for each in BUNDLED}
