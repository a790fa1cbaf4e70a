"""Tree-NeighborsMatch (Alon and Yahav, ICLR 2021): the root of a tree asks for the value of one leaf.

A tree is complete and binary. Each leaf has a key and a value; the root has the key of one leaf, whose
value is the target. Record ``i`` is a pure function of the depth and ``i``: the same trees, in the same
order and parts, as the authors' generator draws from its seed. No files are read. Facts:
``docs/datasets/tree-neighbors-match.md``.

Source: ``tasks/tree_dataset.py`` and ``tasks/dictionary_lookup.py`` of tech-srl/bottleneck.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from pydantic import Field

from kmip_data.arrays import I64
from kmip_data.format.graph_record import GraphRecord
from kmip_data.format.schema import Schema
from kmip_data.graphs.split_rules import draw_stratified
from kmip_data.pipelines.base import Pipeline, Prepared, Unit
from kmip_data.pipelines.common_columns import class_column, feature_column
from kmip_data.pipelines.parameters import BuildParams, PublishedSplitParams
from kmip_data.pipelines.units_and_splits import units_of_rows

SEED = 11  #: seed of the authors' generators
MAX_PERMUTATIONS = 1_000  #: assignments of values to leaves
MAX_TREES = 32_000
TRAIN_FRACTION = 0.8
TREES_PER_UNIT = 4_000
#: Depth up to which permutations are sampled without repetition from the list of all.
LAST_LISTED_DEPTH = 3


class TreeParams(BuildParams):
    """Parameters that change the records."""

    depth: int = Field(
        default=3,
        ge=2,
        le=8,
        description="edges between the root and each leaf; the problem's radius",
    )


class BinaryTree(NamedTuple):
    """Complete binary tree, whose nodes are numbered in preorder from the root, 0."""

    edge_index: I64  #: (2, E) edges from child to parent, then a self-loop of each node
    leaves: I64  #: leaves from left to right

    @classmethod
    def of_depth(cls, depth: int) -> BinaryTree:
        """Return the tree whose leaves are ``depth`` edges from the root."""
        edges = np.empty((2, 0), np.int64)
        leaves = np.zeros(1, np.int64)
        for height in range(depth):
            # A higher tree is a new root, 0, then two copies of the tree so far.
            left = 1
            right = 2 ** (height + 1)
            edges = np.hstack([[[left, right], [0, 0]], edges + left, edges + right])
            leaves = np.hstack([leaves + left, leaves + right])
        nodes = np.arange(2 ** (depth + 1) - 1)
        return cls(np.hstack([edges, [nodes, nodes]]), leaves)


class Questions(NamedTuple):
    """Values of the leaves and the leaf that each tree asks for."""

    values: I64  #: (P, leaves) values from 1 in each permutation
    permutation: I64  #: (T,) row of ``values`` of each tree, train before val
    leaf: I64  #: (T,) position of the leaf whose key the root has
    train: int  #: number of train trees

    @classmethod
    def of_depth(cls, depth: int) -> Questions:
        """Draw the trees of a depth, calling the random generators in the authors' order."""
        # 1. Draw permutations; each gives one tree per leaf.
        leaves = 2**depth
        ordered = np.arange(1, leaves + 1)
        generator = np.random.RandomState(SEED)
        if depth <= LAST_LISTED_DEPTH:
            every = list(itertools.permutations(ordered.tolist()))
            python_generator = random.Random(SEED)  # noqa: S311 -- reproduces an upstream rule
            drawn = python_generator.sample(every, min(MAX_PERMUTATIONS, len(every)))
            values = np.array(drawn)
        else:
            count = min(MAX_PERMUTATIONS, MAX_TREES // leaves)
            values = np.stack([generator.permutation(ordered) for _ in range(count)])

        # 2. Divide the trees by their target, the value of the asked leaf.
        train = int(TRAIN_FRACTION * values.size)
        parts = draw_stratified(values.flatten(), values.size - train, generator)
        permutation, leaf = np.divmod(np.concatenate(parts), leaves)
        return cls(values, permutation, leaf, train)


class TreeNeighborsMatchPipeline(Pipeline[TreeParams, PublishedSplitParams]):
    """Pipeline of ``tree-neighbors-match``."""

    version = 1
    folder_name_templates = (("depth", "r{}"),)
    Params = TreeParams

    def schema(self, params: TreeParams) -> Schema:
        """Return keys and values of the nodes, 0 if they have none, and the asked value."""
        leaves = 2**params.depth
        pair = feature_column(
            "node/x",
            ("key", "value"),
            "key and value from 1; 0: none",
            stored="int16",
            presented="int64",
            high=leaves,
        )
        target = class_column(
            "graph/y", leaves + 1, "value of the leaf with the root's key, from 1"
        )
        return Schema(
            columns=(pair, target),
            max_nodes=2 * leaves - 1,
            directed=True,
            key_length=16,
        )

    def units(self, prepared: Prepared, params: TreeParams) -> list[Unit]:
        """Assign the train trees, then the val trees, each in the authors' order."""
        trees = len(Questions.of_depth(params.depth).leaf)
        return units_of_rows(params.positions_to_build(trees), TREES_PER_UNIT, "trees")

    def records(self, prepared: Prepared, unit: Unit, params: TreeParams) -> Iterator[GraphRecord]:
        """Generate each tree from the depth and its number."""
        tree = BinaryTree.of_depth(params.depth)
        questions = Questions.of_depth(params.depth)
        schema = self.schema(params)
        edge_index = tree.edge_index.astype(schema.index_dtype)
        keys = np.arange(1, len(tree.leaves) + 1)
        target_dtype = schema.columns[1].stored
        for row in unit.selection["rows"]:
            values = questions.values[questions.permutation[row]]
            leaf = questions.leaf[row]
            x = np.zeros((2 * len(keys) - 1, 2), np.int16)
            x[tree.leaves, 0] = keys
            x[tree.leaves, 1] = values
            x[0, 0] = keys[leaf]
            part = "train" if row < questions.train else "val"
            yield GraphRecord(
                key=f"{part}/{row:06d}",
                num_nodes=len(x),
                columns={"node/x": x, "graph/y": values[leaf].astype(target_dtype)},
                edge_index=edge_index,
            )


PIPELINE = TreeNeighborsMatchPipeline
