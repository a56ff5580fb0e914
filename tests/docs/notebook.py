"""A notebook, executed: by its test, and by ``make notebook``, which keeps what it shows.

The kernel is this Python with this folder's code. It works in a temporary folder that is also its
home, and is spoken to through sockets in there: nothing of the user's is read or written.
"""

from __future__ import annotations

import base64
import io
import os
import sys
import tempfile
from pathlib import Path

import nbformat
from jupyter_client import KernelManager
from jupyter_client.kernelspec import KernelSpecManager
from nbclient import NotebookClient
from PIL import Image

ROOT = Path(__file__).parents[2]


def execute(path: Path) -> nbformat.NotebookNode:
    """Return a notebook with what its cells show now; an error in a cell is raised."""
    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory(prefix="notebook-") as home:
        work = Path(home, "work")
        work.mkdir()
        manager = KernelManager(
            kernel_spec_manager=KernelSpecManager(kernel_dirs=[]),  # this Python's own kernel only
            transport="ipc",  # no ports, which processes of other tests could take
            connection_file=str(Path(home, "kernel.json")),
        )
        client = NotebookClient(
            notebook,
            km=manager,
            timeout=280,
            record_timing=False,
            resources={"metadata": {"path": str(work)}},
        )
        try:
            client.execute(env=_environment(home))
        finally:  # a manager that is given to a client is not the client's to end
            if manager.has_kernel:
                manager.shutdown_kernel(now=True)
            manager.cleanup_resources()
    _shrink_pictures(notebook)
    # Which patch of Python it was, say, changes nothing that is shown.
    notebook.metadata = nbformat.from_dict(
        {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        }
    )
    return notebook


def _shrink_pictures(notebook: nbformat.NotebookNode) -> None:
    """Give pictures a palette: a third of the bytes, of which a repository keeps every version."""
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            if "image/png" in output.get("data", {}):
                picture = Image.open(io.BytesIO(base64.b64decode(output.data["image/png"])))
                buffer = io.BytesIO()
                picture.convert("RGB").quantize(64).save(buffer, "png", optimize=True)
                output.data["image/png"] = base64.b64encode(buffer.getvalue()).decode()


def _environment(home: str) -> dict[str, str]:
    """Return the kernel's environment."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith("JUPYTER_")}
    paths = [str(ROOT), *filter(None, [ours.get("PYTHONPATH")])]
    return {
        **ours,
        "HOME": home,
        "TMPDIR": home,
        "IPYTHONDIR": str(Path(home, "ipython")),
        "MPLBACKEND": "module://matplotlib_inline.backend_inline",
        "MPLCONFIGDIR": str(Path(home, "matplotlib")),
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join(paths),
    }


def main() -> None:
    """Execute the notebooks that are named, in place."""
    for name in sys.argv[1:]:
        nbformat.write(execute(Path(name)), name)


if __name__ == "__main__":
    main()
