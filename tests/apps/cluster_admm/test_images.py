"""Image files are read as they are or refused by name; no image goes to two clients."""

from __future__ import annotations

import gzip
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.apps.datasets import needs
from trellis.apps.cluster_admm.paper.image_data import (
    ImageSet,
    Unseen,
    dealt,
    mnist,
    organs,
    read_idx,
    read_medmnist,
    read_mnist,
    rows_of,
)
from trellis.apps.common.tables import DataError
from trellis.apps.experiments.datasets import dataset


def idx(values, kind=8, shape=None) -> bytes:
    shape = values.shape if shape is None else shape
    header = struct.pack(f">BBBB{len(shape)}I", 0, 0, kind, len(shape), *shape)
    return header + values.tobytes()


def some_images(count=6, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (count, 3, 4), dtype=np.uint8)


def numbered(classes=10, each=12) -> ImageSet:
    """Return images whose pixels tell which one they are."""
    labels = np.tile(np.arange(classes), each)
    pixels = np.stack([labels, np.repeat(np.arange(each), classes)], axis=1).astype(np.uint8)
    images = pixels[:, None, :]
    return ImageSet("numbered", images, labels, images, labels)


def write_mnist(folder, suffix=".gz"):
    pack = gzip.compress if suffix else bytes
    for prefix, count in (("train", 6), ("t10k", 4)):
        labels = np.arange(count, dtype=np.uint8)
        images = pack(idx(some_images(count)))
        (folder / f"{prefix}-images-idx3-ubyte{suffix}").write_bytes(images)
        (folder / f"{prefix}-labels-idx1-ubyte{suffix}").write_bytes(pack(idx(labels)))


def medmnist(**changes):
    arrays = {
        "train_images": some_images(6),
        "train_labels": np.arange(6, dtype=np.uint8)[:, None],
        "val_images": some_images(2),
        "val_labels": np.zeros((2, 1), dtype=np.uint8),
        "test_images": some_images(3, seed=1),
        "test_labels": np.arange(3, dtype=np.uint8)[:, None],
        **changes,
    }
    return {name: values for name, values in arrays.items() if values is not None}


@pytest.mark.parametrize("suffix", [".gz", ""])
def test_mnist_files_are_read_as_they_were_written(suffix, tmp_path):
    write_mnist(tmp_path, suffix)
    found = read_mnist(tmp_path)
    assert np.array_equal(found.train_images, some_images(6))
    assert np.array_equal(found.test_images, some_images(4))
    assert found.train_labels.tolist() == [0, 1, 2, 3, 4, 5]
    assert found.test_labels.tolist() == [0, 1, 2, 3]


# Without the time of writing, so that the case has the same name in every process.
CUT_GZIP = gzip.compress(idx(some_images()), mtime=0)[:-9]


@pytest.mark.parametrize(
    ("content", "wrong"),
    [
        (b"", "not an idx file; it begins with nothing"),
        (b"PK\x03\x04", "not an idx file; it begins with 50 4b 03 04"),
        (idx(some_images(), kind=0x0D), "idx type 0x0d"),
        (idx(some_images())[:9], "cut short in its header of 3 axes"),
        (idx(some_images())[:-1], r"cut short; 71 values, its header says \(6, 3, 4\) \(72\)"),
        (idx(some_images()) + b"\0", "too long; 73 values"),
        (CUT_GZIP, "cut short, its gzip stream does not end"),
        (b"\x1f\x8bnonsense and more of it", "cannot be read"),
    ],
)
def test_what_is_no_whole_idx_file_is_refused_by_name(content, wrong, tmp_path):
    path = tmp_path / "digits.gz"
    path.write_bytes(content)
    with pytest.raises(DataError, match=f"digits.gz: .*{wrong}"):
        read_idx(path)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(DataError, match=r"train-images-idx3-ubyte\.gz: no such file"):
        read_mnist(tmp_path)
    with pytest.raises(DataError, match=r"organamnist\.npz: no such file"):
        read_medmnist(tmp_path / "organamnist.npz")


def test_labels_that_do_not_fit_the_images_are_refused(tmp_path):
    write_mnist(tmp_path)
    short = idx(np.arange(5, dtype=np.uint8))
    (tmp_path / "train-labels-idx1-ubyte.gz").write_bytes(gzip.compress(short))
    with pytest.raises(DataError, match=r"train-labels.*shape \(5,\) for 6 images"):
        read_mnist(tmp_path)


def test_a_medmnist_file_is_read_without_its_validation_part(tmp_path):
    path = tmp_path / "organs.npz"
    np.savez(path, **medmnist(class_names=np.array(["liver", "lung"])))
    found = read_medmnist(path)
    assert found.name == "organs"
    assert found.classes == ("liver", "lung")
    assert found.train_labels.tolist() == [0, 1, 2, 3, 4, 5]
    assert np.array_equal(found.test_images, some_images(3, seed=1))


@pytest.mark.parametrize(
    ("changes", "wrong"),
    [
        ({"test_labels": None}, "lacks test_labels; it holds train_images"),
        ({"train_images": np.zeros((6, 3, 4, 3), np.uint8)}, "train_images: colour images"),
        ({"test_images": np.zeros((3, 3, 4))}, "test_images: values of type float64; bytes"),
        ({"test_images": np.zeros((3, 12), np.uint8)}, r"test_images: shape \(3, 12\)"),
        ({"train_labels": np.zeros((6, 14), np.uint8)}, r"train_labels: shape \(6, 14\)"),
        ({"train_labels": np.zeros((6, 1))}, "train_labels: values of type float64; whole"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_what_is_no_medmnist_file_of_grey_images_is_refused(changes, wrong, tmp_path):
    path = tmp_path / "organs.npz"
    np.savez(path, **medmnist(**changes))
    with pytest.raises(DataError, match=f"organs.npz: {wrong}"):
        read_medmnist(path)


def test_what_is_no_npz_is_refused_by_name(tmp_path):
    path = tmp_path / "organs.npz"
    path.write_bytes(b"not a zip archive")
    with pytest.raises(DataError, match=r"organs\.npz: not a readable npz file"):
        read_medmnist(path)


def test_organs_are_taken_where_they_are_and_else_the_stand_in(tmp_path, monkeypatch):
    monkeypatch.setenv("TRELLIS_DATA", str(tmp_path))
    with pytest.raises(DataError, match=r"set TRELLIS_DATA.*MedNIST.*organamnist\.npz"):
        organs()
    (tmp_path / "MedNIST").mkdir()
    np.savez(tmp_path / "MedNIST" / "mednist28.npz", **medmnist())
    assert organs()[0].name == "mednist28"
    assert not organs()[1]
    np.savez(tmp_path / "organamnist.npz", **medmnist())
    assert organs()[0].name == "organamnist"
    (tmp_path / "MedMNIST").mkdir()
    np.savez(tmp_path / "MedMNIST" / "organamnist.npz", **medmnist(val_images=None))
    assert organs()[1]
    (tmp_path / "OrganAMNIST").mkdir()
    np.savez(tmp_path / "OrganAMNIST" / "organamnist.npz", **medmnist())
    assert organs()[1]


def test_absent_digits_are_named(tmp_path, monkeypatch):
    monkeypatch.setenv("TRELLIS_DATA", str(tmp_path))
    with pytest.raises(DataError, match="set TRELLIS_DATA to the folder that holds MNIST"):
        mnist()


TASKS = (((1,), (8,)), ((1,), (9,)), ((7,), (8,)))


@given(seed=st.integers(0, 1000), whole=st.booleans())
def test_every_client_has_its_own_images_of_its_cluster_s_digits(seed, whole):
    images = numbered(each=60)
    clusters = np.array([0, 1, 2, 2, 1, 0, 0])
    tables = dealt(images, TASKS, clusters, (2, 4), seed, whole)
    seen = set()
    for (X, y), cluster in zip(tables, clusters, strict=True):
        first, second = TASKS[cluster]
        digits = np.rint(255 * X[:, 0]).astype(int)
        assert set(digits[y == -1.0]) == set(first)
        assert set(digits[y == 1.0]) == set(second)
        assert len(y) in ((4, 6, 8) if whole else (2, 3, 4))
        assert abs(int(y.sum())) <= (0 if whole else 1)  # evenly
        for row in X:
            assert tuple(row) not in seen
            seen.add(tuple(row))


def test_dealing_depends_on_the_seed_alone():
    clusters = np.array([0, 1, 2])
    first, again, other = (dealt(numbered(), TASKS, clusters, (2, 4), s) for s in (3, 3, 4))
    assert all(np.array_equal(a[0], b[0]) for a, b in zip(first, again, strict=True))
    assert not all(np.array_equal(a[0], b[0]) for a, b in zip(first, other, strict=True))


def test_too_few_images_of_a_class_are_refused():
    with pytest.raises(DataError, match=r"numbered: its 3 training images of class \d .* client 4"):
        dealt(numbered(each=3), TASKS, np.array([0, 0, 0, 0]), (2, 2), 1)


def test_accuracy_is_the_mean_over_clients_on_their_own_classes():
    images = numbered(each=2)
    tasks = (((1,), (8,)), ((7,), (9,)))
    unseen = Unseen(images, tasks)
    rng = np.random.default_rng(5)
    models = rng.standard_normal((3, 2, 2))
    models[2, 1] = 0.0
    homes, groups = np.array([0, 0, 1, 2, 2, 1, 1]), np.array([0, 1, 0, 1, 1, 0, 0])
    clusters = np.array([0, 1, 0, 1, 0, 0, 0])
    shares = []
    for home, group, cluster in zip(homes, groups, clusters, strict=True):
        (first,), (second,) = tasks[cluster]
        right = []
        for image, label in zip(images.test_images, images.test_labels, strict=True):
            if label in (first, second):
                margin = float(models[home, group] @ (image.ravel() / 255.0))
                right.append(0.5 if margin == 0.0 else (margin > 0.0) == (label == second))
        shares.append(np.mean(right))
    assert unseen.accuracy(models, homes, groups, clusters) == pytest.approx(np.mean(shares))


def test_a_class_without_test_images_is_refused():
    with pytest.raises(DataError, match="numbered: no test image of class 12"):
        Unseen(numbered(), (((1,), (12,)),))


def test_rows_are_pixels_from_0_to_1():
    images = np.array([[[0, 255], [51, 102]]], dtype=np.uint8)
    assert rows_of(images).tolist() == [[0.0, 1.0, 0.2, 0.4]]


@needs("MNIST")
def test_mnist_has_its_published_counts():
    found = mnist()
    counts = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert np.bincount(found.train_labels).tolist() == counts
    assert found.test_images.shape == (10000, 28, 28)
    assert rows_of(found.train_images[:20000]).mean() == pytest.approx(0.1307, abs=2e-3)


@needs("MedNIST")
def test_the_stand_in_has_six_classes():
    found = read_medmnist(dataset("MedNIST") / "mednist28.npz")
    assert found.classes == ("AbdomenCT", "BreastMRI", "CXR", "ChestCT", "Hand", "HeadCT")
    assert np.bincount(found.train_labels).tolist() == [1000] * 6
