"""The paper's table and figures: ``trellis paper gromov-wasserstein [FIGURE ...]``.

All in this process, without messages, by the same training, encoder and distances as a run. What
a model may see is in `model`, what epsilon means in `scores`: small is private, and
the paper's epsilon is taken as a row's budget. Real data are needed, from the folder TRELLIS_DATA.

    table1            accuracy on MUTAG and samples of PROTEINS and IMDB-BINARY, with controls
    table1-full       the same on all graphs with the paper's grid of C and gamma; hours
    fig2              k-means with GW barycentres of CiteSeer's subgraphs
    fig3              nearest neighbours over epsilon on MUTAG
    fig4              GW between five subgraphs under LDP
    fig5              mean GW over epsilon, and whether noise finds better minima
    fig7              fig2 of Cora
    fig11             GED, GW_A, FGW_AX and GW_H between five subgraphs
    fig12             GW after removing one edge or one node
    privacy-utility   rank correlation of estimated and true GW over epsilon
    private           accuracy on MUTAG under sound privacy: untrained, trained with noise, controls
    break-even        how many clients until private training beats learning alone; synthetic graphs

Every figure writes a csv with its numbers, and its plots. An accuracy means something only above
that of the same encoder on a constant embedding, which stands beside it, and of numbers of nodes.
"""

from __future__ import annotations

# Name of a figure -> module:function; read by `apps.experiments.figures`, so nothing heavy here.
FIGURES: dict[str, str] = {
    "private": "private:private",
    "break-even": "break_even:break_even",
}
ON_REQUEST: dict[str, str] = {}
