"""Device profiles: how the times of each kind of device are known, in words for people."""

from __future__ import annotations

from dataclasses import dataclass

from tessel_core.costs.devices import DEVICE_KINDS, H200, DeviceKind

FITTED = "Fitted on kernels and GPT layers measured on one H200 in bf16 (docs/cost_model.md)"
ESTIMATED = "Estimate: its peaks, at the shares of them that kernels reach on an H200"


@dataclass(frozen=True, slots=True)
class DeviceProfile:
    """Where the times of one kind of device come from."""

    kind: str
    data_sheet: DeviceKind | None
    """None: a kind that only a mesh knows, with peaks of its own."""
    is_fitted: bool
    """Fitted on measurements of this kind; else estimated."""
    source: str
    """One sentence, with the source of the peaks."""

    @property
    def label(self) -> str:
        """Its title, and "(estimate)" where it is one."""
        title = self.kind if self.data_sheet is None else self.data_sheet.title
        return title if self.is_fitted else f"{title} (estimate)"


DEVICE_PROFILES: dict[str, DeviceProfile] = {
    each.kind: DeviceProfile(
        each.kind, each, each is H200, f"{FITTED if each is H200 else ESTIMATED}. Peaks: {each.source}."
    )
    for each in DEVICE_KINDS.values()
}
"""Every known kind's profile by name."""


def profile_of(kind: str) -> DeviceProfile:
    """The profile of a kind; of one that only a mesh knows, an estimate from the peaks that the mesh gives."""
    if kind in DEVICE_PROFILES:
        return DEVICE_PROFILES[kind]
    return DeviceProfile(kind, None, False, f"{ESTIMATED}. Peaks: as the mesh gives them.")
