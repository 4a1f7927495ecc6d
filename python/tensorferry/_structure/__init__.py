"""How a nested object becomes named tensors and a text, and an object again.

::

    object --flatten--> Flat: stored tensors, and a tree of nodes --structure_text--> text
    text   --parse----> Structure: the tree of nodes --select, names, build--> object

The text stands in the header of a checkpoint and is judged by the core before it comes here; what
it consists of is told in docs/formats.md. Nothing is ever pickled, and building an object runs no
code that the text could choose: a tag is one of a fixed list.

Depth is bounded by ``NESTING_MAX`` on the way in and on the way out. Flattening copies no tensor:
it says where the bytes lie, or that they have to be gathered first (``Stored.materialize``).
"""

from tensorferry._structure.build import build
from tensorferry._structure.flatten import NESTING_MAX, Flat, flatten
from tensorferry._structure.select import names, select
from tensorferry._structure.sharing import Ties
from tensorferry._structure.stored import Stored
from tensorferry._structure.text import Structure, parse, structure_text

__all__ = [
    "NESTING_MAX",
    "Flat",
    "Stored",
    "Structure",
    "Ties",
    "build",
    "flatten",
    "names",
    "parse",
    "select",
    "structure_text",
]
