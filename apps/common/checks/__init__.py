"""What a setting may be: `checking` refuses everything else, `limits` says it in words.

A range stands once, where it is checked. Whoever asks for it (``trellis info``, the reference) has
the class made with `limits.noting` on, which writes down every check on its way.
"""
