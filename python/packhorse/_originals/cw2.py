"""``cw2`` in processes that the program starts by multiprocessing: see ``packhorse._alias``."""

from packhorse import _alias

_alias.take_place_of(__name__)
