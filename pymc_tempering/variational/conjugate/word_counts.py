"""Sparse counts of words: their checks, and corpora that stay on disk."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from pymc_tempering.exceptions import DataError

AT_ONCE = 1 << 16


def check_counts(counts: Any) -> sp.csr_array:
    """Return documents in rows and words in columns as a CSR array, memory maps kept.

    Raises
    ------
    DataError
        If a count is negative, not whole or not finite, or a document is empty: with its place.
    """
    matrix = _as_csr(counts)
    if 0 in matrix.shape:
        raise DataError(f"the counts have shape {matrix.shape}: there must be documents and words")
    for first in range(0, matrix.nnz, AT_ONCE):
        part = np.asarray(matrix.data[first : first + AT_ONCE])
        bad = ~(np.isfinite(part) & (part >= 0) & (part == np.floor(part)))
        if bad.any():
            at = first + int(np.argmax(bad))
            row = int(np.searchsorted(matrix.indptr, at, side="right")) - 1
            raise DataError(
                f"document {row} has a count of {matrix.data[at]} for word {matrix.indices[at]}: "
                "counts must be whole and not negative (LDA takes no tf-idf weights)"
            )
    totals = row_totals(matrix)
    if (totals == 0).any():
        empty = np.flatnonzero(totals == 0)
        raise DataError(
            f"{empty.size} of {matrix.shape[0]} documents are empty, the first is document "
            f"{empty[0]}: drop them, X[X.sum(axis=1) > 0]"
        )
    return matrix


def _as_csr(counts: Any) -> sp.csr_array:
    if isinstance(counts, sp.csr_array) and counts.data.dtype == np.float64:
        return counts
    if not sp.issparse(counts):
        counts = np.asarray(counts)
        if counts.ndim != 2 or not (
            np.issubdtype(counts.dtype, np.number) or counts.dtype == np.bool_
        ):
            raise DataError(
                "counts must be a matrix of numbers, documents in rows and words in columns; got "
                f"shape {counts.shape} of {counts.dtype}"
            )
    if isinstance(counts, sp.csr_array):  # converted batch by batch, so that maps stay on disk
        return counts
    matrix = sp.csr_array(counts)
    matrix.sum_duplicates()
    return matrix


def row_totals(matrix: sp.csr_array) -> np.ndarray:
    """Return the number of words of each document, read piece by piece."""
    totals = np.zeros(matrix.shape[0])
    indptr = np.asarray(matrix.indptr)
    step = max(1, AT_ONCE * matrix.shape[0] // max(1, matrix.nnz))
    for first in range(0, matrix.shape[0], step):
        last = min(first + step, matrix.shape[0])
        begin, end = indptr[first], indptr[last]
        running = np.concatenate([[0.0], np.cumsum(np.asarray(matrix.data[begin:end], float))])
        totals[first:last] = np.diff(running[indptr[first : last + 1] - begin])
    return totals


def take_documents(matrix: sp.csr_array, rows: np.ndarray) -> sp.csr_array:
    """Return some documents in memory, as float counts; only these are read from disk."""
    starts, ends = matrix.indptr[rows], matrix.indptr[rows + 1]
    indptr = np.concatenate([[0], np.cumsum(ends - starts)])
    data, indices = np.empty(indptr[-1]), np.empty(indptr[-1], dtype=np.int64)
    for i, (a, b) in enumerate(zip(starts, ends, strict=True)):
        data[indptr[i] : indptr[i + 1]] = matrix.data[a:b]
        indices[indptr[i] : indptr[i + 1]] = matrix.indices[a:b]
    return sp.csr_array((data, indices, indptr), shape=(len(rows), matrix.shape[1]))


def save_counts(folder: str | Path, blocks: Iterable[Any]) -> Path:
    """Write a corpus, block of documents by block, into a folder of NumPy files.

    Parameters
    ----------
    folder : str or Path
        New folder, or an empty one.
    blocks : iterable of array_like or scipy.sparse array, shape (n, V)
        Counts with documents in rows; one block is in memory at a time. A single matrix must be
        given as ``[matrix]``.

    Returns
    -------
    Path
        The folder, for :func:`open_counts`.

    Raises
    ------
    DataError
        If the blocks differ in their number of words, or as :class:`LDA` does.
    FileExistsError
        If the folder is not empty.

    Examples
    --------
    >>> import tempfile
    >>> import pymc_tempering as pmt
    >>> conjugate = pmt.variational.conjugate
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = conjugate.save_counts(folder, [[[1, 0, 2]], [[0, 3, 1]]])
    ...     conjugate.open_counts(path).toarray()
    array([[1, 0, 2],
           [0, 3, 1]], dtype=int32)
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise FileExistsError(f"{folder} is not empty: name a new folder")
    indptr, n_words = [0], None
    with open(folder / "data.raw", "wb") as data, open(folder / "indices.raw", "wb") as indices:
        for block in blocks:
            matrix = check_counts(block)
            if n_words not in (None, matrix.shape[1]):
                raise DataError(f"a block has {matrix.shape[1]} words, an earlier one {n_words}")
            n_words = matrix.shape[1]
            if matrix.nnz and matrix.data.max() > np.iinfo(np.int32).max:
                raise DataError(f"a count of {matrix.data.max():g} does not fit 32 bits")
            np.asarray(matrix.data, dtype=np.int32).tofile(data)
            np.asarray(matrix.indices, dtype=np.int32).tofile(indices)
            indptr.extend((indptr[-1] + np.asarray(matrix.indptr[1:], dtype=np.int64)).tolist())
    if n_words is None:
        raise DataError("there are no blocks to write")
    np.save(folder / "indptr.npy", np.array(indptr, dtype=np.int64))
    np.save(folder / "shape.npy", np.array([len(indptr) - 1, n_words]))
    return folder


def open_counts(folder: str | Path) -> sp.csr_array:
    """Open a corpus that :func:`save_counts` wrote; counts and words stay on disk.

    Parameters
    ----------
    folder : str or Path
        The folder.

    Returns
    -------
    scipy.sparse.csr_array, shape (D, V)
        Documents in rows, on memory maps. :func:`svi` reads one minibatch at a time.

    Raises
    ------
    FileNotFoundError
        If the folder lacks a file.

    Examples
    --------
    >>> import pymc_tempering as pmt
    >>> corpus = pmt.variational.conjugate.open_counts("corpus")  # doctest: +SKIP
    """
    folder = Path(folder)
    shape = tuple(int(n) for n in np.load(folder / "shape.npy"))
    matrix = sp.csr_array(shape, dtype=np.int32)
    matrix.indptr = np.load(folder / "indptr.npy")
    matrix.data = np.memmap(folder / "data.raw", dtype=np.int32, mode="r")
    matrix.indices = np.memmap(folder / "indices.raw", dtype=np.int32, mode="r")
    return matrix


def n_tokens(matrix: sp.csr_array) -> float:
    """Return the number of words of a corpus, read piece by piece."""
    pieces = range(0, matrix.nnz, AT_ONCE)
    return float(sum(np.sum(matrix.data[i : i + AT_ONCE], dtype=float) for i in pieces))
