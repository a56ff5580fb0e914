from __future__ import annotations

import os

import numpy as np
import pytest

from trellis.apps.common.tables import (
    DataError,
    client_files,
    read_table,
    read_tolerantly,
    read_with_gaps,
    require_variation,
)


def write(path, text):
    path.write_text(text)
    return path


def test_a_csv_is_read_with_its_names(tmp_path):
    path = write(tmp_path / "a.csv", '\ufeffx, "y",z\n1,2,3e-1\n\n4,5,-6\n')
    table = read_table(path)
    assert table.columns == ("x", '"y"', "z") or table.columns == ("x", "y", "z")
    np.testing.assert_array_equal(table.values, [[1, 2, 0.3], [4, 5, -6]])


def test_an_npz_is_read_with_or_without_names(tmp_path):
    values = np.arange(20).reshape(2, 10)
    np.savez(tmp_path / "a.npz", X=values)
    np.savez(tmp_path / "b.npz", X=values, columns=np.array(list("abcdefghij")))
    assert read_table(tmp_path / "a.npz").columns[:2] == ("v01", "v02")
    assert read_table(tmp_path / "b.npz").columns[9] == "j"
    assert read_table(tmp_path / "a.npz").values.dtype == np.float64


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b\n1,\n2,3\n", "row 1, column 'b' is missing"),
        ("a,b\n1,2\nhello,3\n", "row 2, column 'a' is 'hello', not a number"),
        ("a,b\n1,2\n1,nan\n", "row 2, column 'b' is nan"),
        ("a,b\n1,2\ninf,2\n", "row 2, column 'a' is inf"),
        ("a,b\n1,2\n1,2,3\n", "row 2 has 3 cells, the header 2"),
        ("a,b\n1,2\n1\n", "row 2 has 1 cells, the header 2"),
        ("a,b\n1\n2\n", "row 1 has 1 cells, the header 2"),
        ("", "empty; needs a header row"),
        ("\n\n", "empty; needs a header row"),
        ("a,b\n", "no rows of data"),
        ("a,a\n1,2\n", "the column name 'a' stands more than once"),
        ("1,2\n3,4\n", "the first row is all numbers"),
        (",a\n0,2\n1,4\n", "column 1 of 2 has no name"),
        ("a,y\n1,M\n2,B\n", "column 'y' is 'M', not a number; write labels"),
        ('a,b\n"1,5",2\n', "'1,5', not a number; write decimals with a point"),
        ('a,b\n"1,234.5",2\n', "nothing between thousands"),
        ("a,b\n1,2\n-1e99,2\n", "row 2, column 'a' is -1e+99, too large to be computed with"),
    ],
)
def test_a_bad_csv_is_named_with_its_row_and_column(tmp_path, text, message):
    path = write(tmp_path / "bad.csv", text)
    with pytest.raises(DataError) as error:
        read_table(path)
    assert str(path) in str(error.value)
    assert message in str(error.value)


def test_one_row_and_constant_columns_are_refused_by_name(tmp_path):
    path = write(tmp_path / "a.csv", "x,y\n1,2\n")
    with pytest.raises(DataError, match=r"a\.csv: 1 row of data; at least 2"):
        require_variation(read_table(path))
    path = write(tmp_path / "b.csv", "x,y\n1,2\n1,3\n")
    with pytest.raises(DataError, match=r"b\.csv: column 'x' is constant"):
        require_variation(read_table(path))


@pytest.mark.parametrize("name", ["missing.csv", "missing.npz", "folder.csv"])
def test_an_unreadable_path_is_named(tmp_path, name):
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(DataError, match=f"{name}: cannot be read"):
        read_table(tmp_path / name)


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_forbidden_file_is_named(tmp_path):
    path = write(tmp_path / "secret.csv", "a\n1\n")
    path.chmod(0)
    with pytest.raises(DataError, match=r"secret\.csv: cannot be read"):
        read_table(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"Y": np.ones((2, 2))}, "holds Y; needs 'X'"),
        ({"X": np.ones(4)}, "a table of numbers is needed"),
        ({"X": np.array([["a", "b"]])}, "a table of numbers is needed"),
        ({"X": np.ones((2, 2)), "columns": np.array(["a"])}, "1 column names for 2 columns"),
        ({"X": np.array([[1.0, np.nan]])}, "row 1, column 'v2' is nan"),
    ],
)
def test_a_bad_npz_is_named(tmp_path, content, message):
    np.savez(tmp_path / "a.npz", **content)
    with pytest.raises(DataError) as error:
        read_table(tmp_path / "a.npz")
    assert message in str(error.value)


def test_files_that_are_not_what_they_say_are_named(tmp_path):
    write(tmp_path / "a.npz", "not a zip")
    with pytest.raises(DataError, match="not a readable npz"):
        read_table(tmp_path / "a.npz")
    (tmp_path / "a.csv").write_bytes(b"\xff\xfe\x00\x01")
    with pytest.raises(DataError, match="UTF-8"):
        read_table(tmp_path / "a.csv")
    write(tmp_path / "a.xls", "")
    with pytest.raises(DataError, match="unknown kind of file"):
        read_table(tmp_path / "a.xls")


def test_an_npz_with_a_pickle_is_never_loaded(tmp_path):
    np.savez(tmp_path / "a.npz", X=np.array([[object()]], dtype=object))
    with pytest.raises(DataError, match="not a readable npz"):
        read_table(tmp_path / "a.npz")


def test_client_files_are_sorted_and_only_data(tmp_path):
    for name in ("b.csv", "a.npz", "notes.txt", "assignment.csv", ".hidden"):
        (tmp_path / name).touch()
    (tmp_path / "c.csv").mkdir()
    assert [f.name for f in client_files(tmp_path)] == ["a.npz", "b.csv"]
    with pytest.raises(DataError, match="no such folder"):
        client_files(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"no \.csv or \.npz file"):
        client_files(tmp_path / "empty")


def test_a_client_s_file_may_end_in_capitals_and_what_programs_leave_is_no_client(tmp_path):
    write(tmp_path / "north.CSV", "a,b\n1,2\n3,4\n")
    write(tmp_path / "south.csv", "a,b\n1,2\n3,4\n")
    (tmp_path / "._south.csv").write_bytes(bytes(range(256)))
    assert [path.name for path in client_files(tmp_path)] == ["north.CSV", "south.csv"]
    np.testing.assert_array_equal(read_table(tmp_path / "north.CSV").values, [[1, 2], [3, 4]])


def test_the_fingerprint_sees_values_and_names(tmp_path):
    one = read_table(write(tmp_path / "a.csv", "x,y\n1,2\n"))
    two = read_table(write(tmp_path / "b.csv", "x,y\n1,2\n"))
    three = read_table(write(tmp_path / "c.csv", "x,z\n1,2\n"))
    four = read_table(write(tmp_path / "d.csv", "x,y\n1,2.5\n"))
    assert one.digest() == two.digest()
    assert len({one.digest(), three.digest(), four.digest()}) == 3


# Separators and decimals

PLAIN = 'x,"y, or z",w\n1.5,-2,3e-1\n\n0.1,25.25,-6.125\n4,5,0\n'


def written(separator, comma, quoted=False, mark="", spaces=False):
    """Return the table of `PLAIN` in another dialect."""
    lines = []
    for cells in (["1.5", "-2", "3e-1"], ["0.1", "25.25", "-6.125"], ["4", "5", "0"]):
        made = [cell.replace(".", ",") if comma else cell for cell in cells]
        made = [f'"{cell}"' if quoted else cell for cell in made]
        lines.append((f"{separator} " if spaces else separator).join(made))
    header = separator.join(["x", '"y, or z"', "w"])
    return mark + "\n".join([header, lines[0], "", *lines[1:]]) + "\n"


DIALECTS = [
    (separator, comma, quoted, mark, spaces)
    for separator in ",;\t"
    for comma in (False, True)
    for quoted in (False, True)
    for mark in ("", "\ufeff")
    for spaces in (False, True)
    if not (comma and separator == ",") and not (quoted and spaces)
]


@pytest.mark.parametrize("dialect", DIALECTS, ids=repr)
@pytest.mark.parametrize("reader", [read_table, read_tolerantly, read_with_gaps])
def test_the_same_table_in_every_dialect_and_from_every_reader(tmp_path, dialect, reader):
    plain = read_table(write(tmp_path / "plain.csv", PLAIN))
    read = reader(write(tmp_path / "other.csv", written(*dialect)))
    assert read.columns == plain.columns == ("x", "y, or z", "w")
    assert read.values.tobytes() == plain.values.tobytes()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a;b,c\n1;2\n", "'a;b,c' has commas and semicolons; separate names and cells by one of"),
        ("a\tb;c\n1\t2\n", "has semicolons and tabs"),
    ],
)
@pytest.mark.parametrize("reader", [read_table, read_tolerantly])
def test_a_header_with_two_separators_is_refused(tmp_path, text, message, reader):
    with pytest.raises(DataError) as error:
        reader(write(tmp_path / "a.csv", text))
    assert message in str(error.value)
    assert "a.csv" in str(error.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a;b\n1,5;2\n3;2.5\n", "row 1 has a decimal comma, row 2 a decimal point"),
        ("a;b\n1;2\n3;1.234,5\n", "row 2 has a decimal comma, row 2 a decimal point"),
        ("a;b\n1;2\n3;1,234,567\n", "row 2, column 'b' is '1,234,567', not a number"),
        ("a,b\n1;2\n", "row 1 has 1 cells, the header 2; every row needs one value per column; "
         "the header is separated by commas, this row by semicolons"),
        ("a,b\n1,5,2,5\n", "decimal commas need semicolons or tabs between the cells"),
        ('a,b\n"1,5",2\n', "row 1, column 'a' is '1,5', not a number"),
        ("1;2\n3;4\n", "the first row is all numbers"),
        ("1,5;2,5\n3;4\n", "has commas and semicolons"),
        ("a;b;a\n1;2;3\n", "the column name 'a' stands more than once"),
    ],
)  # fmt: skip
def test_what_can_be_meant_in_two_ways_is_refused(tmp_path, text, message):
    with pytest.raises(DataError) as error:
        read_table(write(tmp_path / "a.csv", text))
    assert message in str(error.value)


def test_tabs_around_names_are_no_more_than_space(tmp_path):
    table = read_table(write(tmp_path / "a.csv", "a,\tb\n1,\t2\n"))
    assert table.columns == ("a", "b")
    np.testing.assert_array_equal(table.values, [[1, 2]])


@pytest.mark.parametrize("separator", [",", ";", "\t"])
@pytest.mark.parametrize(
    "record", ["1,5;2", "1;2", "1,2", "1.5\t2,5", "1.234,5;7", '"', '"1,5";"2', "x", "1;2;3,4", "."]
)
def test_no_record_decides_how_the_others_are_read(tmp_path, separator, record):
    rows = [separator.join(cells) for cells in (("1", "2.5"), ("3", "4"), ("5", "6"))]
    head = separator.join("ab")
    plain = read_tolerantly(write(tmp_path / "p.csv", "\n".join([head, *rows]) + "\n"))
    for place in range(4):
        lines = [head, *rows[:place], record, *rows[place:]]
        read = read_tolerantly(write(tmp_path / "r.csv", "\n".join(lines) + "\n"))
        assert read.columns == plain.columns
        others = np.delete(read.values, place, axis=0)
        assert others.tobytes() == plain.values.tobytes()


def ordered_folder(tmp_path, text):
    for name in ("b.csv", "a.npz", "c.csv", "assignment.csv"):
        (tmp_path / name).write_text("x\n1\n")
    (tmp_path / "order.txt").write_text(text)
    return tmp_path


def test_a_folder_may_say_the_order_of_its_clients(tmp_path):
    folder = ordered_folder(tmp_path, "c.csv\na.npz\nb.csv\n")
    assert [path.name for path in client_files(folder)] == ["c.csv", "a.npz", "b.csv"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("c.csv\na.npz\n", "'b.csv' is missing"),
        ("c.csv\na.npz\nb.csv\nc.csv\n", "'c.csv' stands there twice"),
        ("c.csv\na.npz\nb.csv\n../x.csv\n", "'../x.csv' is no file beside it"),
    ],
)
def test_an_order_that_does_not_fit_is_refused(tmp_path, text, words):
    with pytest.raises(DataError, match="name every client's file once") as caught:
        client_files(ordered_folder(tmp_path, text))
    assert words in str(caught.value)


CELLS = (
    *("7", " 7 ", "\x1c7", "7\x1f", "\x0b7", "\xa07", "7\u2028", "1_0", "\u0661", "1e5", "-.5"),
    *("1e999", "nan", "inf", "0x10", "1d5", '"7"', '"7"8', '7"8"', '""', "", " ", "#7", "7\x00"),
)


@pytest.mark.parametrize("separator", [",", ";", "\t"])
@pytest.mark.parametrize("cell", CELLS)
def test_how_a_record_is_read_does_not_depend_on_the_others(cell, separator, tmp_path):
    """One that is no numbers sends the whole file another way: the others must not change."""
    path, seen = tmp_path / "a.csv", []
    for other in (["1", "2", "3"], ["1", "words", "3"], ['"1', "2", "3"], ["", "", ""], ["1"]):
        rows = [["a", "b", "c"], ["4", cell, "6"], [cell, "5", "6"], other]
        path.write_text("".join(separator.join(row) + "\n" for row in rows))
        seen.append(read_tolerantly(path).values)
    for values in seen:
        assert values.shape == (3, 3)
        np.testing.assert_array_equal(values[:2], seen[0][:2])
