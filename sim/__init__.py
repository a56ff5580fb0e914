"""Runtimes and nothing else: where ServerApps and ClientApps run on this machine.

Start with `grid`, the in-process engine (`local_nodes`, `copies`, `faults` and `private`, the parts
of Flower it stands on). `flower` starts Flower's simulation and follows a run to its true status,
`deployment` does so for a SuperLink and SuperNodes; `flwr_command`, `processes`, `reach` and
`run_config` serve both. `supernode` and `superexec` are Flower's, with short waits; `federation` is
what a federation's folder holds, and starting and stopping it here.
No code that runs on a device or in a ServerApp imports anything from here.
"""
