"""An object shown in a notebook: its frame draws the timeline and loads nothing."""

from __future__ import annotations

import tessel_core as tessel


def test_the_frame_of_an_output_draws_the_timeline(context) -> None:
    tab, troubles = context.new_page(), list[str]()
    tab.on("pageerror", lambda error: troubles.append(str(error)))
    tab.on("request", lambda request: troubles.append(request.url))
    tab.set_content(f"<body>{tessel.load('v-shape-4')._repr_html_()}</body>")
    frame = tab.frame_locator("iframe")
    frame.locator("canvas.picture").wait_for()
    drawn = "(canvas) => canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data.some(Boolean)"
    tab.frames[1].wait_for_function(f"({drawn})(document.querySelector('canvas.picture'))")
    name = frame.get_by_role("application").get_attribute("aria-label")
    assert name.startswith("Timeline of 8 blocks on 4 devices, 16 steps long")
    assert tab.frames[1].evaluate("document.documentElement.scrollHeight <= innerHeight")
    assert [each for each in troubles if each != "about:srcdoc"] == []
