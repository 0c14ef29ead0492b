"""`python -m tests.learn`: how many blocks, links and public names there are, and of what kind."""

from __future__ import annotations

from collections import Counter

from tests.learn.blocks import blocks_of, pages
from tests.learn.links import links_of
from tests.learn.test_names import NAMES, blocks

RUN = {"python", "sh"}
COMPILED = {"metal", "objc++"}


def main() -> None:
    found = [block for path in pages() for block in blocks_of(path.read_text(), path)]
    found += blocks()
    kinds: Counter[str] = Counter()
    for block in found:
        if block.language in RUN and not block.mark and not block.title:
            kinds["executed"] += 1
        elif block.language in RUN and block.title:
            kinds["files that other blocks run"] += 1
        elif block.language in COMPILED or block.mark == "mac":
            kinds["compiled"] += 1
        elif block.mark:
            kinds["parsed, not run"] += 1
        elif block.language == "output":
            kinds["outputs compared"] += 1
        else:
            kinds["data or text"] += 1
    links = sum(len(list(links_of(path))) for path in pages())
    print(f"{len(pages())} pages, {len(found)} blocks:", end=" ")
    print(", ".join(f"{count} {kind}" for kind, count in kinds.most_common()))
    print(f"{links} links, {len(NAMES)} public names")


if __name__ == "__main__":
    main()
