"""The paper's figures and theorems, one TOML and command each: ``trellis paper cluster-admm``.

Start with `setting`, the experiment that all figures of Sec. V-A share; `judging` turns differences
between runs into verdicts. Learning curves are in `synthetic`, sweeps over one setting in `sweeps`,
Theorems 1 and 2 in `theorems`, the mechanism (6)-(7) in `single_step`, Lemma 1 and Theorems 3 and 4
in `privacy_claims`, images in `images` by the data of `image_data`. Ours: noisy sums in `private`
and `hidden`, clusters to be found in `clusters`.
"""
