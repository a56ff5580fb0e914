"""Of many clients a few are shown: who is chosen (`chosen`), how all are spread (`spread`).

`once` keeps what a run's files and its page both need.
"""
