"""What the server does: a folder per study, its Flower strategy first, pure rules beside it.

Start with `rounds` for how a round goes, then with ``<study>/strategy.py``. `topology` has the
graphs of servers that two studies stand on, `network` what carries letters between them.
"""
