"""Pages of troupe-sim, to be compared to the byte."""
import re

# Names the command, which names the files that it wrote, and the time.
ORIGIN = re.compile(rb'<p class="dim made">.*?</p>')


def without_origin(page):
    assert len(ORIGIN.findall(page)) == 1
    return ORIGIN.sub(b"", page)
