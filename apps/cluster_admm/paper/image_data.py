"""Images for the paper's classification figures (Sec. V-B, V-C): reading them, dealing them out.

Two kinds of files are read, grey images of 8 bits only:

    idx      MNIST's own, gzip-compressed or not: two zero bytes, the type (8: unsigned byte), the
             number of axes, their lengths (big-endian, 4 bytes each), then the values
    npz      MedMNIST's: ``train_images`` (n, h, w), ``train_labels`` (n, 1), and the same for
             ``test``; ``val`` is not used, names may stand in ``class_names``

A row x is an image's pixels divided by 255, in one line: (h w,), no constant among them, as (52)
has no intercept. What the paper leaves open, and ours:

    pixels        to [0, 1], not centred.
    labels        a cluster's task is two classes of digits; -1 is the class that the paper prints
                  first, +1 the second. Which is which matters where clusters learn from others.
    D_k           "D_k = 2 to 4 data samples composed of two images", and for triplets "6 to 12,
                  each composed of two triplets". (51) has D_k labels, so D_k *images* here, drawn
                  evenly from the two (six) digits: one or two of each, as both ranges suggest.
                  ``whole=True`` is the other reading: D_k samples of one image of every digit.
    who has what  no image goes to two clients.
"""

from __future__ import annotations

import gzip
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trellis.apps.common.seeds import generator
from trellis.apps.common.tables import DataError
from trellis.apps.experiments.datasets import DataSetMissing, dataset

Array = NDArray[np.float64]
Bytes = NDArray[np.uint8]
Places = NDArray[np.intp]
Tables = tuple[tuple[Array, Array], ...]
Task = tuple[tuple[int, ...], tuple[int, ...]]  # the digits labelled -1, those labelled +1

_GZIP = b"\x1f\x8b"
_UNSIGNED_BYTE = 8
_MNIST = {"train": "train", "test": "t10k"}


@dataclass(frozen=True)
class ImageSet:
    """Images (n, h, w) and their classes (n,), to learn from and to test on.

    ``name`` is said in tables and errors; ``classes`` are the classes' names where known.
    """

    name: str
    train_images: Bytes
    train_labels: Places
    test_images: Bytes
    test_labels: Places
    classes: tuple[str, ...] = ()


def read_idx(path: Path) -> Bytes:
    """Read an idx file of unsigned bytes.

    Raises
    ------
    DataError
        For a file that is missing, cut short, too long, or of another kind.
    """
    try:
        raw = path.read_bytes()
        content = gzip.decompress(raw) if raw.startswith(_GZIP) else raw
    except FileNotFoundError:
        raise DataError(f"{path}: no such file") from None
    except EOFError:
        raise DataError(f"{path}: cut short, its gzip stream does not end; get it again") from None
    except Exception as error:
        raise DataError(f"{path}: cannot be read ({error})") from None
    if len(content) < 4 or content[:2] != b"\0\0":
        raise DataError(
            f"{path}: not an idx file; it begins with {content[:4].hex(' ') or 'nothing'}, not "
            "with two zero bytes"
        )
    kind, axes = content[2], content[3]
    if kind != _UNSIGNED_BYTE:
        raise DataError(f"{path}: values of idx type 0x{kind:02x}; only 0x08, bytes, can be images")
    start = 4 + 4 * axes
    if axes == 0 or len(content) < start:
        raise DataError(f"{path}: cut short in its header of {axes} axes; get it again")
    shape = tuple(int(n) for n in np.frombuffer(content, ">u4", axes, 4))
    there, expected = len(content) - start, math.prod(shape)
    if there != expected:
        wrong = "cut short" if there < expected else "too long"
        raise DataError(f"{path}: {wrong}; {there} values, its header says {shape} ({expected})")
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)


def read_mnist(folder: Path) -> ImageSet:
    """Read the four files of MNIST, ``train-images-idx3-ubyte.gz`` and so on (``.gz`` or not)."""
    parts = []
    for prefix in _MNIST.values():
        images_path = _either(folder / f"{prefix}-images-idx3-ubyte")
        labels_path = _either(folder / f"{prefix}-labels-idx1-ubyte")
        images, labels = read_idx(images_path), read_idx(labels_path)
        parts.append(_checked(images, labels, str(images_path), str(labels_path)))
    train, test = parts
    return ImageSet("MNIST", *train, *test, tuple("0123456789"))


def read_medmnist(path: Path) -> ImageSet:
    """Read an npz file in MedMNIST's layout.

    Raises
    ------
    DataError
        For a file that is missing or no npz, lacks arrays, or has colour images, other values than
        bytes or several labels an image.
    """
    keys = tuple(f"{part}_{what}" for part in _MNIST for what in ("images", "labels"))
    try:
        with np.load(path, allow_pickle=False) as file:
            absent = [key for key in keys if key not in file.files]
            found = {key: file[key] for key in keys if not absent}
            held = ", ".join(file.files) or "nothing"
            names = file["class_names"] if "class_names" in file.files else np.empty(0, dtype=str)
    except FileNotFoundError:
        raise DataError(f"{path}: no such file") from None
    except Exception as error:
        raise DataError(f"{path}: not a readable npz file ({error})") from None
    if absent:
        raise DataError(f"{path}: lacks {', '.join(absent)}; it holds {held}")
    train, test = (
        _checked(
            found[f"{part}_images"],
            found[f"{part}_labels"],
            f"{path}: {part}_images",
            f"{path}: {part}_labels",
        )
        for part in _MNIST
    )
    return ImageSet(path.stem, *train, *test, tuple(str(name) for name in names.ravel()))


def mnist() -> ImageSet:
    """Return MNIST from the folder of data sets; see `trellis.apps.experiments.datasets`."""
    return read_mnist(dataset("MNIST"))


def organs() -> tuple[ImageSet, bool]:
    """Return OrganAMNIST and True where a user has it, else the stand-in MedNIST and False.

    ``organamnist.npz``, as MedMNIST hands it out, is looked for in the folders ``OrganAMNIST`` and
    ``MedMNIST`` of the folder of data sets, and beside them.
    """
    for folder in ("OrganAMNIST", "MedMNIST", "."):
        try:
            path = dataset(folder) / "organamnist.npz"
        except DataSetMissing:
            continue
        if path.is_file():
            return read_medmnist(path), True
    try:
        return read_medmnist(dataset("MedNIST") / "mednist28.npz"), False
    except DataSetMissing as error:
        raise DataSetMissing(
            f"{error}. Figs 11 and 12 take organamnist.npz of MedMNIST, or this stand-in"
        ) from None


def rows_of(images: Bytes) -> Array:
    """Return images (n, h, w) as rows (n, h w) of values in [0, 1]."""
    return images.reshape(len(images), -1) / 255.0


def dealt(
    images: ImageSet,
    tasks: Sequence[Task],
    clusters: Places,
    samples: tuple[int, int],
    seed: int,
    whole: bool = False,
) -> Tables:
    """Return X (D_k, h w) and labels y (D_k,) in {-1, 1} of every client.

    Parameters
    ----------
    tasks : of every cluster, the classes it tells apart
    clusters : (K,) the cluster of every client
    samples : smallest and largest D_k, drawn uniformly
    whole : count samples of one image of every digit, and not images

    Raises
    ------
    DataError
        Where there are not enough images of a class.
    """
    # One order of all images of a class; clients take from it in turn.
    piles = {digit: _pile(images, digit, seed) for task in tasks for digit in (*task[0], *task[1])}
    taken = dict.fromkeys(piles, 0)
    tables = []
    for client, cluster in enumerate(clusters.tolist()):
        rng = generator(seed, "images", client)
        count = int(rng.integers(samples[0], samples[1] + 1))
        first, second = tasks[cluster]
        # A random order, so that the digit with one image more is not always the same.
        digits = rng.permutation((*first, *second)).tolist()
        drawn = [digits[i % len(digits)] for i in range(count * len(digits) if whole else count)]
        chosen = []
        for digit in drawn:
            if taken[digit] == len(piles[digit]):
                raise DataError(
                    f"{images.name}: its {taken[digit]} training images of class {digit} are not "
                    f"enough; client {client + 1} of {len(clusters)} has none left"
                )
            chosen.append(piles[digit][taken[digit]])
            taken[digit] += 1
        y = np.where(np.isin(drawn, second), 1.0, -1.0)
        tables.append((rows_of(images.train_images[chosen]), y))
    return tuple(tables)


class Unseen:
    """The test images of every cluster's classes, and how well models tell them apart."""

    def __init__(self, images: ImageSet, tasks: Sequence[Task]) -> None:
        self._signed = []
        for first, second in tasks:
            for digit in (*first, *second):
                if not np.any(images.test_labels == digit):
                    raise DataError(f"{images.name}: no test image of class {digit}")
            own = np.isin(images.test_labels, (*first, *second))
            y = np.where(np.isin(images.test_labels[own], second), 1.0, -1.0)
            # Single precision: only signs are asked for.
            signed = y[:, None] * rows_of(images.test_images[own])
            self._signed.append(signed.astype(np.float32))

    def accuracy(self, models: Array, homes: Places, groups: Places, clusters: Places) -> float:
        """Return the share of test images that a client's model gets right, mean over clients.

        A margin of 0, of a model that is still zero, counts half.

        Parameters
        ----------
        models : (S, Q, d)
        homes, groups : (K,) where every client's model stands in ``models``
        clusters : (K,) whose test images are the client's
        """
        right = 0.0
        for cluster, signed in enumerate(self._signed):
            own = clusters == cluster
            (servers, which), counts = np.unique(
                np.stack([homes[own], groups[own]]), axis=1, return_counts=True
            )
            margins = signed @ models[servers, which].astype(np.float32).T
            right += float(counts @ np.mean((margins > 0.0) + 0.5 * (margins == 0.0), axis=0))
        return right / len(clusters)


def _pile(images: ImageSet, digit: int, seed: int) -> Places:
    own = np.flatnonzero(images.train_labels == digit)
    return np.asarray(generator(seed, "image order", digit).permutation(own))


def _either(path: Path) -> Path:
    """Return the file as it is, or its ``.gz``; the latter also where neither is there."""
    return path if path.is_file() else path.with_name(path.name + ".gz")


def _checked(
    images: NDArray[Any], labels: NDArray[Any], images_at: str, labels_at: str
) -> tuple[Bytes, Places]:
    """Return grey images (n, h, w) and labels (n,)."""
    if images.ndim == 4:
        raise DataError(f"{images_at}: colour images, shape {images.shape}; grey ones are needed")
    if images.ndim != 3 or 0 in images.shape:
        raise DataError(f"{images_at}: shape {images.shape}; images (n, height, width) are needed")
    if images.dtype != np.uint8:
        raise DataError(f"{images_at}: values of type {images.dtype}; bytes, 0 to 255, are needed")
    if labels.shape not in ((len(images),), (len(images), 1)):
        raise DataError(
            f"{labels_at}: shape {labels.shape} for {len(images)} images; one label an image"
        )
    if labels.dtype.kind not in "ui":
        raise DataError(f"{labels_at}: values of type {labels.dtype}; whole numbers are needed")
    return images, labels.reshape(-1).astype(np.intp)
