"""The paper's tables and figures: ``trellis paper gromov-wasserstein [FIGURE ...]``.

Each is one TOML here, with its sizes, what the paper says and where; its function returns a verdict
on each of these. All in this process, without messages, by the same training, encoder and distances
as a run. What a model may see is in `model`, what epsilon means in `scores`: small is private, and
the paper's epsilon is taken as a row's budget. Real data are needed, from the folder TRELLIS_DATA.

    table1               accuracy of graph classification, with controls      `table`
    table2 to table4     sizes of the data sets, counted                      `statistics`
    fig2, fig6, fig7     clusters of subgraphs of CiteSeer and Cora           `clusters`
    fig3                 nearest neighbours over epsilon on MUTAG             `epsilon`
    fig4, fig11          five subgraphs; how large GW can be                  `five`
    fig5, fig8 to fig10  GW itself over epsilon; what noise does to minima    `metric`
    fig12                GW after removing one edge or one node               `removals`
    theorem1, encoder    the encoder's true epsilon, its bits, its noise      `theorem`
    equation2, communication   small exact checks                            `theory`
    privacy-utility, private, break-even   what is left under privacy; ours

An accuracy means something only above that of the same encoder on a constant embedding, which
stands beside it, and of numbers of nodes.
"""
