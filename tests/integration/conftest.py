"""The product with stand-ins, made once per session; a home of its own per test."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "fakes"))


@pytest.fixture(scope="session")
def product_root(tmp_path_factory):
    from product import make_product

    return make_product(tmp_path_factory.mktemp("product"))


@pytest.fixture
def product(product_root, tmp_path):
    from product import Product

    (tmp_path / "home").mkdir()
    return Product(product_root, tmp_path / "home")
