"""The modules of the repository's folder ``preprocess/``, under a name of this project's own.

A built distribution has the modules themselves in this folder's place: ``package_dir`` in setup.py.
"""

from pathlib import Path

__path__ = [str(Path(__file__).resolve().parents[2] / "preprocess")]
