"""Files on this machine: what a run's folder holds, and how a client's csv file is written."""
